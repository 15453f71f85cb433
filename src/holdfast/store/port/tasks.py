"""What a store must do for tasks in several stages: moving from one to the next, under the fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.base.instant import Instant
from holdfast.core.model import Task
from holdfast.core.workflows.workflow import Progress
from holdfast.store.port.values import Grip
from holdfast.store.port.workspaces import Checkpoint

if TYPE_CHECKING:  # every command knows what a store is; few have to do with stages
    from holdfast.core.workflows.next_stage import Following
from collections.abc import Mapping, Sequence

from holdfast.core.tasks.task_lists import Known
from holdfast.core.workflows.result import Result


def approval_alert(task_id: str) -> str:
    """The key of the alert that a person has to approve what a stage did; it is closed like all of the task."""
    return f"task:{task_id}:approval"


class Staging(Protocol):
    """Where tasks stand in their workflows."""

    def keep(self, grip: Grip, progress: Progress, now: Instant) -> None:
        """Of a stage that is under way, or was cut short: it stays the task's stage."""
        ...

    def move(self, grip: Grip, following: Following, now: Instant, *, resets_resumes: bool = False) -> None:
        """A stage ended. In the transaction that settles its run, and before `tasks.settle`: from here on the task's
        row names the agent, the options, the timeout and the provider of the stage that comes next. `resets_resumes`:
        one that is done gives back what was resumed before it."""
        ...

    def approve(self, task_id: str, by: str, now: Instant, changes: str | None = None) -> str:
        """A person approves what the last stage did, and the next one begins; or wants `changes`, and it goes again.
        What follows, in words: the task may have moved on since, when this is told.
        Conflict, with what to type instead, if nobody waits for that."""
        ...

    def return_to(self, task_id: str, checkpoint: Checkpoint, now: Instant) -> None:
        """Part of the transaction that resumes a task from a checkpoint: it goes on in the stage of that checkpoint,
        with its session; of one at a stage's end, with the stage after it. Nothing happens where that is so already."""
        ...

    def retried(self, task: Task, *, fresh: bool) -> None:
        """Part of `tasks.retry`: at the stage that failed, or, `fresh`, at the first one."""
        ...


class Results(Protocol):
    """Results of stages, in order; they go with their task."""

    def record(self, grip: Grip, result: Result) -> Result:
        """Under the fence. The result of a run that was recorded before is not recorded twice."""
        ...

    def of_task(self, task_id: str) -> Sequence[Result]:
        """Of its present generation, in order."""
        ...


class Intake(Protocol):
    """Kept for as long as the repository is known, also when the task is forgotten."""

    def known(self, repo_id: str, keys: Sequence[str]) -> Mapping[str, Known]:
        """Those of them that were taken in before."""
        ...

    def take(self, repo_id: str, key: str, task_id: str, now: Instant) -> None:
        """In the transaction that adds the task. Conflict: the key was taken in before."""
        ...
