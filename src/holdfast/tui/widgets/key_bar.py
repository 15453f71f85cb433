"""The line of keys at the bottom: actions that fit the present state of the row with the cursor, and the key for help.

Textual's footer shows every key in every state. At 80 columns its key for help would be beyond the edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import ActiveBinding
from textual.widgets import Static

Key = tuple[str, str, str]  # Textual's name of the key, the name to show, what the key does
HELP: Key = ("question_mark", "?", "Help")


class KeyLine(Static):
    """The line of keys. A click on a key presses it."""

    DEFAULT_CSS = """
    KeyLine {
        dock: bottom; height: 1; background: $panel; text-wrap: nowrap; text-overflow: clip;
        link-style: not underline; link-color: $foreground; link-background: $panel;
        link-style-hover: underline; link-color-hover: $foreground; link-background-hover: $panel;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: tuple[Key, ...] = ()

    def show(self, keys: Iterable[Key]) -> None:
        wanted = tuple(keys)
        if wanted != self._keys:
            self._keys = wanted
            self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        line = Text(end="")
        for pressed, shown, words in fit_keys(self._keys, self.size.width):
            press = Style(meta={"@click": f"app.press('{pressed}')"})
            line.append(shown, Style(bold=True) + press).append(f" {words}", press).append("  ")
        self.update(line, layout=False)


def fit_keys(keys: Sequence[Key], width: int) -> list[Key]:
    """Return as many keys as there is room for. The key for help is always among them."""
    room, chosen = width - _width(HELP), []
    for key in keys:
        room -= _width(key)
        if room < 0:
            break
        chosen.append(key)
    return [*chosen, HELP]


def _width(key: Key) -> int:
    return cell_len(key[1]) + cell_len(key[2]) + 3


def list_other_keys(active: Iterable[ActiveBinding]) -> list[Key]:
    """Return the keys of the screen and the app that the line shows, without the keys of actions."""
    return [
        (binding.key, binding.key_display or binding.key, binding.description)
        for _node, binding, _enabled, _tooltip in active
        if binding.show and not is_action(binding.action) and binding.key != HELP[0]
    ]


def is_action(action: str) -> bool:
    return action.startswith("act(")
