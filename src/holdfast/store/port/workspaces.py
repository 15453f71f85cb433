"""What a store must do for whole trees of running and paused tasks, recorded under the fence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.base.instant import Instant
from holdfast.base.stored_json import understood
from holdfast.core.cleanup.observed import Holding, KnownTask, Ledger, Scene
from holdfast.core.model import Strategy, Workspace
from holdfast.core.runs.preserve import Disposition
from holdfast.core.states import TaskState, WorkspaceState
from holdfast.store.port.values import Grip


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
    def goes_to(self) -> int:
        """The stage that a task goes on with from here: of one that had ended, the one that followed."""
        follows = self.details.get("next_stage")
        return follows if isinstance(follows, int) else self.stage

    @property
    def is_within_stage(self) -> bool:
        return "next_stage" not in self.details


@dataclass(frozen=True, kw_only=True, slots=True)
class GoingBack:
    """The checkpoint that the next attempt begins with."""

    checkpoint: Checkpoint
    by: str
    automatic: bool  # its workspace was lost; nobody named that checkpoint
    saved: bool  # what lies in its workspace now was saved for it


class Checkpoints(Protocol):
    """Whole trees of running and paused tasks, recorded under the fence."""

    def next_number(self, task_id: str) -> int: ...
    def last(self, task_id: str) -> Checkpoint | None: ...
    def get(self, task_id: str, number: int) -> Checkpoint:
        """NotFound, with those that there are, if it is not kept."""
        ...

    def save(self, grip: Grip, checkpoint: Checkpoint, keep: int, now: Instant) -> None:
        """With its event; those beyond the newest `keep` are dropped, but for one that is about to be gone back to."""
        ...

    def failed(self, grip: Grip, run_id: str | None, taken_for: str, reason: str, now: Instant) -> None:
        """Tell that none could be taken. Once per episode is the caller's business."""
        ...

    # -- going back --------------------------------------------------------------------------------------------------

    def choose(self, task_id: str, number: int, by: str, now: Instant, *, automatic: bool = False) -> Checkpoint:
        """The next attempt begins with it: part of the transaction that resumes the task. An operator's word stands
        before what we choose ourselves. Its session comes back with it. `automatic`: until it is carried out, whatever
        fails meanwhile, or until a fresh start; a choice of an operator's is forgotten by any retry."""
        ...

    def chosen(self, task_id: str) -> GoingBack | None: ...
    def set_aside(self, grip: Grip) -> None:
        """What lay in the workspace was saved: going back may begin."""
        ...

    def went_back(self, grip: Grip, number: int, how: str, now: Instant) -> None: ...
    def gave_up(self, grip: Grip, number: int, why: str, now: Instant) -> None:
        """It is not gone back to; the task starts without it."""
        ...

    def stays_paused(self, task_id: str, number: int, why: str, now: Instant) -> None:
        """R-RES-06: the choice cannot be carried out. Nothing is spent; the choice is withdrawn, and the paused task
        waits for an operator."""
        ...

    # -- letting go --------------------------------------------------------------------------------------------------

    def expire(self, ended_before: float, failed_before: float) -> int:
        """Drop those of tasks that completed or were cancelled, or failed, before then; how many."""
        ...

    def strangers(self, repo_id: str, refs: Sequence[str]) -> Sequence[str]:
        """Those of a repository's checkpoint refs that no row names, of tasks that are over or forgotten."""
        ...

    def dropped(self) -> Sequence[Checkpoint]: ...
    def forget(self, gone: Sequence[Checkpoint]) -> None:
        """Their commits are gone."""
        ...


class Keeps(Protocol):
    """Preserved workspaces: why they stay, and until when."""

    def preserve(
        self, workspace: Workspace, decided: Disposition, ending: TaskState, ttl: float, now: Instant
    ) -> Workspace:
        """R-CLEAN-04: nothing is removed; the event says why, and which tier decided. `ttl` is `inf` for ever."""
        ...

    def stays(self, workspace: Workspace, why: str, now: Instant) -> None:
        """It was to go, but its work cannot be saved: it stays until somebody looks."""
        ...

    def keep(self, task_id: str, ttl: float, by: str, now: Instant) -> Workspace | None:
        """An operator's pin: from now on for a preserved workspace, from its task's end on for one in use."""
        ...

    def expired(self, now: Instant, shown: Callable[[float], float]) -> Sequence[Workspace]:
        """`shown`: what the clock would show if nobody had set it forward since the moment when one was preserved."""
        ...

    def expire_from_now(self, now: Instant) -> None:
        """The clock was set back: what was preserved in its future stays from now on for as long as it was to stay."""
        ...

    def expire(self, workspace: Workspace, now: Instant) -> bool:
        """Its time is over: the clean-up salvages and removes it. False: that is no longer so."""
        ...

    def next_expiry(self) -> float | None: ...
    def postpone(self, workspace: Workspace, why: str, retry_at: float, now: Instant, *, tell: bool) -> None:
        """Somebody still uses it: its removal waits, and it is salvaged (again) when it goes."""
        ...

    def freed(self, task_id: str) -> None:
        """Somebody left it: whatever waits for that need not wait for its time."""
        ...

    def running_subtasks(self, task_id: str) -> Sequence[str]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """Saved work that nobody may ask for any more; its commit goes next, and then this row."""

    id: str
    repo_id: str
    ref: str
    commit: str


class Salvages(Protocol):
    def expire(self, before: float, limit: int, now: Instant) -> int:
        """Drop what was saved before then, but nothing that an unfinished task may go on with; how many."""
        ...

    def drop(self, ids: Sequence[str], by: str, now: Instant) -> None:
        """An operator's word: all of them or none."""
        ...

    def dropped(self) -> Sequence[Dropped]: ...
    def forget(self, gone: Sequence[Dropped]) -> None:
        """Their commits are gone. A row that was written anew meanwhile stays."""
        ...


View = Callable[..., list[dict[str, Any]]]


@understood
def read_ledger(view: View, scene: Scene) -> Ledger:
    """After the look: whoever finished something in between has said so here by now."""
    known = view("sweep_tasks", ids=json.dumps(sorted(scene.tasks())))
    return Ledger(
        holdings=tuple(
            Holding(workspace=workspace_of(row), task_state=TaskState(row["task_state"]))
            for row in view("sweep_holdings")
        ),
        tasks={
            row["id"]: KnownTask(state=TaskState(row["state"]), branch=row["branch"], base_commit=row["base_commit"])
            for row in known
        },
        open_runs=frozenset(row["id"] for row in view("sweep_runs")),
    )


def fates(view: View, workspaces: Iterable[str]) -> list[dict[str, Any]]:
    """What has become of them: id, state, failures, reason, path."""
    return view("sweep_fates", ids=json.dumps(sorted(workspaces)))


@understood
def workspace_of(row: dict[str, Any]) -> Workspace:
    """A row of `workspaces`, whoever read it."""
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
