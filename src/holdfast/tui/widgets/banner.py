"""A critical alert in the face: on every screen, until somebody acknowledges it or it is over. Below it the last agent
that died, for a while."""

from __future__ import annotations

import time
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from holdfast.base.text import one_line
from holdfast.tui.widgets.alert_banner import Pressing

Row = dict[str, Any]
LONGEST = 1000  # characters: more than three lines of any terminal hold


class Line(Static):
    """Hidden while it has nothing to say."""

    said = ""

    def say(self, words: str) -> None:
        if words != self.said:  # the same again is no work
            self.said = words
            self.set_class(bool(words), "-shown")
            self.update(Text(words))


class Banner(Vertical):
    DEFAULT_CSS = """
    Banner { display: none; height: auto; max-height: 5; }
    Banner.-shown { display: block; }
    Banner Line { display: none; width: 100%; text-style: bold; }
    Banner .-shown { display: block; }
    Banner #critical { height: auto; max-height: 3; background: $error; color: $text; }
    Banner #deaths { height: auto; max-height: 2; background: $warning; color: $text; }
    """

    def compose(self) -> ComposeResult:
        yield Line(id="critical")
        yield Line(id="deaths")

    def on_mount(self) -> None:
        """On a screen that was not there when it was read."""
        self.call_after_refresh(self.show, self.app.attention.now)  # type: ignore[attr-defined]  # of Top

    def show(self, pressing: Pressing) -> None:
        if not self.is_attached or not (lines := list(self.query(Line))):
            return  # composed in a moment, and shown then
        critical, deaths = critical_words(pressing), death_words(pressing)
        lines[0].say(critical)
        lines[1].say(deaths)
        self.set_class(bool(critical or deaths), "-shown")


def critical_words(pressing: Pressing) -> str:
    """The hint comes first: what does not fit is cut at the end."""
    if not pressing.newest:
        return ""
    newest = pressing.newest[0]
    more = f" and {pressing.count - 1} more" if pressing.count > 1 else ""
    return one_line(f"CRITICAL{more} (3: alerts): {newest['message']} {newest['remedy']}", LONGEST)


def death_words(pressing: Pressing) -> str:
    if not pressing.deaths:
        return ""
    newest = pressing.deaths[0]
    more = f" and {len(pressing.deaths) - 1} more" if len(pressing.deaths) > 1 else ""
    at = time.strftime("%H:%M:%S", time.localtime(newest["at"]))
    said = f"{newest['reason']}."
    if newest["decided"]:  # the line is short: what everybody knows is left out
        said = newest["message"].removeprefix(f"The agent of task {newest['task']} crashed: ")
    return one_line(f"CRASH{more}, {at}, task {newest['task']}: {said}", LONGEST)
