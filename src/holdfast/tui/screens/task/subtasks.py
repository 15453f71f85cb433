"""The family page: the parent of a task, the tasks that it depends on, and its subtasks. Enter opens one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.message import Message
from textual.widget import Widget

from holdfast.api.queries import Queries
from holdfast.api.tasks.subtasks import list_relatives
from holdfast.tui.feed import Watch
from holdfast.tui.screens.task.page import Page
from holdfast.tui.widgets.grid import Column, Grid

if TYPE_CHECKING:
    from holdfast.api.tasks.models import Relative


class RelativesPage(Page):
    NAME: ClassVar[str] = "Family"
    KEY: ClassVar[str] = "y"
    HELP: ClassVar[str] = "its parent, the tasks that it needs, its subtasks"

    class Wanted(Message):
        """The message that the user wants to open a related task."""

        def __init__(self, task_id: str) -> None:
            super().__init__()
            self.task_id = task_id

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self._watch = Watch("family", self.read, self.seen)

    def compose(self) -> ComposeResult:
        columns: tuple[Column[Relative], ...] = (
            Column("WHAT", 15, lambda row: row["what"]),
            Column("ID", 10, lambda row: row["id"]),
            Column("STATE", 9, lambda row: row["state"]),
            Column("PROMPT", 16, lambda row: row["prompt"], grow=True),
            Column("WHY", 12, lambda row: row["reason"] or "", grow=True, spare=1),
        )
        yield Grid(columns, empty="It has no parent, needs no other task, and has no subtasks.")

    def watches(self) -> Sequence[Watch]:
        return (self._watch,)

    def to_focus(self) -> Widget:
        return self.query_one(Grid)

    def read(self, queries: Queries) -> object:
        return self.news(lambda: list_relatives(queries, self.task_id))

    def seen(self, found: list[Relative]) -> None:
        self.query_one(Grid).show(found)

    def on_grid_chosen(self, message: Grid.Chosen) -> None:
        message.stop()
        self.post_message(self.Wanted(message.row["id"]))
