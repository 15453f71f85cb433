"""The results page: answers, rulings, gates and changed files of the stages of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.widget import Widget

from holdfast.api.queries import Queries
from holdfast.tui.feed import Watch
from holdfast.tui.screens.task.page import Page
from holdfast.tui.widgets.text_view import Line, Paper, lines_of

if TYPE_CHECKING:
    from holdfast.api.tasks.models import ResultsRow, StageResult

MOST_NAMES = 20  # of changed files
LONGEST = 64 * 1024  # characters of one answer


class StagesPage(Page):
    NAME: ClassVar[str] = "Results"
    KEY: ClassVar[str] = "n"
    HELP: ClassVar[str] = "what its stages answered, their gates, files they changed"

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self._watch = Watch("results", self.read, self.seen)

    def compose(self) -> ComposeResult:
        yield Paper()

    def watches(self) -> Sequence[Watch]:
        return (self._watch,)

    def to_focus(self) -> Widget:
        return self.query_one(Paper)

    def read(self, queries: Queries) -> object:
        from holdfast.api.tasks.results import results

        return self.news(lambda: results(queries, self.task_id))

    def seen(self, found: ResultsRow) -> None:
        self.query_one(Paper).write(lines(found))


def lines(found: ResultsRow) -> list[Line]:
    from holdfast.api.tasks.results import headings, in_words

    if not found["stages"]:
        return [Line("No stage has ended yet: there is no result.")]
    made: list[Line] = []
    for counted in found["members"]:
        made += lines_of(f"members of {counted['name']}: {in_words(counted)}")
    for name, stage in zip(headings(found["stages"]), found["stages"], strict=True):
        made += [*([Line("")] if made else []), *_stage(name, stage)]
    return made


def _stage(name: str, stage: StageResult) -> list[Line]:
    from holdfast.api.format import duration
    from holdfast.api.tasks.results import why_not

    began, ended = stage["started_at"], stage["ended_at"]
    spent = f"  {duration(max(0.0, ended - began))}" if began is not None and ended is not None else ""
    ruling = f" ({stage['ruling']})" if stage["ruling"] else ""
    colour = "bold green" if stage["passed"] else "bold red"
    made = lines_of(f"{name}  {stage['agent']}  {stage['outcome']}{ruling}{spent}", colour)
    if not stage["passed"]:
        made += lines_of(f"It did not pass: {why_not(stage)}", indent="  ")
    made += _text(stage["text"] or "(no answer)", "  ")
    if stage["gate"] is not None:
        colour = "green" if stage["gate"]["passed"] else "red"
        made += lines_of(f"gate `{stage['gate']['command']}`: {stage['gate']['how']}", colour, indent="  ")
        made += _text(stage["gate"]["output"], "    ")
    for file in stage["files"][:MOST_NAMES]:
        made += lines_of(f"changed {file}", indent="  ")
    left = len(stage["files"]) - MOST_NAMES
    return [*made, Line(f"  and {left} more changed file(s)")] if left > 0 else made


def _text(text: str, indent: str) -> list[Line]:
    made = lines_of(text[:LONGEST].rstrip(), indent=indent)
    left = len(text) - LONGEST
    return [*made, Line(f"{indent}… [{left} more characters]")] if left > 0 else made
