"""The store's contract for messages of people to tasks.

A message is given to the agent of exactly one run: it is marked in the transaction that records the intent of that run.
If that agent is never started, the message waits again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.base.instant import Instant
from holdfast.core.model import Task
from holdfast.core.states import TaskState
from holdfast.core.tasks.messages import Message, Turn


class Messages(Protocol):
    """Messages of people to tasks."""

    def send(self, task_id: str, text: str, by: str, now: Instant) -> TaskState:
        """Record a message, and queue a task that has ended or is paused. Return the state before. Raise Conflict,
        with the command to type instead, if the task cannot continue with a message."""
        ...

    def attach(self, task: Task, text: str, by: str, now: Instant) -> None:
        """Record a message for the next run of a task, in the transaction that changes, retries or resumes the task.
        `task`: the task as that transaction leaves it."""
        ...

    def deliver(self, task: Task, run_id: str, now: Instant) -> Turn:
        """Give the waiting messages to a run, in the transaction that records its intent. Return the messages that
        matter for its prompt."""
        ...

    def begin_round(self, task_id: str, now: Instant) -> None:
        """Begin another round of a task whose work is done, because messages wait. This is part of the task's
        settlement."""
        ...

    def has_begun(self, task_id: str) -> bool:
        """True if an agent was started for the task."""
        ...

    def of_task(self, task_id: str) -> Sequence[Message]:
        """Return all messages of a task, in order."""
        ...

    def waiting_count(self, task_id: str) -> int: ...
