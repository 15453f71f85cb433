"""Subtasks: what becomes of them when their parent moves, and how many there may be. docs/subtasks.md shows the table.

A subtask is a task of its own: it has its own budgets, workspace and end. Only one thing of its parent's reaches it:
who cancels a task wants all of it gone. The other way round nothing happens by itself; the parent's history says how
its subtasks ended, and its agent may ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from holdfast.core.states import TaskState
from holdfast.core.task_settings import SubtaskRules


class Fate(StrEnum):
    """What a parent's move means for one subtask."""

    ALONE = "goes on"
    CANCELLED = "cancelled"  # in the transaction of the parent's move
    ENDING = "asked to end"  # likewise a durable request; the supervisor carries it out
    OVER = "stays as it is"


T = TaskState
_OVER = {T.COMPLETED: Fate.OVER, T.FAILED: Fate.OVER, T.CANCELLED: Fate.OVER}
_ALONE = {T.QUEUED: Fate.ALONE, T.RUNNING: Fate.ALONE, T.PAUSED: Fate.ALONE, **_OVER}
_GONE = {T.QUEUED: Fate.CANCELLED, T.RUNNING: Fate.ENDING, T.PAUSED: Fate.CANCELLED, **_OVER}

FATES: Mapping[TaskState, Mapping[TaskState, Fate]] = {
    T.QUEUED: _ALONE,
    T.RUNNING: _ALONE,
    T.PAUSED: _ALONE,
    T.COMPLETED: _ALONE,
    T.FAILED: _ALONE,
    T.CANCELLED: _GONE,
}
"""The state into which a parent moved → the state in which a subtask is → what becomes of that."""

WORDS: Mapping[TaskState, str] = {
    T.QUEUED: "is queued again: resumed, requeued after a crash, retried by an operator",
    T.RUNNING: "is claimed",
    T.PAUSED: "pauses: a limit, a budget, an account, an operator",
    T.COMPLETED: "completes",
    T.FAILED: "fails, for whatever reason (the resume limit included)",
    T.CANCELLED: "is cancelled (without `--keep-subtasks`)",
}


def fate(parent: TaskState, child: TaskState) -> Fate:
    """`parent` is where the parent came to be just now."""
    return FATES[parent][child]


def reaches_children(parent: TaskState) -> bool:
    """Whether a move there changes anything for any subtask."""
    return any(one not in (Fate.ALONE, Fate.OVER) for one in FATES[parent].values())


def refusal(parent: str, state: TaskState, depth: int, known: int, rules: SubtaskRules) -> str | None:
    """Why there can be no further subtask of `parent`; None: there can.

    `depth` is how far the new one would be below the first task, `known` how many that one has already. Both have a
    limit, or an agent whose prompt says "split this up" could do so for ever.
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


def table() -> list[str]:
    """For docs/subtasks.md, line by line."""
    states = list(TaskState)
    lines = [
        f"| when the parent … | {' | '.join(f'a {state} subtask' for state in states[:3])} | one that has ended |",
        "|---|---|---|---|---|",
    ]
    for parent in states:
        cells = [str(fate(parent, child)) for child in (*states[:3], TaskState.COMPLETED)]
        lines.append(f"| {WORDS[parent]} | {' | '.join(cells)} |")
    return lines
