"""Work by the clock: when each schedule fired last, and when it fires next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from textual.app import ComposeResult

from holdfast.api.queries import Queries
from holdfast.interfaces.tui.feed import Watch
from holdfast.interfaces.tui.frame import View
from holdfast.interfaces.tui.grid import Column, Grid

Row = dict[str, Any]


def read(queries: Queries) -> list[Row]:
    return queries.view("schedules")


COLUMNS = (Column("NAME", 12, lambda row: row["name"], grow=True),)


class SchedulesView(View):
    ABOUT: ClassVar[str] = "schedule"
    NAME: ClassVar[str] = "schedules"

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, key="name")

    def watches(self) -> Iterable[Watch]:
        yield Watch("schedules", read, self.seen)

    def seen(self, rows: list[Row]) -> None:
        self.query_one(Grid).show(rows)

    def subject(self) -> Row | None:
        return self.query_one(Grid).row
