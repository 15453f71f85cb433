"""The banner of every screen, even above dialogs: open critical alerts, and below them the last agent that died.

A critical alert stays until the user acknowledges it or it is over. A death stays for a minute. The alerts are read in
the feed's thread. The terminal bell rings once for each new alert.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from holdfast.api.fleet.alerts import (
    Episode,
    critical,
    deaths,
    read_critical_mark,
    read_rung_alerts,
    record_rung_alerts,
)
from holdfast.api.queries import Queries
from holdfast.base.dataclass import dataclass
from holdfast.base.text import one_line
from holdfast.tui.feed import NOTHING_NEW, Watch

if TYPE_CHECKING:
    from holdfast.api.fleet.models import AlertRow, CriticalMark, DeathRow

NEWS_FOR = 60.0  # seconds that the death of an agent stays on screen
LOOK_EVERY = 10.0  # seconds; also without a change in the store, because deaths leave the screen after NEWS_FOR
MOST_NEWS = 50  # deaths


@dataclass(frozen=True)
class Pressing:
    """The content of the banner at one moment."""

    count: int = 0  # open critical alerts
    newest: tuple[AlertRow, ...] = ()  # the newest of these alerts, newest first
    deaths: tuple[DeathRow, ...] = ()  # recent deaths of agents, newest first
    rings: bool = field(default=False, compare=False)  # one of the alerts is new


class Attention:
    """The reader of critical alerts and deaths, and the ringer of the bell.

    `changed` is called in the app's thread when the banner has something new to show.
    `ring` is called once per episode of an alert, even if the user leaves `top` and opens it again in the meantime.
    """

    def __init__(self, home: str, *, ring: Callable[[], None] | None, changed: Callable[[], None]) -> None:
        self._home, self._ring, self._changed = home, ring, changed
        self.now = Pressing()
        self.watch = Watch("attention", self._read, self._seen, every=LOOK_EVERY)
        # Only the feed's thread uses the attributes below.
        self._mark: CriticalMark | None = None
        self._critical: tuple[list[Episode], list[AlertRow]] = ([], [])
        self._after: int | None = None
        self._news: dict[str, tuple[float, DeathRow]] = {}  # by run: when the death was read, and its row
        self._rung: frozenset[Episode] | None = None
        self._looked_at: list[Episode] | None = None

    def _read(self, queries: Queries) -> object:
        mark = read_critical_mark(queries)
        if mark != self._mark:
            self._critical, self._mark = critical(queries), mark
        opened, newest = self._critical
        read = Pressing(len(opened), tuple(newest), self._read_deaths(queries, newest), self._is_new(opened))
        return NOTHING_NEW if read == self.now and not read.rings else read

    def _read_deaths(self, queries: Queries, alerts: list[AlertRow]) -> tuple[DeathRow, ...]:
        """Return recent deaths of agents, without deaths that an alert is about."""
        now = time.monotonic()
        if self._after is None:
            self._after = queries.last_seq()
        self._after, found = deaths(queries, self._after)
        for death in found:
            self._news.pop(death["run"], None)
            self._news[death["run"]] = (now, death)
        told = {alert["task"] for alert in alerts}
        kept = [
            (run, (at, death))
            for run, (at, death) in self._news.items()
            if now - at < NEWS_FOR and death["task"] not in told
        ]
        self._news = dict(kept[-MOST_NEWS:])
        return tuple(death for _at, death in reversed(self._news.values()))

    def _is_new(self, opened: list[Episode]) -> bool:
        if self._ring is None:
            return False
        if self._rung is None:
            self._rung = read_rung_alerts(self._home)
        fresh = () if opened is self._looked_at else set(opened) - self._rung
        self._looked_at = opened
        if fresh:
            self._rung = frozenset(opened)
            record_rung_alerts(self._home, self._rung)
        return bool(fresh)

    def _seen(self, pressing: Pressing) -> None:
        if pressing.rings and self._ring is not None:
            self._ring()
        if pressing != self.now:
            self.now = pressing
            self._changed()


LONGEST = 1000  # characters: more than fit into a line of any terminal


class Line(Static):
    """A line of the banner. It is hidden while it has no text."""

    said = ""

    def say(self, words: str) -> None:
        if words != self.said:  # the same text is not drawn again
            self.said = words
            self.set_class(bool(words), "-shown")
            self.update(Text(words))


class Banner(Vertical):
    """The banner: one line for critical alerts, one for deaths. The alerts screen has the whole text."""

    DEFAULT_CSS = """
    Banner { display: none; height: auto; max-height: 2; background: $panel; text-style: bold; }
    Banner.-shown { display: block; }
    Banner Line { display: none; width: 100%; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    Banner .-shown { display: block; }
    Banner #critical { color: $text-error; }
    Banner #deaths { color: $text-warning; }
    """

    def compose(self) -> ComposeResult:
        yield Line(id="critical")
        yield Line(id="deaths")

    def on_mount(self) -> None:
        """Show the present alerts. The screen may be newer than the last reading."""
        self.call_after_refresh(self.show, self.app.attention.now)  # type: ignore[attr-defined]  # of Top

    def show(self, pressing: Pressing) -> None:
        if not self.is_attached or not (lines := list(self.query(Line))):
            return  # not composed yet: on_mount shows the alerts then
        critical, deaths = describe_critical(pressing), describe_death(pressing)
        lines[0].say(critical)
        lines[1].say(deaths)
        self.set_class(bool(critical or deaths), "-shown")


def describe_critical(pressing: Pressing) -> str:
    """Return the text about critical alerts. The hint comes first, because a long text is cut at its end."""
    if not pressing.newest:
        return ""
    newest = pressing.newest[0]
    more = f" and {pressing.count - 1} more" if pressing.count > 1 else ""
    return one_line(f"CRITICAL{more} (3: alerts): {newest['message']} {newest['remedy']}", LONGEST)


def describe_death(pressing: Pressing) -> str:
    if not pressing.deaths:
        return ""
    newest = pressing.deaths[0]
    more = f" and {len(pressing.deaths) - 1} more" if len(pressing.deaths) > 1 else ""
    at = time.strftime("%H:%M:%S", time.localtime(newest["at"]))
    said = f"{newest['reason']}."
    if newest["decided"]:  # the line is short: leave out the words that the rest of the line repeats
        said = newest["message"].removeprefix(f"The agent of task {newest['task']} crashed: ")
    return one_line(f"CRASH{more}, {at}, task {newest['task']}: {said}", LONGEST)
