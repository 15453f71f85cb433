"""The lines at the bottom. One has the keys that fit the current state of the row with the cursor, and a key for help.
The line above it shows the result of the last action for some seconds.

Textual's footer shows every key in every state. At 80 columns its key for help would be beyond the edge. Textual's
toasts cover what is below them: at 42 columns that is most of the list.
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
SHOWN_FOR = 6.0  # seconds
LONGEST = 600  # characters


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


class MessageLine(Static):
    """The last message. It takes no room while there is none."""

    DEFAULT_CSS = """
    MessageLine { display: none; height: auto; max-height: 3; background: $boost; text-style: bold; }
    MessageLine.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._said = ""

    def show(self, words: str) -> None:
        if words != self._said:
            self._said = words
            self.set_class(bool(words), "-shown")
            self.update(Text(words, overflow="fold"))
