"""One task: what its agent says now, what happened, its runs, budgets, checkpoints and changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from holdfast.api.queries import Queries
from holdfast.interfaces.tui.feed import Watch
from holdfast.interfaces.tui.frame import View

Row = dict[str, Any]


class TaskView(View):
    ABOUT: ClassVar[str] = "task"
    NAME: ClassVar[str] = "task"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "Back")]

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.shown: Row | None = None
        super().__init__()

    def body(self) -> ComposeResult:
        yield Static(id="facts")

    def watches(self) -> Iterable[Watch]:
        yield Watch("task", self.read, self.seen)

    def read(self, queries: Queries) -> Row:
        return queries.task(self.task_id)

    def seen(self, task: Row) -> None:
        self.shown = task
        self.query_one("#facts", Static).update(Text(f"task {task['id']}  {task['state']}  {task['reason'] or ''}"))

    def subject(self) -> Row | None:
        return self.shown
