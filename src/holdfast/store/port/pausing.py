"""What a store must do for paused tasks: the part of `Tasks` that is about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.model import Instant
from holdfast.core.runs.resume import ResumeDecision


class Pausing(Protocol):
    """A running task is paused by `Tasks.settle`. `auto` false: only what an operator paused for a time is ever due."""

    def pause_waiting(self, task_id: str, by: str, why: str, until: float | None, now: Instant) -> None:
        """Pause a queued task, or make the pause of a limit the operator's. `until`: when it goes on by itself."""
        ...

    def resume(
        self, task_id: str, by: str, now: Instant, *, operator: bool = True, force: bool = False
    ) -> ResumeDecision:
        """R-RES-02: one compare-and-set, whoever asks. `operator` false: nobody's word, only its time has come.
        `force`: beyond the limit, and past a shut account."""
        ...

    def due_to_resume(self, now: Instant, *, auto: bool = True) -> Sequence[str]: ...
    def next_due(self, now: Instant, *, auto: bool = True) -> float | None: ...
