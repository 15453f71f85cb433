"""The due occurrences of a schedule, and the next step for each. Pure. A long gap between two looks makes no function
here slower."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.schedules.cron import first_occurrence, last_occurrence
from holdfast.core.schedules.schedule import Misfire, Overlap, Schedule, ScheduleRecord

COUNTED = 100  # occurrences of a gap that are counted; beyond that, the number is only "many"
ON_TIME = 60.0  # seconds after its time within which an occurrence is not missed
FIRST_WAIT, LONGEST_WAIT = 2.0, 300.0  # seconds before a refused fire is tried again
_DOUBLINGS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class DueOccurrences:
    """The occurrences that became due until now."""

    occurrences: tuple[float, ...]  # to admit, oldest first
    cursor: float  # the latest occurrence that is decided by this
    missed: float | None = None  # the latest occurrence that is not made up for
    left_out: tuple[float, ...] = ()  # earlier ones that are not made up for, oldest first; at most COUNTED of them


class ScheduleStep(StrEnum):
    """The next step for the oldest admitted occurrence."""

    FIRE = "fire"
    WAIT = "wait"
    REPLACE = "replace"  # ask its last task to end, then wait for that


def find_due(record: ScheduleRecord, now: Instant) -> DueOccurrences | None:
    """Return the occurrences that became due since the cursor, under the schedule's misfire policy. None: none became
    due. Several missed occurrences count as one: the latest."""
    schedule = record.schedule
    latest = _latest(schedule, now.wall)
    if latest is None or latest <= record.cursor:
        return None
    kept = _latest_ones(schedule, latest, record.cursor) if schedule.misfire is Misfire.ALL else (latest,)
    left_out = _between(schedule, record.cursor, kept[0])
    if schedule.misfire is Misfire.SKIP and now.wall - due_at(schedule, latest) > ON_TIME:
        return DueOccurrences(occurrences=(), cursor=latest, missed=latest, left_out=left_out)
    return DueOccurrences(occurrences=kept, cursor=latest, left_out=left_out)


def admit(record: ScheduleRecord, found: DueOccurrences | None) -> tuple[float, ...]:
    """Return the occurrences that will wait once `found` is admitted, if none of it was decided before."""
    new = found.occurrences if found is not None and not skips_new(record) else ()
    return tuple(sorted({*record.waiting, *new}))[-record.schedule.max_waiting :]


def skips_new(record: ScheduleRecord) -> bool:
    """True if occurrences that become due now are skipped, because the last task has not ended. Occurrences that
    wait already keep waiting: missed occurrences that are made up for one by one, and an occurrence whose fire was
    refused."""
    return record.schedule.overlap is Overlap.SKIP and record.is_busy


def next_schedule_step(record: ScheduleRecord, now: Instant) -> tuple[ScheduleStep, str]:
    """Return the step for the oldest waiting occurrence, and the reason."""
    if is_backing_off(record, now):
        return ScheduleStep.WAIT, f"it was refused: {record.trouble}"
    if not record.is_busy:
        return ScheduleStep.FIRE, "it is due"
    waits = f"its last task {record.last_task} has not ended"
    if record.schedule.overlap is Overlap.REPLACE and record.replacing != record.last_task:
        return ScheduleStep.REPLACE, waits
    return ScheduleStep.WAIT, waits


def is_backing_off(record: ScheduleRecord, now: Instant) -> bool:
    """True if a refused fire is not tried again yet. If the clock was set back since the refusal, the wait counts as
    over."""
    if record.next_try is None or record.tried_at is None:
        return False
    return record.tried_at <= now.wall < record.next_try


def refused_fire_delay(failures: int) -> float:
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures, _DOUBLINGS))


def next_look_at_schedule(record: ScheduleRecord, now: Instant) -> float | None:
    """Return the wall time at which to look at the schedule again. A time in the past means now. None: nothing will
    become due."""
    if not record.enabled:
        return None
    moments = [record.next_try] if record.waiting and is_backing_off(record, now) else []
    return min((moment for moment in (*moments, next_fire(record, now)) if moment is not None), default=None)


def next_fire(record: ScheduleRecord, now: Instant) -> float | None:
    """Return the wall time at which the next occurrence is due. None: no occurrence is left, or the schedule is
    disabled."""
    if not record.enabled:
        return None
    schedule = record.schedule
    occurrence = first_occurrence(schedule.cron, schedule.zone, _just_after(min(record.cursor, now.wall)))
    return None if occurrence is None else due_at(schedule, occurrence)


def upcoming_occurrences(schedule: Schedule, after: float, count: int) -> list[float]:
    """Return the next occurrences after a time, without their jitter."""
    found: list[float] = []
    while len(found) < count:
        occurrence = first_occurrence(schedule.cron, schedule.zone, _just_after(found[-1] if found else after))
        if occurrence is None:
            break
        found.append(occurrence)
    return found


def due_at(schedule: Schedule, occurrence: float) -> float:
    """Return the wall time at which an occurrence is due, with its jitter. The jitter of an occurrence is always the
    same, and ends before the next occurrence."""
    if schedule.jitter <= 0:
        return occurrence
    following = first_occurrence(schedule.cron, schedule.zone, _just_after(occurrence))
    width = schedule.jitter if following is None else min(schedule.jitter, following - occurrence)
    digest = hashlib.blake2b(f"{schedule.key}\0{occurrence:.0f}".encode(), digest_size=6).digest()
    return occurrence + width * int.from_bytes(digest, "big") / 2**48


def _latest(schedule: Schedule, now: float) -> float | None:
    """Return the latest occurrence whose time has come, its jitter included."""
    latest = last_occurrence(schedule.cron, schedule.zone, now)
    if latest is not None and due_at(schedule, latest) > now:
        # the jitter of the earlier one ends before the later one begins
        latest = last_occurrence(schedule.cron, schedule.zone, latest - 1)
    return latest


def _latest_ones(schedule: Schedule, latest: float, after: float) -> tuple[float, ...]:
    found: list[float] = []
    occurrence: float | None = latest
    while occurrence is not None and occurrence > after and len(found) < schedule.max_waiting:
        found.append(occurrence)
        occurrence = last_occurrence(schedule.cron, schedule.zone, occurrence - 1)
    return tuple(reversed(found))


def _between(schedule: Schedule, after: float, before: float) -> tuple[float, ...]:
    """Return the first occurrences between two times."""
    found: list[float] = []
    occurrence = first_occurrence(schedule.cron, schedule.zone, _just_after(after))
    while occurrence is not None and occurrence < before and len(found) < COUNTED:
        found.append(occurrence)
        occurrence = first_occurrence(schedule.cron, schedule.zone, _just_after(occurrence))
    return tuple(found)


def _just_after(moment: float) -> float:
    return moment // 1 + 1  # occurrences are whole seconds
