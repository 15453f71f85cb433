"""The schedules screen: when each schedule fires next and fired last, in its own time zone, and its problems."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.text import Text

from holdfast.api.fleet import schedules as schedule_text
from holdfast.api.format import describe_moment
from holdfast.api.queries import Queries
from holdfast.base.text import one_line
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.widgets.details import Sheet
from holdfast.tui.widgets.grid import Cell, Column, Grid
from holdfast.tui.widgets.list_screen import OrderedListing

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import FireRow, ScheduleLine

FILES_EVERY = 5.0  # seconds: schedule files change without an event
NEXT, LAST = 5, 8  # how many coming and past firings the details list
NO_SUPERVISOR = "No supervisor is running, so nothing fires (U starts one)."


class SchedulesContent(NamedTuple):
    """The content of the screen, as the feed read it."""

    rows: list[ScheduleLine]
    problems: dict[str, str]  # schedule file → why it is not used


class Times(NamedTuple):
    """The firings of the schedule under the cursor."""

    key: str
    coming: list[float]
    fires: list[FireRow]


def read_schedules(queries: Queries) -> SchedulesContent:
    from holdfast.api.fleet.schedules import schedule_rows

    rows, problems = schedule_rows(queries.home)
    return SchedulesContent([{**row, "key": f"{row['repo']}:{row['name']}"} for row in rows], problems)


def _state(row: ScheduleLine) -> Cell:
    if row["trouble"] or row["problem"]:
        return Cell("trouble", "bold red")
    word = schedule_text.describe_state(row)
    return Cell(word, {"enabled": "green", "disabled": "dim"}.get(word, "yellow"))


class SchedulesView(OrderedListing):
    ABOUT: ClassVar[str] = "schedule"
    NAME: ClassVar[str] = "schedules"
    EMPTY: ClassVar[str] = "No schedules. How to write one: `holdfast help schedules`."
    COLUMNS: ClassVar[tuple[Column[ScheduleLine], ...]] = (
        Column("SCHEDULE", 12, lambda row: row["name"], grow=True),
        Column("STATE", 8, _state),
        Column("NEXT", 26, schedule_text.following, grow=True),
        Column("LAST", 24, schedule_text.describe_last_fire, grow=True, spare=1),
        Column("WHEN", 20, lambda row: f"{row['words']}, {row['timezone']}", grow=True, spare=3),
        Column("REPO", 12, lambda row: row["repo"].rpartition("/")[2], spare=2),
    )
    ORDERS: ClassVar[Mapping[str, Callable[[ScheduleLine], Any]]] = {
        "the next": lambda row: (row["next_fire"] or math.inf, row["key"]),
        "by name": lambda row: (row["name"], row["repo"]),
        "those in trouble": lambda row: (not (row["trouble"] or row["problem"]), row["key"]),
    }

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.times: Times | None = None
        self._last: SchedulesContent | None = None
        self._pointed: ScheduleLine | None = None  # the row with the cursor, for the feed's thread
        super().__init__()

    def watches(self) -> Iterable[Watch]:
        yield Watch("schedules", self._read, self.seen, every=FILES_EVERY, gap=0.5, apart=True)
        self._of_one = Watch("times of a schedule", self._read_times, self._seen_times, every=60, gap=0.2, apart=True)
        yield self._of_one

    # -- in threads of the feed ----------------------------------------------------------------------------------------

    def _read(self, queries: Queries) -> object:
        seen = read_schedules(queries)
        return NOTHING_NEW if seen == self._last else seen

    def _read_times(self, queries: Queries) -> object:
        from holdfast.api.fleet.schedules import fires_of, upcoming

        row = self._pointed
        if row is None:
            return NOTHING_NEW
        coming = upcoming(row, NEXT) if row["enabled"] else []
        return Times(row["key"], coming, fires_of(queries, row, LAST))

    # -- in the app's thread -------------------------------------------------------------------------------------------

    def seen(self, seen: SchedulesContent) -> None:
        self._last, self.problems = seen, seen.problems
        self.take(seen.rows)

    def _seen_times(self, times: Times) -> None:
        self.times = times
        self.tell()

    def tell(self) -> None:
        row = self.query_one(Grid).row
        if row is not self._pointed:
            self._pointed = row
            self._of_one.again()
            self.top.feed.look()
        super().tell()

    def summary(self, shown: Sequence[ScheduleLine]) -> str:
        rows = self.rows or []
        enabled = sum(row["enabled"] for row in rows)
        words = [f"{enabled} of {len(rows)} enabled"]
        status = self.top.status
        if enabled and status is not None and status["supervisor"]["state"] == "none":
            words.append(NO_SUPERVISOR.rstrip("."))
        words += [f"not taken: {problem}" for problem in self.problems.values()]
        return "; ".join(words)

    def sheet_of(self, row: ScheduleLine) -> Text:
        made, zone = Sheet(), row["timezone"]
        made.line(f"{row['name']}: {row['words']}, {zone}", "bold")
        for name, value in schedule_text.schedule_facts(row).items():
            made.fact(name.capitalize(), value, "bold red" if name in ("trouble", "file") else "")
        times = self.times
        if times is not None and times.key == row["key"]:
            made.fact("Next", "; ".join(describe_moment(moment, zone) for moment in times.coming))
            for one in times.fires:
                made.fact("Fired", schedule_text.describe_fire(one, zone))
        return made.text

    def on_grid_chosen(self, message: Grid.Chosen) -> None:
        message.prevent_default()  # here `task` is the template of the tasks to queue, not the id of a task
        row = message.row
        if row["last_task"] and row["last_task_state"]:
            self.top.open_task(row["last_task"])
        else:
            self.notify(f"{one_line(row['name'], 60)} has no task to open; f fires it now.")
