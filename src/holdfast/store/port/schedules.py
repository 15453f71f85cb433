"""The store's contract for schedules: a durable cursor, and one task per occurrence.

An occurrence is decided in one transaction. `admit` admits the occurrence and moves the cursor. `fire` links it to the
task that the same transaction adds. An admitted occurrence may have to wait: for the end of the last task, or until the
reason for a refusal is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.base.instant import Instant
from holdfast.core.schedules.schedule import Schedule, ScheduleRecord


def refused_alert(schedule: Schedule) -> str:
    """Return the key of the alert that a schedule cannot fire."""
    return f"schedule:{schedule.repo}:{schedule.name}"


def file_alert(file: str) -> str:
    """Return the key of the alert that the schedules in a file cannot be read."""
    return f"schedules:{file}"


class Schedules(Protocol):
    """Cursors and occurrences. Every fire is one transaction with the task that it adds."""

    def enrol(self, file: str, schedules: Sequence[Schedule], now: Instant) -> None:
        """Record all schedules that a file has now. Schedules that it no longer has are removed. A schedule that is
        new, or has new times, begins now."""
        ...

    def files(self) -> Sequence[str]:
        """Return the files that have schedules."""
        ...

    def all(self) -> Sequence[ScheduleRecord]: ...
    def get(self, key: str) -> ScheduleRecord:
        """Return one schedule. Raise NotFound if no file has it."""
        ...

    def enable(self, key: str, by: str, now: Instant) -> bool:
        """Enable a schedule for an operator, until its file changes that setting. It continues from now. False if it
        was enabled before."""
        ...

    def disable(self, key: str, by: str, now: Instant) -> bool:
        """Disable a schedule. Waiting occurrences are skipped. False if it was disabled before."""
        ...

    def admit(
        self, record: ScheduleRecord, occurrences: Sequence[float], cursor: float, now: Instant
    ) -> Sequence[float]:
        """Move the cursor and admit occurrences, except those that were decided before. Return the waiting
        occurrences, oldest first. If more are waiting than may wait, the latest are kept. Raise Conflict if another
        process has moved the cursor."""
        ...

    def rewind(self, record: ScheduleRecord, now: Instant) -> None:
        """Move the cursor back after the clock was set back. Later occurrences are due again, except those that were
        decided."""
        ...

    def fire(self, record: ScheduleRecord, occurrence: float, task_id: str, now: Instant) -> None:
        """Record the task of an admitted occurrence. Raise Conflict if the occurrence does not wait, or no longer
        waits."""
        ...

    def fire_by_hand(self, key: str, task_id: str, by: str, now: Instant) -> None:
        """Record a task that an operator fired out of turn. The cursor and waiting occurrences do not change."""
        ...

    def skip(self, record: ScheduleRecord, occurrence: float, why: str, now: Instant) -> None:
        """Skip an occurrence instead of admitting it, with an event. Do nothing if it was decided before."""
        ...

    def left_out(self, record: ScheduleRecord, occurrences: Sequence[float], now: Instant) -> None:
        """Emit an event that these occurrences, all before the latest one, were missed and are skipped."""
        ...

    def missed(self, record: ScheduleRecord, latest: float, now: Instant) -> None:
        """Emit an event that the occurrences until `latest` were missed and are skipped, because the schedule's
        `misfire` is skip."""
        ...

    def replacing(self, record: ScheduleRecord, task_id: str) -> None:
        """Record that the schedule's last task was asked to end in favour of the next one, so that it is asked only
        once."""
        ...

    def refused(self, record: ScheduleRecord, why: str, next_try: float, now: Instant) -> None:
        """Record that a fire failed. An alert is raised once, and the fire is tried again at `next_try`."""
        ...

    def owed(self) -> int:
        """Return how many occurrences wait only for a supervisor: they were not refused, and the last task has
        ended."""
        ...

    def merge_old_occurrences(self, key: str, keep: int) -> int:
        """Merge the decided occurrences, except the latest `keep`, into spans of time. No occurrence inside a span
        fires again."""
        ...
