"""Named workers: what each does, which are benched and why, and how to start them again."""

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
    from holdfast.api.workers import workers

    return workers(queries.home)


COLUMNS = (
    Column("NAME", 12, lambda row: row["name"]),
    Column("STATE", 10, lambda row: row["state"]),
    Column("TASK", 10, lambda row: row["task"] or "-"),
    Column("WHY", 12, lambda row: row["reason"] or "", grow=True),
)


class WorkersView(View):
    ABOUT: ClassVar[str] = "worker"
    NAME: ClassVar[str] = "workers"

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, key="name")

    def watches(self) -> Iterable[Watch]:
        yield Watch("workers", read, self.seen)

    def seen(self, rows: list[Row]) -> None:
        self.query_one(Grid).show(rows)

    def subject(self) -> Row | None:
        return self.query_one(Grid).row
