"""The results page: answers, rulings, gates and changed files of the stages of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.widget import Widget

from holdfast.api.queries import Queries
from holdfast.tui.feed import Watch
from holdfast.tui.screens.task.page import Page
from holdfast.tui.widgets.text_view import Paper, TextLine, split_lines

if TYPE_CHECKING:
    from holdfast.api.tasks.models import ResultsRow, StageResultRow

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
        from holdfast.api.tasks.results import read_results

        return self.news(lambda: read_results(queries, self.task_id))

    def seen(self, found: ResultsRow) -> None:
        self.query_one(Paper).write(result_lines(found))


def result_lines(found: ResultsRow) -> list[TextLine]:
    from holdfast.api.tasks.results import describe_decision, describe_members, pair_decisions, stage_headings

    if not found["stages"]:
        return [TextLine("No stage has ended yet: there is no result.")]
    made: list[TextLine] = []
    for counted in found["members"]:
        made += split_lines(f"members of {counted['name']}: {describe_members(counted)}")
    for name, stage, decided in zip(
        stage_headings(found["stages"]), found["stages"], pair_decisions(found), strict=True
    ):
        made += [*([TextLine("")] if made else []), *_stage(name, stage)]
        for one in decided:
            made += split_lines(f"{describe_decision(one)}{':' if one['changes'] else '.'}", "bold", indent="  ")
            made += _text(one["changes"] or "", "    ")
    return made


def _stage(name: str, stage: StageResultRow) -> list[TextLine]:
    from holdfast.api.format import duration
    from holdfast.api.tasks.results import describe_end, why_not_passed

    began, ended = stage["started_at"], stage["ended_at"]
    spent = f"  {duration(max(0.0, ended - began))}" if began is not None and ended is not None else ""
    colour = "bold green" if stage["passed"] else "bold red"
    made = split_lines(f"{name}  {stage['agent']}  {describe_end(stage)}{spent}", colour)
    if not stage["passed"]:
        made += split_lines(f"It did not pass: {why_not_passed(stage)}", indent="  ")
    made += _text(stage["text"] or "(no answer)", "  ")
    if stage["gate"] is not None:
        colour = "green" if stage["gate"]["passed"] else "red"
        made += split_lines(f"gate `{stage['gate']['command']}`: {stage['gate']['how']}", colour, indent="  ")
        made += _text(stage["gate"]["output"], "    ")
    for file in stage["files"][:MOST_NAMES]:
        made += split_lines(f"changed {file}", indent="  ")
    left = len(stage["files"]) - MOST_NAMES
    return [*made, TextLine(f"  and {left} more changed file(s)")] if left > 0 else made


def _text(text: str, indent: str) -> list[TextLine]:
    made = split_lines(text[:LONGEST].rstrip(), indent=indent)
    left = len(text) - LONGEST
    return [*made, TextLine(f"{indent}… [{left} more characters]")] if left > 0 else made
