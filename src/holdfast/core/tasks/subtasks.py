"""Subtasks: the effect of a parent's move on its subtasks, and the limit of their number. docs/subtasks.md shows the
table.

A subtask is a task of its own, with its own budgets, workspace and end. Only a cancel of its parent affects it: a
cancel is meant for everything below the task. A subtask's end changes nothing for its parent. The parent's history
records how its subtasks ended, and the parent's agent can read that.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from holdfast.core.states import TaskState
from holdfast.core.task_settings import SubtaskRules


class SubtaskFate(StrEnum):
    """The effect of a parent's move on one subtask."""

    ALONE = "continues"
    CANCELLED = "cancelled"  # in the transaction of the parent's move
    ENDING = "asked to end"  # in the same transaction, as a durable request that the supervisor carries out
    OVER = "stays as it is"


T = TaskState
_OVER = {T.COMPLETED: SubtaskFate.OVER, T.FAILED: SubtaskFate.OVER, T.CANCELLED: SubtaskFate.OVER}
_ALONE = {T.QUEUED: SubtaskFate.ALONE, T.RUNNING: SubtaskFate.ALONE, T.PAUSED: SubtaskFate.ALONE, **_OVER}
_GONE = {T.QUEUED: SubtaskFate.CANCELLED, T.RUNNING: SubtaskFate.ENDING, T.PAUSED: SubtaskFate.CANCELLED, **_OVER}

FATES: Mapping[TaskState, Mapping[TaskState, SubtaskFate]] = {
    T.QUEUED: _ALONE,
    T.RUNNING: _ALONE,
    T.PAUSED: _ALONE,
    T.COMPLETED: _ALONE,
    T.FAILED: _ALONE,
    T.CANCELLED: _GONE,
}
"""The new state of a parent → the state of a subtask → the effect on that subtask."""

PARENT_MOVES: Mapping[TaskState, str] = {
    T.QUEUED: "is queued again: resumed, requeued after a crash, retried by an operator",
    T.RUNNING: "is claimed",
    T.PAUSED: "pauses: a limit, a budget, an account, an operator",
    T.COMPLETED: "completes",
    T.FAILED: "fails, for whatever reason (the resume limit included)",
    T.CANCELLED: "is cancelled (without `--keep-subtasks`)",
}


def fate_of_subtask(parent: TaskState, child: TaskState) -> SubtaskFate:
    """Return the effect on a subtask. `parent` is the new state of the parent."""
    return FATES[parent][child]


def affects_subtasks(parent: TaskState) -> bool:
    """True if a move to this state changes anything for any subtask."""
    return any(one not in (SubtaskFate.ALONE, SubtaskFate.OVER) for one in FATES[parent].values())


def refuse_subtask(parent: str, state: TaskState, depth: int, known: int, rules: SubtaskRules) -> str | None:
    """Return why `parent` cannot have another subtask. None: the parent can have one.

    `depth` is the level of the new subtask below the first task. `known` is the number of subtasks that the first task
    has already. Both are limited, because an agent with the prompt "split this up" could add subtasks for ever.
    """
    if state is TaskState.CANCELLED:
        return (
            f"Task {parent} was cancelled, and its subtasks with it: none can be added. Retry it first "
            f"(`holdfast retry {parent}`), or add the task without a parent (--parent none)."
        )
    if depth > rules.max_depth:
        return (
            f"A subtask of {parent} would be {depth} levels below the first task; `subtasks.max_depth` allows "
            f"{rules.max_depth}. Nothing was queued: do the work within the task itself."
        )
    if known >= rules.most:
        return (
            f"The first task above has {known} subtasks already; `subtasks.max` allows {rules.most}. Nothing was "
            "queued: do the work within the task itself."
        )
    return None


def format_fate_table() -> list[str]:
    """Return the lines of the table in docs/subtasks.md."""
    states = list(TaskState)
    lines = [
        f"| when the parent … | {' | '.join(f'a {state} subtask' for state in states[:3])} | one that has ended |",
        "|---|---|---|---|---|",
    ]
    for parent in states:
        cells = [str(fate_of_subtask(parent, child)) for child in (*states[:3], TaskState.COMPLETED)]
        lines.append(f"| {PARENT_MOVES[parent]} | {' | '.join(cells)} |")
    return lines
