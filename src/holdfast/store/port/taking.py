"""What a store must do for lists of tasks: each key of a repository becomes a task once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.core.model import Instant
from holdfast.core.tasks.task_lists import Known


class Intake(Protocol):
    """Kept for as long as the repository is known, also when the task is forgotten."""

    def known(self, repo_id: str, keys: Sequence[str]) -> Mapping[str, Known]:
        """Those of them that were taken in before."""
        ...

    def take(self, repo_id: str, key: str, task_id: str, now: Instant) -> None:
        """In the transaction that adds the task. Conflict: the key was taken in before."""
        ...
