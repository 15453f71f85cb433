"""The events page: the events of a task, and below them the full event under the cursor."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.widget import Widget

from holdfast.api.queries import Queries
from holdfast.tui.colours import LEVELS
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.screens.task.page import Page
from holdfast.tui.widgets.grid import Cell, Column, Grid
from holdfast.tui.widgets.text_view import Paper, TextLine, split_lines

if TYPE_CHECKING:
    from holdfast.api.home.models import EventRow

AT_FIRST = 500  # events; more are read when the user goes back to the first one
AT_ONCE = 1000  # events in one reading


class TimelinePage(Page):
    NAME: ClassVar[str] = "Events"
    KEY: ClassVar[str] = "e"
    HELP: ClassVar[str] = "what happened to it, one by one"

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self._watch = Watch("timeline", self.read, self.seen)
        self.wanted = AT_FIRST
        self._have = 0  # the value of `wanted` at the last full reading; used by the feed's thread only
        self._seq = 0
        self._rows: list[EventRow] = []

    def compose(self) -> ComposeResult:
        columns: tuple[Column[EventRow], ...] = (
            Column("TIME", 8, _time),
            Column("EVENT", 20, lambda event: Cell(event["kind"], LEVELS.get(event["level"], ""))),
            Column("LEVEL", 8, lambda event: event["level"], spare=1),
            Column("WHAT", 20, lambda event: event["message"], grow=True),
        )
        yield Grid(columns, key="seq", empty="Nothing happened yet.")
        yield Paper(id="event").add_class("details")

    def watches(self) -> Sequence[Watch]:
        return (self._watch,)

    def to_focus(self) -> Widget:
        return self.query_one(Grid)

    def read(self, queries: Queries) -> object:
        """Read the events. After the first full reading, read only new events."""
        wanted = self.wanted
        if self._have == wanted and self._seq:
            events = queries.events(after=self._seq - 1, task_id=self.task_id, limit=AT_ONCE)
            if events and events[0]["seq"] == self._seq:
                self._seq = events[-1]["seq"]
                if len(events) == AT_ONCE:
                    self._watch.again()
                return (False, events[1:]) if len(events) > 1 else NOTHING_NEW
            # The last known event is gone: the store was restored from a backup, or retention deleted the event.
        events = queries.last_events(task_id=self.task_id, limit=wanted)
        if not events and self._have:
            return NOTHING_NEW  # the task was purged: the events on screen stay
        self._have, self._seq = wanted, events[-1]["seq"] if events else 0
        return (True, events)

    def seen(self, found: tuple[bool, list[EventRow]]) -> None:
        is_all, events = found
        grid = self.query_one(Grid)
        was_last = not self._rows or (grid.row is not None and grid.row["seq"] == self._rows[-1]["seq"])
        self._rows = events if is_all else [*self._rows, *events]
        grid.show(self._rows)
        if was_last:
            grid.action_go(-1)
        self._tell(grid.row)

    def on_grid_moved(self, message: Grid.Moved) -> None:
        message.stop()
        self._tell(message.row)
        is_first = message.row is not None and bool(self._rows) and message.row["seq"] == self._rows[0]["seq"]
        if is_first and len(self._rows) >= self.wanted:
            self.wanted *= 4
            self.look_again()

    def on_grid_chosen(self, message: Grid.Chosen) -> None:
        message.stop()
        self.query_one("#event", Paper).focus()  # so that the user can scroll in a long event

    def _tell(self, event: EventRow | None) -> None:
        self.query_one("#event", Paper).write(event_lines(event) if event is not None else ())


def _time(event: EventRow) -> str:
    return time.strftime("%H:%M:%S", time.localtime(event["at"]))


def event_lines(event: EventRow) -> list[TextLine]:
    at = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(event["at"]))
    told = [TextLine(f"{event['kind']}  {event['level']}  {at}", "bold"), *split_lines(event["message"])]
    if event["reason"] and event["reason"] not in event["message"]:
        told += split_lines(f"because: {event['reason']}")
    for name, value in event["data"].items():
        told += split_lines(f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
    return told
