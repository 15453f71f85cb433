"""Subtasks: the table, as the docs show it, and the limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.states import TASK_TERMINAL, TaskState
from holdfast.core.task_settings import SubtaskRules
from holdfast.core.tasks.subtasks import SubtaskFate, fate_of_subtask, format_fate_table, refuse_subtask

DOCS = Path(__file__).parents[3] / "docs" / "subtasks.md"


def test_only_a_cancel_reaches_subtasks_and_none_that_has_ended() -> None:
    """R-RES-10: whatever else befalls a parent, its subtasks may finish."""
    for parent in TaskState:
        for child in TaskState:
            found = fate_of_subtask(parent, child)
            assert (found is SubtaskFate.OVER) is (child in TASK_TERMINAL)
            if parent is not TaskState.CANCELLED:
                assert found in (SubtaskFate.ALONE, SubtaskFate.OVER)
    assert (
        fate_of_subtask(TaskState.CANCELLED, TaskState.RUNNING) is SubtaskFate.ENDING
    )  # by proof of death, never by a mere write


def test_the_docs_show_this_table() -> None:
    assert "\n".join(format_fate_table()) in DOCS.read_text(), "docs/subtasks.md is stale: paste core.family.table()"


@pytest.mark.parametrize(
    ("state", "depth", "known", "rules", "words"),
    [
        (TaskState.RUNNING, 3, 49, SubtaskRules(), None),
        (TaskState.FAILED, 1, 0, SubtaskRules(), None),
        (TaskState.RUNNING, 4, 0, SubtaskRules(), "4 levels below the first task"),
        (TaskState.RUNNING, 1, 50, SubtaskRules(), "has 50 subtasks already"),
        (TaskState.RUNNING, 1, 0, SubtaskRules(max_depth=0), "`subtasks.max_depth` allows 0"),
        (TaskState.RUNNING, 1, 0, SubtaskRules(most=0), "`subtasks.max` allows 0"),
        (TaskState.CANCELLED, 1, 0, SubtaskRules(), "--parent none"),
    ],
)
def test_how_large_a_family_may_grow(
    state: TaskState, depth: int, known: int, rules: SubtaskRules, words: str | None
) -> None:
    why = refuse_subtask("p4r3nt", state, depth, known, rules)
    assert why is None if words is None else words in str(why)
    assert "--parent none" not in str(why) or state is TaskState.CANCELLED, "an agent would only take that way out"
