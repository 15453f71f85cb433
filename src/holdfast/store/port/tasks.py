"""The store's contract for workflows (stages and their results) and for task lists.

A move from one stage to the next is written under the fence. Each key of a task list becomes a task once per
repository.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.base.instant import Instant
from holdfast.core.model import Task
from holdfast.core.tasks.task_lists import KnownTaskKey
from holdfast.core.workflows.result import StageResult
from holdfast.core.workflows.workflow import Progress
from holdfast.store.port.values import Ownership
from holdfast.store.port.workspaces import Checkpoint

if TYPE_CHECKING:
    from holdfast.core.workflows.next_stage import NextStep


def approval_alert(task_id: str) -> str:
    """Return the key of the alert that asks a person to approve a stage. It is closed like all alerts of the
    task."""
    return f"task:{task_id}:approval"


class StageProgress(Protocol):
    """Positions of tasks in their workflows."""

    def keep(self, ownership: Ownership, progress: Progress, now: Instant) -> None:
        """Record the progress of a stage that is under way or was cut short. The task stays in this stage."""
        ...

    def move(self, ownership: Ownership, following: NextStep, now: Instant, *, resets_resumes: bool = False) -> None:
        """Move a task on after a stage has ended. Call it in the transaction that settles the run, before
        `tasks.settle`. Afterwards the task's row names the agent, the options, the timeout and the provider of the next
        stage. `resets_resumes`: set the count of resumes to 0, because the stage is done."""
        ...

    def approve(
        self, task_id: str, by: str, now: Instant, changes: str | None = None, *, stage: str | None = None
    ) -> str:
        """Approve what the last stage did, so that the next one begins.

        With `changes`, a stage gets that text in its own session: the stage named `stage`, else the `back_to` of the
        waiting stage, else the waiting stage itself. Return what follows, as text: the task may have moved on before
        the caller shows it. Raise Conflict, with the command to type instead, if the task does not wait for approval.
        """
        ...

    def return_to_checkpoint(self, task_id: str, checkpoint: Checkpoint, now: Instant) -> None:
        """Move a task to the stage of a checkpoint, with that checkpoint's session. After a checkpoint at a stage's
        end, move it to the following stage. This is part of the transaction that resumes the task from the
        checkpoint. Do nothing if the task is in that stage already."""
        ...

    def reset_for_retry(self, task: Task, *, fresh: bool) -> None:
        """Set the stage of a retried task: the one that failed, or with `fresh` the first one. This is part of
        `tasks.retry`."""
        ...

    def enter_round(self, task: Task, stage: int, *, keeps_feedback: bool) -> None:
        """Let a task enter a stage again for another round, in the session of that stage where there is one."""
        ...


class Results(Protocol):
    """Results of stages, in order. They are deleted together with their task."""

    def record(self, ownership: Ownership, result: StageResult) -> StageResult:
        """Record a result under the fence. A second result of the same run is not recorded."""
        ...

    def of_task(self, task_id: str) -> Sequence[StageResult]:
        """Return the results of the task's current generation, in order."""
        ...


class TaskListKeys(Protocol):
    """Keys of task lists. They are kept for as long as the repository is known, even when the task is forgotten."""

    def known(self, repo_id: str, keys: Sequence[str]) -> Mapping[str, KnownTaskKey]:
        """Return, by key, what is known of those `keys` that became tasks before."""
        ...

    def take(self, repo_id: str, key: str, task_id: str, now: Instant) -> None:
        """Record that the key became this task, in the transaction that adds the task. Raise Conflict if the key became
        a task before."""
        ...
