"""The diff page: the changes of a task in colours, or the content of one of its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Static

from holdfast.api.queries import Queries
from holdfast.base.errors import HoldfastError
from holdfast.tui.feed import NOTHING_NEW, Watch
from holdfast.tui.screens.task.page import Page
from holdfast.tui.widgets.text_view import Paper, TextLine, make_printable

if TYPE_CHECKING:
    from holdfast.api.tasks.models import TaskDetails

MOST = 512 << 10  # bytes of a diff that are shown
MOST_LINES = 8000
EVERY = 20.0  # seconds between two comparisons while the agent works
SLOWLY = 20.0  # the next comparison waits at least this many times as long as git took
_STYLES = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}


class Compared(NamedTuple):
    """A diff as the page shows it, or the problem with it."""

    checkpoint: int | None
    task: str
    summary: str = ""
    text: str = ""
    is_cut: bool = False
    problem: str | None = None


class ChangesPage(Page):
    NAME: ClassVar[str] = "Diff"
    KEY: ClassVar[str] = "d"
    HELP: ClassVar[str] = "its changes against its base"

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self._watch = Watch("diff", self.read, self.seen, on_change=False, apart=True)
        self.checkpoint: int | None = None
        self._known: tuple[object, ...] = ()
        self._found: Compared | None = None

    def compose(self) -> ComposeResult:
        yield Static(classes="note")
        yield Paper(exact=True)

    def on_mount(self) -> None:
        self.note("git is comparing …")

    def watches(self) -> Sequence[Watch]:
        return (self._watch,)

    def to_focus(self) -> Widget:
        return self.query_one(Paper)

    def show_task(self, task: TaskDetails) -> None:
        """Compare again only if there may be something new, not at every event."""
        super().show_task(task)
        known = (
            self.checkpoint,
            task["state"],
            len(task["runs"]),
            len(task["checkpoints"]),
            task["workspace"]["state"],
        )
        if known != self._known:
            self._known = known
            self.look_again()

    def choose(self, checkpoint: int | None) -> None:
        if checkpoint != self.checkpoint:
            self.checkpoint = checkpoint
            self._found = None  # the page is cleared, so the next result is shown even if it was found before
            self.note("git is comparing …")
            self.query_one(Paper).write(())

    def read(self, queries: Queries) -> object:
        """Compare with git. This runs in a thread of its own, because git may take long."""
        from holdfast.api.work.diff import diff_for_screen

        began, checkpoint = time.monotonic(), self.checkpoint
        try:
            seen = diff_for_screen(queries, self.task_id, MOST, checkpoint)
            found = Compared(checkpoint, self.task_id, **seen)
            is_running = queries.state(self.task_id)["state"] == "running"
        except HoldfastError as error:
            found, is_running = Compared(checkpoint, self.task_id, problem=str(error)), False
        except OSError as error:
            words = f"The changes cannot be read: {error.strerror or error} ({error.filename or self.task_id})."
            found, is_running = Compared(checkpoint, self.task_id, problem=words), False
        took = time.monotonic() - began
        self._watch.every = max(EVERY, took * SLOWLY) if is_running else float("inf")
        if found == self._found:
            return NOTHING_NEW
        self._found = found
        return found

    def seen(self, found: Compared) -> None:
        if found.checkpoint != self.checkpoint:
            self.look_again()
            return
        self.note(describe_diff(found))
        self.query_one(Paper).write(diff_lines(found))


def describe_diff(found: Compared) -> str:
    what = "its changes" if found.checkpoint is None else f"checkpoint {found.checkpoint} (d: its changes now)"
    if found.problem is not None:
        return f"{what}: not available"
    told = found.summary.rpartition("\n")[2].strip() or "nothing changed"
    return f"{what}: {told}"


def diff_lines(found: Compared) -> list[TextLine]:
    if found.problem is not None:
        return [TextLine(make_printable(line)) for line in found.problem.split("\n")]
    if not found.summary and not found.text:
        return [TextLine("Nothing changed.")]
    told = [TextLine(make_printable(line)) for line in found.summary.split("\n")]
    rows = found.text.split("\n")
    shown = rows[:MOST_LINES]
    told += [TextLine(""), *_colour_rows(shown)]
    if found.is_cut or len(rows) > MOST_LINES:
        option = "" if found.checkpoint is None else f" --checkpoint {found.checkpoint}"
        told.append(
            TextLine(f"The rest is too long for a screen. `holdfast diff {found.task}{option}` shows it.", "bold")
        )
    return told


def _colour_rows(rows: list[str]) -> list[TextLine]:
    """Return the rows with colours.

    The first letter has a meaning only inside a hunk: a removed line may itself begin with two dashes.
    """
    made, in_hunk = [], False
    for row in rows:
        if row.startswith("diff --git "):
            in_hunk = False
        elif row.startswith("@@ "):
            in_hunk = True
        style = _STYLES.get(row[:1], "") if in_hunk else "bold"
        made.append(TextLine(make_printable(row), style))
    return made
