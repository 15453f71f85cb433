"""The life cycles of tasks, runs and workspaces as data. SQL guards, docs/states.md and the texts of the CLI derive
from these tables.

A move that is not in a table cannot be made: the store refuses it before it reaches a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class TaskState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    INTENDED = "intended"
    STARTED = "started"
    STOPPING = "stopping"
    ENDED = "ended"
    SETTLED = "settled"


class WorkspaceState(StrEnum):
    INTENDED = "intended"
    READY = "ready"
    PRESERVED = "preserved"
    TRASHED = "trashed"
    GONE = "gone"


T, R, W = TaskState, RunState, WorkspaceState

TASK_MOVES: Mapping[TaskState, Mapping[TaskState, str]] = {
    T.QUEUED: {
        T.RUNNING: "claimed by a supervisor, which raises the fence",
        T.PAUSED: "an operator pauses it",
        T.CANCELLED: "an operator cancels it, or a task that it needs failed or was cancelled",
        T.FAILED: "it can no longer run",
    },
    T.RUNNING: {
        T.COMPLETED: "the agent showed positive evidence of success",
        T.FAILED: "the outcome says so, or a budget is spent",
        T.CANCELLED: "an operator's cancel, carried out: the tree is proven dead",
        T.PAUSED: "a limit, a budget, an account problem or an operator",
        T.QUEUED: "requeued: crash, timeout, loss of the host, `down`, or a message that waits",
    },
    T.PAUSED: {
        T.QUEUED: "resumed, by hand or when due; spends a resume. Or an operator's message; budgets start afresh",
        T.FAILED: "its time to resume has come, and no resume is left",
        T.CANCELLED: "an operator cancels it",
    },
    T.COMPLETED: {T.QUEUED: "an operator's message; budgets start afresh"},
    T.FAILED: {T.QUEUED: "an operator's retry or message; budgets start afresh"},
    T.CANCELLED: {T.QUEUED: "an operator's retry or message; budgets start afresh"},
}

RUN_MOVES: Mapping[RunState, Mapping[RunState, str]] = {
    R.INTENDED: {
        R.STARTED: "the keeper recorded the agent's pid",
        R.ENDED: "proven never to have started",
    },
    R.STARTED: {
        R.STOPPING: "we asked it to end; the reason is recorded before the signal",
        R.ENDED: "the whole tree is proven empty",
    },
    R.STOPPING: {R.ENDED: "the whole tree is proven empty"},
    R.ENDED: {R.SETTLED: "the task moved on the outcome of this run"},
    R.SETTLED: {},
}

WORKSPACE_MOVES: Mapping[WorkspaceState, Mapping[WorkspaceState, str]] = {
    W.INTENDED: {
        W.READY: "made, checked out, usable",
        W.TRASHED: "given up half made; renamed away",
        W.GONE: "nothing of it was ever made",
    },
    W.READY: {
        W.PRESERVED: "its task failed and asked to keep it, or saving its work failed",
        W.TRASHED: "its work is saved; renamed away",
        W.GONE: "it vanished, or there is nothing to remove",
    },
    W.PRESERVED: {
        W.READY: "an operator's retry continues in it",
        W.TRASHED: "dropped by an operator, or expired; salvaged first",
        W.GONE: "it vanished",
    },
    W.TRASHED: {W.GONE: "deleted in the background"},
    W.GONE: {},
}

TASK_TERMINAL = frozenset({T.COMPLETED, T.FAILED, T.CANCELLED})
"""States in which no work is done on a task, and none will be unless an operator asks for it."""

RUN_LIVE = frozenset({R.INTENDED, R.STARTED, R.STOPPING})
"""States in which a process of the run may exist."""

WORKSPACE_OPEN = frozenset({W.INTENDED, W.READY, W.PRESERVED, W.TRASHED})
"""States in which something of the workspace may exist outside the store."""


AnyState = TaskState | RunState | WorkspaceState


def moves_from(state: AnyState) -> Mapping[AnyState, str]:
    """Return the legal moves from `state`, each with its description. The table is chosen by type: states of two types
    may have equal values and are still different."""
    table: Mapping[AnyState, Mapping[AnyState, str]]
    if isinstance(state, TaskState):
        table = TASK_MOVES  # type: ignore[assignment]  # Mapping is invariant in its key; we only read
    elif isinstance(state, RunState):
        table = RUN_MOVES  # type: ignore[assignment]  # likewise
    else:
        table = WORKSPACE_MOVES  # type: ignore[assignment]  # likewise
    return table[state]


def is_legal_move(before: AnyState, after: AnyState) -> bool:
    """True if both states are of one type and its table has this move."""
    return type(before) is type(after) and after in moves_from(before)
