"""Where tasks work: how large each is, what is preserved and until when, what is not ours."""

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
    return queries.workspaces()


COLUMNS = (
    Column("TASK", 10, lambda row: row["task"]),
    Column("STATE", 10, lambda row: row["state"]),
    Column("PATH", 12, lambda row: row["path"] or "-", grow=True),
)


class WorkspacesView(View):
    ABOUT: ClassVar[str] = "workspace"
    NAME: ClassVar[str] = "workspaces"

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, key="id")

    def watches(self) -> Iterable[Watch]:
        yield Watch("workspaces", read, self.seen)

    def seen(self, rows: list[Row]) -> None:
        self.query_one(Grid).show(rows)

    def subject(self) -> Row | None:
        return self.query_one(Grid).row
