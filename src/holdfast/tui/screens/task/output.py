"""What the agent says and does: live, and as far back as it is kept; of any run, and of any member of a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from holdfast.cli.output.render import size
from holdfast.tui.feed import Watch
from holdfast.tui.screens.task.page import Page, Row
from holdfast.tui.screens.task.reader import Batch, Choice, Reader
from holdfast.tui.widgets.text_view import Line, Paper

EVERY = 0.2  # seconds between two looks at a log that may grow: no event tells of it


class OutputPage(Page):
    NAME: ClassVar[str] = "Output"
    KEY: ClassVar[str] = "o"
    HELP: ClassVar[str] = "what its agent says and does"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "Follow", tooltip="stay at the end of the output, or stop there", show=False),
        Binding("comma", "other_run(-1)", "Earlier run", tooltip="the output of the run before", show=False),
        Binding("full_stop", "other_run(1)", "Later run", tooltip="the output of the run behind", show=False),
        Binding("E", "errors", "Errors", tooltip="its standard error, or its output again", show=False),
    ]

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.reader = Reader()
        self._watch = Watch("output", self.reader.read, self.seen, every=EVERY, on_change=False)
        self._chosen: str | None = None  # a run that somebody wants to see; None: the last one
        self._errors = False
        self._batch: Batch | None = None

    def compose(self) -> ComposeResult:
        yield Static(classes="note")
        yield Paper(follows=True)

    @property
    def paper(self) -> Paper:
        return self.query_one(Paper)

    def watches(self) -> Sequence[Watch]:
        return (self._watch,)

    def to_focus(self) -> Widget:
        return self.paper

    # -- whose output --------------------------------------------------------------------------------------------------

    def show_task(self, task: Row) -> None:
        super().show_task(task)
        self._choose()

    def choose(self, run_id: str | None) -> None:
        self._chosen = run_id
        self._follow(follows=True)
        self._choose()

    def run(self) -> Row | None:
        runs = [] if self.task_row is None else self.task_row["runs"]
        shown = self.reader.choice
        for run in runs:
            if run["id"] == self._chosen:
                return dict(run)
        if shown is not None and not self.paper.follows:  # who reads is not taken elsewhere
            for run in runs:
                if run["id"] == shown.run_id:
                    return dict(run)
        return dict(runs[-1]) if runs else None

    def _choose(self) -> None:
        run, task = self.run(), self.task_row
        if run is None or task is None:
            self._say()
            return
        choice = Choice(
            run["id"],
            run["agent"] or task["agent"],
            run["number"],
            run["outcome"] is not None,
            self._errors,
            task["time_zone"],
        )
        if choice != self.reader.choice:
            self.reader.choice = choice
            self.look_again()
        self._say()

    def action_other_run(self, by: int) -> None:
        runs = [] if self.task_row is None else self.task_row["runs"]
        shown = self.run()
        if shown is None:
            return
        at = [run["id"] for run in runs].index(shown["id"])
        wanted = max(0, min(at + by, len(runs) - 1))
        self.choose(None if wanted == len(runs) - 1 else runs[wanted]["id"])

    def action_errors(self) -> None:
        self._errors = not self._errors
        self._follow(follows=True)
        self._choose()

    # -- following and going back --------------------------------------------------------------------------------------

    def _follow(self, *, follows: bool) -> None:
        self.paper.follows = self.reader.follows = follows
        self._say()

    def action_follow(self) -> None:
        if self.paper.follows:
            self._follow(follows=False)
        else:
            self.paper.action_last()

    def on_paper_scrolled(self, message: Paper.Scrolled) -> None:
        message.stop()
        batch = self._batch
        if batch is None:
            return
        if message.at_first and not batch.is_first:
            self._follow(follows=False)
            self._wish("oldest" if message.jumped else "earlier")
        elif message.at_last and (message.jumped or batch.below == 0):
            self._follow(follows=True)
            self._wish("newest" if batch.below else "later")
            self.paper.append((), batch.begun)
        elif message.at_last:
            self._wish("later")
        else:
            self._follow(follows=False)

    def _wish(self, wish: str) -> None:
        self.reader.wish = wish
        self.look_again()

    # -- what was read -------------------------------------------------------------------------------------------------

    def seen(self, batch: Batch) -> None:
        if self.reader.choice is None or batch.choice.source != self.reader.choice.source:
            return  # somebody chose another run meanwhile
        self._batch = batch
        paper = self.paper
        if batch.how == "write":
            paper.write(())
        if batch.drop_first:
            paper.drop_first(batch.drop_first)
        if batch.drop_last:
            paper.drop_last(batch.drop_last)
        if batch.how == "prepend":
            paper.prepend(batch.lines)
            paper.append((), batch.begun)
        else:
            paper.append(batch.lines, batch.begun)
        if batch.below and paper.follows:
            self._watch.go_on()  # it comes in pieces
        self._say()

    def _say(self) -> None:
        run, task = self.run(), self.task_row
        if run is None or task is None:
            self.paper.write(
                [Line("There is no run yet: nothing was said. What it waits for is on the page Info (i).")]
            )
            self.note("no run yet")
            return
        words = [f"{'standard error of ' if self._errors else ''}run {run['number']} of {len(task['runs'])}"]
        words += ["/".join(filter(None, (run["stage"], run["member"])))] if run["stage"] else []
        words += [f"{run['outcome']}: {run['reason']}" if run["outcome"] else str(run["state"])]
        self.note("  ".join([self._where(), *words]))

    def _where(self) -> str:
        batch = self._batch
        if batch is not None and batch.is_gone:
            return "gone: `retention.runs` says how long it is kept;"
        if self.paper.follows:
            return "following" if self.paper.length or batch is None else "following; it has said nothing yet;"
        return f"{size(batch.below)} below, G follows;" if batch is not None and batch.below else "G follows;"
