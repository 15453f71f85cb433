"""The runs page: for each run of a task its worker, its outcome and its cost. Enter shows the output of a run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.message import Message
from textual.widget import Widget

from holdfast.api.format import duration
from holdfast.tui.screens.task.page import Page
from holdfast.tui.widgets.grid import Cell, Column, Grid
from holdfast.tui.widgets.text_view import Paper, TextLine, split_lines

if TYPE_CHECKING:
    from holdfast.api.tasks.models import RunRow, TaskDetails


class RunsPage(Page):
    NAME: ClassVar[str] = "Runs"
    KEY: ClassVar[str] = "t"
    HELP: ClassVar[str] = "its runs: who worked, how each ended, what it took"

    class Wanted(Message):
        """The message that the user wants to see the output of a run."""

        def __init__(self, run_id: str) -> None:
            super().__init__()
            self.run_id = run_id

    def compose(self) -> ComposeResult:
        columns: tuple[Column[RunRow], ...] = (
            Column("RUN", 4, lambda run: str(run["number"]), right=True),
            Column("STAGE", 14, lambda run: "/".join(filter(None, (run["stage"], run["member"]))) or "-", spare=3),
            Column("HOW", 14, _outcome_cell),
            Column("STARTED", 8, _started, spare=2),
            Column("FOR", 7, _duration_text, spare=1, right=True),
            Column("TOOK", 9, _cost, spare=4, right=True),
            Column("WHY", 10, lambda run: run["reason"] or run["stop_why"] or "", grow=True),
        )
        yield Grid(columns, empty="There is no run yet.")
        yield Paper(id="run").add_class("details")

    def to_focus(self) -> Widget:
        return self.query_one(Grid)

    def show_task(self, task: TaskDetails) -> None:
        super().show_task(task)
        grid = self.query_one(Grid)
        was_last = grid.row is None or grid.row is grid.rows[-1]
        grid.show(task["runs"])
        if was_last:
            grid.action_go(-1)
        self._tell(grid.row)

    def on_grid_moved(self, message: Grid.Moved) -> None:
        message.stop()
        self._tell(message.row)

    def on_grid_chosen(self, message: Grid.Chosen) -> None:
        message.stop()
        self.post_message(self.Wanted(message.row["id"]))

    def _tell(self, run: RunRow | None) -> None:
        self.query_one("#run", Paper).write(run_lines(run, self.task_row) if run and self.task_row else ())


def _outcome_cell(run: RunRow) -> Cell:
    if run["outcome"] is None:
        return Cell(run["state"], "blue")
    return Cell(run["outcome"], "green" if run["outcome"] == "completed" else "red")


def _started(run: RunRow) -> str:
    return time.strftime("%H:%M:%S", time.localtime(run["started_at"])) if run["started_at"] else "-"


def _duration_text(run: RunRow) -> str:
    if not run["started_at"]:
        return "-"
    return duration(max(0.0, run["ended_at"] - run["started_at"])) if run["ended_at"] else "…"


def _cost(run: RunRow) -> str:
    from holdfast.api.format import money

    if run["cost_usd"] is not None:
        return money(run["cost_usd"])
    return f"{run['tokens']} tok" if run["tokens"] else "-"


def run_lines(run: RunRow, task: TaskDetails) -> list[TextLine]:
    from holdfast.api.fleet.alerts import crash_line
    from holdfast.api.tasks.usage import run_details as usage

    worker = f"  worker {run['worker']}" if run["worker"] else ""
    how = f"{run['outcome']}: {run['reason']}" if run["outcome"] else f"{run['state']}, pid {run['pid'] or '-'}"
    told = [TextLine(f"run {run['number']}  {run['id']}{worker}", "bold"), *split_lines(how)]
    for words in usage(run):
        told += split_lines(words)
    if run["progress"] is not None:
        percent, message = run["progress"]["percent"], run["progress"]["message"]
        shares = [f"{percent:g} %"] if percent is not None else []
        told += split_lines("its agent reported " + ": ".join([*shares, *([message] if message else [])]))
    for crash in task["crashes"]:
        if crash["run"] == run["id"]:
            told += split_lines(crash_line(crash))
    if run["error_tail"]:
        told += [
            TextLine("the last words on its standard error:"),
            *split_lines(run["error_tail"].rstrip(), indent="  "),
        ]
    return told
