"""What a store must do for schedules: a durable cursor and one task per occurrence.

An occurrence is decided in one transaction: `admit` lets it in and moves the cursor, `fire` gives it the task that the
same transaction adds. One that has to wait (for the last task's end, or for what refused it) stays admitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.base.instant import Instant
from holdfast.core.schedules.schedule import Schedule, ScheduleRecord


def refused_alert(schedule: Schedule) -> str:
    """The key of the alert that a schedule cannot fire."""
    return f"schedule:{schedule.repo}:{schedule.name}"


def file_alert(file: str) -> str:
    """The key of the alert that a file's schedules cannot be read."""
    return f"schedules:{file}"


class Schedules(Protocol):
    """Cursors and occurrences. Every fire is one transaction with the task that it adds."""

    def enrol(self, file: str, schedules: Sequence[Schedule], now: Instant) -> None:
        """All that a file has now. What it no longer has is left out; what is new, or has a new time, begins now."""
        ...

    def files(self) -> Sequence[str]:
        """Those that have schedules."""
        ...

    def all(self) -> Sequence[ScheduleRecord]: ...
    def get(self, key: str) -> ScheduleRecord:
        """NotFound when no file has it."""
        ...

    def enable(self, key: str, by: str, now: Instant) -> bool:
        """An operator's word, which holds until the file says something new. It goes on from now. False: it was."""
        ...

    def disable(self, key: str, by: str, now: Instant) -> bool:
        """Nothing of it fires; what waited is left out. False: it was."""
        ...

    def admit(
        self, record: ScheduleRecord, occurrences: Sequence[float], cursor: float, now: Instant
    ) -> Sequence[float]:
        """Move the cursor and let occurrences in, except those that were decided before. What waits then, oldest first;
        of more than may wait, the latest. Conflict when somebody else has moved the cursor."""
        ...

    def rewind(self, record: ScheduleRecord, now: Instant) -> None:
        """The clock was set back: what comes is due again, except for what was decided."""
        ...

    def fire(self, record: ScheduleRecord, occurrence: float, task_id: str, now: Instant) -> None:
        """An admitted occurrence has its task. Conflict when it does not wait (any more)."""
        ...

    def fire_by_hand(self, key: str, task_id: str, by: str, now: Instant) -> None:
        """A task out of turn; the cursor stays, and so does what waits."""
        ...

    def skip(self, record: ScheduleRecord, occurrence: float, why: str, now: Instant) -> None:
        """An occurrence is left out instead of being let in, and told of; nothing when it was decided before."""
        ...

    def left_out(self, record: ScheduleRecord, occurrences: Sequence[float], now: Instant) -> None:
        """Tell that occurrences before the one that is let in are not made up for."""
        ...

    def missed(self, record: ScheduleRecord, latest: float, now: Instant) -> None:
        """Tell that occurrences until `latest` came and went unseen, and are not made up for."""
        ...

    def replacing(self, record: ScheduleRecord, task_id: str) -> None:
        """Its last task was asked to end for the next one: once is enough."""
        ...

    def refused(self, record: ScheduleRecord, why: str, next_try: float, now: Instant) -> None:
        """A fire could not be made: alerted once, tried again then."""
        ...

    def owed(self) -> int:
        """Occurrences that wait for nothing but a supervisor: nothing has refused them, and the last task has ended."""
        ...

    def prune(self, key: str, keep: int) -> int:
        """Fold all but the latest decided occurrences into spans of time, in which none fires again."""
        ...
