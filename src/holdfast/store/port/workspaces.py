"""The store's contract for checkpoints, preserved workspaces and salvaged work, and the ledger that a sweep reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.base.stored_json import stored_data_errors
from holdfast.core.cleanup.observed import KnownTask, Ledger, LedgerWorkspace, ObservedState
from holdfast.core.model import Strategy, Workspace
from holdfast.core.runs.preserve import Disposition
from holdfast.core.states import TaskState, WorkspaceState
from holdfast.store.port.values import Ownership


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A whole workspace at one moment, and how far its agent was."""

    task_id: str
    number: int
    repo_id: str
    workspace_id: str
    ref: str
    commit: str
    base: str | None
    key: str
    files: int
    why: str
    run_id: str | None = None
    stage: int = 0
    session_id: str | None = None
    output_offset: int = 0
    partial: bool = False
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def stage_to_resume(self) -> int:
        """Return the stage with which a task continues from this checkpoint. If the checkpoint's stage had ended,
        that is the following one."""
        follows = self.details.get("next_stage")
        return follows if isinstance(follows, int) else self.stage

    @property
    def is_within_stage(self) -> bool:
        return "next_stage" not in self.details


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointChoice:
    """The checkpoint that the next attempt begins with."""

    checkpoint: Checkpoint
    by: str
    automatic: bool  # true: the workspace was lost, and no operator named this checkpoint
    saved: bool  # true: the current content of the workspace was saved before going back


class CheckpointRows(Protocol):
    """Checkpoints of running and paused tasks, recorded under the fence."""

    def next_number(self, task_id: str) -> int: ...
    def last(self, task_id: str) -> Checkpoint | None: ...
    def of_workspace(self, workspace: Workspace) -> Sequence[Checkpoint]:
        """Return the kept checkpoints of a workspace, oldest first."""
        ...

    def get(self, task_id: str, number: int) -> Checkpoint:
        """Return one checkpoint. Raise NotFound, with the numbers of those that are kept, if it is not kept."""
        ...

    def save(self, ownership: Ownership, checkpoint: Checkpoint, keep: int, now: Instant) -> None:
        """Record a checkpoint with its event. Checkpoints beyond the newest `keep` are dropped, except one that the
        task is about to go back to."""
        ...

    def failed(self, ownership: Ownership, run_id: str | None, taken_for: str, reason: str, now: Instant) -> None:
        """Emit an event that no checkpoint could be taken. The caller calls this once per episode."""
        ...

    # -- going back --------------------------------------------------------------------------------------------------

    def choose(self, task_id: str, number: int, by: str, now: Instant, *, automatic: bool = False) -> Checkpoint:
        """Choose the checkpoint that the next attempt begins with, in the transaction that resumes the task. The
        session of the checkpoint comes back with it. An operator's choice takes precedence over an automatic one.
        `automatic`: the choice stays until it is carried out or until a fresh start, even if attempts fail
        meanwhile. Any retry forgets an operator's choice."""
        ...

    def chosen(self, task_id: str) -> CheckpointChoice | None: ...
    def record_saved_content(self, ownership: Ownership) -> None:
        """Record that the content of the workspace was saved, so that going back may begin."""
        ...

    def record_restored(self, ownership: Ownership, number: int, workspace_id: str, how: str, now: Instant) -> None: ...
    def record_not_restored(self, ownership: Ownership, number: int, why: str, now: Instant) -> None:
        """Record that the task does not go back to the checkpoint and starts without it."""
        ...

    def withdraw_choice(self, task_id: str, number: int, why: str, now: Instant) -> None:
        """Withdraw a choice that cannot be carried out (R-RES-06). Nothing is spent. The paused task waits for an
        operator."""
        ...

    # -- letting go --------------------------------------------------------------------------------------------------

    def expire(self, ended_before: float, failed_before: float) -> int:
        """Drop checkpoints of tasks that completed or were cancelled before `ended_before`, or failed before
        `failed_before`. Return how many were dropped."""
        ...

    def strangers(self, repo_id: str, refs: Sequence[str]) -> Sequence[str]:
        """Return those of a repository's checkpoint refs that have no row and whose task has ended or was forgotten."""
        ...

    def dropped(self) -> Sequence[Checkpoint]: ...
    def forget(self, gone: Sequence[Checkpoint]) -> None:
        """Delete the rows of checkpoints whose commits are gone."""
        ...


class PreservedWorkspaces(Protocol):
    """Preserved workspaces: why they stay, and until when."""

    def preserve(
        self, workspace: Workspace, decided: Disposition, ending: TaskState, ttl: float, now: Instant
    ) -> Workspace:
        """Preserve a workspace and remove nothing (R-CLEAN-04). The event states the reason and which tier decided.
        `ttl` is `inf` to preserve it for ever."""
        ...

    def stays(self, workspace: Workspace, why: str, now: Instant) -> None:
        """Keep a workspace instead of removing it, until a person looks at it, because its work cannot be saved."""
        ...

    def save_later(self, workspace: Workspace, why: str, retry_at: float, now: Instant) -> None:
        """Keep a workspace whose work cannot be saved now, and try again at `retry_at`. The workspace is removed once
        its work is saved."""
        ...

    def keep(self, task_id: str, ttl: float, by: str, now: Instant) -> Workspace | None:
        """Pin a workspace for an operator. The time `ttl` starts now for a preserved workspace. For a workspace in use
        it starts when the task ends."""
        ...

    def expired(self, now: Instant, shown: Callable[[float], float]) -> Sequence[Workspace]:
        """Return preserved workspaces whose time is over. `shown`: maps the time at which a workspace was preserved to
        what the clock would show now if it had not been set forward since."""
        ...

    def restart_expiry_timers(self, now: Instant) -> None:
        """Restart the expiry timer of workspaces with a timestamp in the future, after the clock was set back."""
        ...

    def expire(self, workspace: Workspace, now: Instant) -> bool:
        """Mark a workspace as expired, so that the clean-up salvages and removes it. False if it is no longer
        expired."""
        ...

    def next_expiry(self) -> float | None: ...
    def postpone(self, workspace: Workspace, why: str, retry_at: float, now: Instant, *, tell: bool) -> None:
        """Postpone the removal of a workspace that is still in use. It is salvaged (again) when it is removed."""
        ...

    def freed(self, task_id: str) -> None:
        """Make postponed removals of a task's workspaces due at once, because a user has left `holdfast shell`."""
        ...

    def running_subtasks(self, task_id: str) -> Sequence[str]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppedSalvage:
    """Saved work that was dropped: no longer available. Its commit is deleted next, and then this row."""

    id: str
    repo_id: str
    ref: str
    commit: str


class Salvages(Protocol):
    """Salvaged work that expires or is dropped."""

    def expire(self, before: float, limit: int, now: Instant) -> int:
        """Drop work that was saved before that moment. Return how many were dropped. Work that an unfinished task
        may continue with is kept."""
        ...

    def drop(self, ids: Sequence[str], by: str, now: Instant) -> None:
        """Drop salvages for an operator: all of `ids` or none."""
        ...

    def dropped(self) -> Sequence[DroppedSalvage]: ...
    def forget(self, gone: Sequence[DroppedSalvage]) -> None:
        """Delete rows whose commits are gone. A row that was written again meanwhile stays."""
        ...


View = Callable[..., list[dict[str, Any]]]


@stored_data_errors
def read_ledger(view: View, scene: ObservedState) -> Ledger:
    """Read the ledger for a sweep. Call this after `scene` was observed: changes that finished in between are
    recorded by then. A supervisor and a command that only reads get the same answer, because both read through
    views."""
    known = view("sweep_tasks", ids=json.dumps(sorted(scene.tasks())))
    return Ledger(
        holdings=tuple(
            LedgerWorkspace(workspace=workspace_from_row(row), task_state=TaskState(row["task_state"]))
            for row in view("sweep_holdings")
        ),
        tasks={
            row["id"]: KnownTask(state=TaskState(row["state"]), branch=row["branch"], base_commit=row["base_commit"])
            for row in known
        },
        open_runs=frozenset(row["id"] for row in view("sweep_runs")),
    )


def read_workspace_states(view: View, workspaces: Iterable[str]) -> list[dict[str, Any]]:
    """Return one row for each of these workspaces: id, state, failures, reason, path."""
    return view("sweep_fates", ids=json.dumps(sorted(workspaces)))


@stored_data_errors
def workspace_from_row(row: dict[str, Any]) -> Workspace:
    """Return a row of `workspaces` as a value, for every reader."""
    return Workspace(
        id=row["id"],
        task_id=row["task_id"],
        repo_id=row["repo_id"],
        strategy=Strategy(row["strategy"]),
        path=row["path"],
        branch=row["branch"],
        base_commit=row["base_commit"],
        state=WorkspaceState(row["state"]),
        disposition=row["disposition"],
        failures=row["failures"],
        reason=row["reason"],
        expires_at=row["expires_at"],
        container=row["container"],
        member=row["member"],
    )
