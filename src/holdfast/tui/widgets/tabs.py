"""The tabs: a line with all screens, the present screen, and the number of open alerts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text
from textual import events
from textual.widgets import Static

from holdfast.base.dataclass import dataclass
from holdfast.tui.colours import LEVELS

if TYPE_CHECKING:
    from holdfast.api.fleet.models import AlertCounts

COUNTED = "alerts"
META = "screen"


@dataclass(frozen=True)
class Tab:
    """One screen in the line."""

    key: str
    name: str
    is_open: bool = False
    number: int = 0  # of open alerts on that screen; 0 is not shown
    style: str = ""

    @property
    def words(self) -> str:
        return f"{self.key} {self.name}" + (f" {self.number}" if self.number else "")


class Tabs(Static):
    """The line of tabs. A screen that is too short for it (no `-roomy`, see screen.py) hides it, but its keys work."""

    DEFAULT_CSS = """
    Tabs { display: none; height: 1; text-wrap: nowrap; text-overflow: clip; }
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = names
        self._tabs: tuple[Tab, ...] = ()

    def show(self, name: str, alerts: AlertCounts | None) -> None:
        """Show the tabs. `alerts` is the number of open alerts and the worst level. None means not read yet."""
        made = tuple(make_tabs(self._names, name, alerts))
        if made != self._tabs:
            self._tabs = made
            self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    async def on_click(self, event: events.Click) -> None:
        name = event.style.meta.get(META)  # not a link: links have colours of their own
        if name is not None:
            await self.run_action(f"app.go('{name}')")

    def _draw(self) -> None:
        self.update(draw_tabs(self._tabs, self.size.width), layout=False)


def make_tabs(names: Sequence[str], present: str, alerts: AlertCounts | None) -> list[Tab]:
    number, worst = (0, "") if alerts is None else (alerts["open"], alerts["worst"] or "")
    return [
        Tab(
            str(key),
            name.capitalize(),
            is_open=name == present,
            number=number if name == COUNTED else 0,
            style=LEVELS.get(worst, "") if name == COUNTED and number else "",
        )
        for key, name in enumerate(names, 1)
    ]


def draw_tabs(shown: Sequence[Tab], width: int) -> Text:
    """Return the line, with the present tab in brackets, so that its colour is not the only mark.

    On a narrow screen, tabs at the end show only their digit. The present tab and tabs with a number keep their name
    longest.
    """
    words = [tab.words for tab in shown]
    spare = sorted(range(len(shown)), key=lambda at: (shown[at].is_open, bool(shown[at].number), -at))
    for at in spare:
        if sum(map(len, words)) + 2 * len(words) <= width:
            break
        words[at] = shown[at].key if not shown[at].number else f"{shown[at].key} {shown[at].number}"
    made = Text(end="")
    for tab, each in zip(shown, words, strict=True):
        style = Style.parse(f"bold reverse {tab.style}" if tab.is_open else tab.style)
        made.append(f"[{each}]" if tab.is_open else f" {each} ", style + Style(meta={META: tab.name.lower()}))
    return made
