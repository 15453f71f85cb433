"""The fleet: every task with its state, what it costs, its last sign of life, and why it waits."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, ClassVar

from textual.app import ComposeResult

from holdfast.api.queries import Queries
from holdfast.interfaces.tui.feed import Watch
from holdfast.interfaces.tui.frame import View
from holdfast.interfaces.tui.grid import Cell, Column, Grid

Row = dict[str, Any]
RECENT = 3600.0  # failures stay for an hour


def read_fleet(queries: Queries) -> list[Row]:
    return queries.tasks(everything=False, recent=time.time() - RECENT)


COLUMNS = (
    Column("ID", 10, lambda row: row["id"]),
    Column("STATE", 9, lambda row: Cell(row["state"])),
    Column("AGENT", 9, lambda row: row["agent"], spare=2),
    Column("PROMPT", 12, lambda row: row["prompt"], grow=True, spare=1),
    Column("WHY", 12, lambda row: row["held"] or row["reason"] or "", grow=True),
)


class FleetView(View):
    ABOUT: ClassVar[str] = "task"
    NAME: ClassVar[str] = "fleet"

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, empty="No tasks. `holdfast add` queues one.")

    def watches(self) -> Iterable[Watch]:
        yield Watch("fleet", read_fleet, self.seen)

    def seen(self, rows: list[Row]) -> None:
        self.query_one(Grid).show(rows)

    def subject(self) -> Row | None:
        return self.query_one(Grid).row

    def on_grid_chosen(self, message: Grid.Chosen) -> None:
        self.top.open_task(message.row["id"])
