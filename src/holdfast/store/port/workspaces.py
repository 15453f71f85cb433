"""What a store must do for whole trees of running and paused tasks, recorded under the fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.core.model import Instant
from holdfast.store.port.grip import Grip


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
