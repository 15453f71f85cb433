"""The page of saved work: the checkpoints of a task, and work that was salvaged from its workspaces."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, TypedDict

from textual.app import ComposeResult
from textual.message import Message
from textual.widget import Widget

from holdfast.tui.screens.task.page import Page
from holdfast.tui.widgets.grid import Column, Grid
from holdfast.tui.widgets.text_view import Paper, TextLine, split_lines

if TYPE_CHECKING:
    from holdfast.api.tasks.models import StageRow, TaskDetails


class SavedLine(TypedDict):
    """A checkpoint, or a salvage (`number` is None)."""

    ref: str
    number: int | None
    what: str
    at: float
    files: int
    commit: str
    why: str
    details: list[str]


class SavedPage(Page):
    NAME: ClassVar[str] = "Saved"
    KEY: ClassVar[str] = "v"
    HELP: ClassVar[str] = "its checkpoints, and work that was saved"

    class Wanted(Message):
        """The message that the user wants to see the content of a checkpoint."""

        def __init__(self, checkpoint: int) -> None:
            super().__init__()
            self.checkpoint = checkpoint

    def compose(self) -> ComposeResult:
        columns: tuple[Column[SavedLine], ...] = (
            Column("WHAT", 14, lambda row: row["what"]),
            Column("WHEN", 19, lambda row: time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["at"]))),
            Column("FILES", 6, lambda row: str(row["files"]), right=True, spare=1),
            Column("COMMIT", 12, lambda row: row["commit"][:12], spare=2),
            Column("WHY", 10, lambda row: row["why"], grow=True),
        )
        yield Grid(columns, key="ref", empty="No checkpoint is kept, and no work had to be saved.")
        yield Paper(id="kept").add_class("details")

    def to_focus(self) -> Widget:
        return self.query_one(Grid)

    def show_task(self, task: TaskDetails) -> None:
        super().show_task(task)
        self.query_one(Grid).show(list_saved(task))
        self._tell(self.query_one(Grid).row)

    def on_grid_moved(self, message: Grid.Moved) -> None:
        message.stop()
        self._tell(message.row)

    def on_grid_chosen(self, message: Grid.Chosen) -> None:
        message.stop()
        if message.row["number"] is not None:
            self.post_message(self.Wanted(message.row["number"]))

    def _tell(self, row: SavedLine | None) -> None:
        made = split_lines("\n".join(row["details"])) if row is not None else []
        if row is None and self.task_row is not None and self.task_row["workspace"]["strategy"] == "none":
            made = [TextLine("There are none: its agent works in your own checkout.")]
        self.query_one("#kept", Paper).write(made)


def _stage(stage: StageRow, index: int) -> str:
    names = stage["names"]
    return str(names[index] if 0 <= index < len(names) else index + 1)


def list_saved(task: TaskDetails) -> list[SavedLine]:
    """Return the checkpoints and salvages of the task, ordered by time."""
    found: list[SavedLine] = [
        {
            "ref": f"checkpoint {row['number']}",
            "number": row["number"],
            "what": f"checkpoint {row['number']}",
            "at": row["at"],
            "files": row["files"],
            "commit": row["commit"],
            "why": row["why"] + (", in part" if row["partial"] else ""),
            "details": [
                f"{row['files']} file(s) kept{' in part' if row['partial'] else ''}: {row['why']}"
                + (f", in stage {_stage(task['stage'], row['stage'])}" if task["stage"] is not None else ""),
                f"Enter shows it. `holdfast resume {task['id']} --checkpoint {row['number']}` goes back to it.",
            ],
        }
        for row in task["checkpoints"]
    ]
    found += [
        {
            "ref": row["ref"],
            "number": None,
            "what": "saved work",
            "at": row["created_at"],
            "files": row["files"],
            "commit": row["commit"],
            "why": row["reason"] + (", in part" if row["partial"] else ""),
            "details": [
                f"{row['files']} file(s) saved{' in part' if row['partial'] else ''}: {row['reason']}",
                f"`holdfast salvage restore {task['id']} --branch NAME` restores it.",
            ],
        }
        for row in task["salvages"]
    ]
    return sorted(found, key=lambda row: row["at"])
