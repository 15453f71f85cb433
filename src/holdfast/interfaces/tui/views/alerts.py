"""What needs a person: the critical first, what was recovered, and what to do."""

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
    return queries.alerts()


COLUMNS = (
    Column("ID", 5, lambda row: str(row["id"])),
    Column("LEVEL", 9, lambda row: row["level"]),
    Column("TASK", 10, lambda row: row["task"] or "-"),
    Column("WHAT", 12, lambda row: row["message"], grow=True),
)


class AlertsView(View):
    ABOUT: ClassVar[str] = "alert"
    NAME: ClassVar[str] = "alerts"

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, key="id")

    def watches(self) -> Iterable[Watch]:
        yield Watch("alerts", read, self.seen)

    def seen(self, rows: list[Row]) -> None:
        self.query_one(Grid).show(rows)

    def subject(self) -> Row | None:
        return self.query_one(Grid).row
