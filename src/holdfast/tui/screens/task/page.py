"""The base of the pages of a task's screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Static

from holdfast.base.errors import NotFound
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.widgets.text_view import make_printable

if TYPE_CHECKING:
    from holdfast.api.tasks.models import TaskDetails


class Page(Vertical):
    """Base of a page. The feed reads only for the open page. `task_row` is the newest row of the task."""

    NAME: ClassVar[str] = ""
    KEY: ClassVar[str] = ""
    HELP: ClassVar[str] = ""
    DEFAULT_CSS = """
    Page { height: 1fr; display: none; }
    Page.-open { display: block; }
    Page > .note { height: 1; text-wrap: nowrap; text-overflow: ellipsis; text-style: dim; }
    Page > .details { height: auto; max-height: 40%; border-top: solid $panel; }
    """

    def __init__(self, task_id: str) -> None:
        super().__init__(id=f"page-{self.NAME.lower()}")
        self.task_id = task_id
        self.task_row: TaskDetails | None = None
        self._found: object = None

    def watches(self) -> Sequence[Watch]:
        """Return the watches of the page, the same objects each time."""
        return ()

    def to_focus(self) -> Widget:
        """Return the widget that gets the keys."""
        raise NotImplementedError

    def show_task(self, task: TaskDetails) -> None:
        """Show the task. Called when the task has changed, and when this page is opened."""
        self.task_row = task

    def news(self, find: Callable[[], object]) -> object:
        """Return the result of `find` if it differs from before, otherwise NOTHING_NEW.

        If the task is gone, NOTHING_NEW is returned too: the heading of the screen reports it.
        """
        try:
            found = find()
        except NotFound:
            return NOTHING_NEW
        if found == self._found:
            return NOTHING_NEW
        self._found = found
        return found

    def note(self, words: str) -> None:
        """Show the words on the line above the page."""
        self.query_one(".note", Static).update(Text(make_printable(words)))

    def look_again(self) -> None:
        """Read the content of this page again."""
        for watch in self.watches():
            watch.again()
        self.app.feed.look()  # type: ignore[attr-defined]
