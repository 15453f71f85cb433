"""What of a schedule is due, and what becomes of it. Pure; nothing here takes longer because a gap was long."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from holdfast.base.instant import Instant
from holdfast.core.schedules.cron import first_from, last_until
from holdfast.core.schedules.schedule import Misfire, Overlap, Schedule, ScheduleRecord

COUNTED = 100  # occurrences of a gap that are counted; more are many
ON_TIME = 60.0  # seconds after its moment in which an occurrence was not missed
FIRST_WAIT, LONGEST_WAIT = 2.0, 300.0  # seconds before a refused fire is tried again
_DOUBLINGS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """What was due until now."""

    occurrences: tuple[float, ...]  # to let in, oldest first
    cursor: float  # the latest that is decided by that
    missed: float | None = None  # the latest that is not made up for
    left_out: tuple[float, ...] = ()  # earlier ones that are not, oldest first; COUNTED of them at the most


class Step(StrEnum):
    """What becomes of the oldest occurrence that was let in."""

    FIRE = "fire"
    WAIT = "wait"
    REPLACE = "replace"  # ask its last task to end, then wait for that


def due(record: ScheduleRecord, now: Instant) -> Due | None:
    """What came since the cursor, under its policy; None: nothing. Several that were missed are one: the latest."""
    schedule = record.schedule
    latest = _latest(schedule, now.wall)
    if latest is None or latest <= record.cursor:
        return None
    kept = _latest_ones(schedule, latest, record.cursor) if schedule.misfire is Misfire.ALL else (latest,)
    left_out = _between(schedule, record.cursor, kept[0])
    if schedule.misfire is Misfire.SKIP and now.wall - due_at(schedule, latest) > ON_TIME:
        return Due(occurrences=(), cursor=latest, missed=latest, left_out=left_out)
    return Due(occurrences=kept, cursor=latest, left_out=left_out)


def let_in(record: ScheduleRecord, found: Due | None) -> tuple[float, ...]:
    """What will wait once `found` is let in (as far as none of it was decided before)."""
    new = found.occurrences if found is not None and not leaves_out(record) else ()
    return tuple(sorted({*record.waiting, *new}))[-record.schedule.may_wait :]


def leaves_out(record: ScheduleRecord) -> bool:
    """Whether occurrences that come now are skipped: its last task has not ended. What waits already (several that were
    missed are made up for one after the other, a refused one) does so in any case."""
    return record.schedule.overlap is Overlap.SKIP and record.is_busy


def next_step(record: ScheduleRecord, now: Instant) -> tuple[Step, str]:
    """For the oldest one that waits, and why."""
    if is_backing_off(record, now):
        return Step.WAIT, f"it was refused: {record.trouble}"
    if not record.is_busy:
        return Step.FIRE, "it is due"
    waits = f"its last task {record.last_task} has not ended"
    if record.schedule.overlap is Overlap.REPLACE and record.replacing != record.last_task:
        return Step.REPLACE, waits
    return Step.WAIT, waits


def is_backing_off(record: ScheduleRecord, now: Instant) -> bool:
    """A wait that was decided in the future (the clock was set back since) is over."""
    if record.next_try is None or record.tried_at is None:
        return False
    return record.tried_at <= now.wall < record.next_try


def back_off(failures: int) -> float:
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures, _DOUBLINGS))


def next_moment(record: ScheduleRecord, now: Instant) -> float | None:
    """When to look at it again, by itself; in the past: now. None: nothing will come of it by itself."""
    if not record.enabled:
        return None
    moments = [record.next_try] if record.waiting and is_backing_off(record, now) else []
    return min((moment for moment in (*moments, next_fire(record, now)) if moment is not None), default=None)


def next_fire(record: ScheduleRecord, now: Instant) -> float | None:
    """When its next occurrence is due; None: never, or it is disabled."""
    if not record.enabled:
        return None
    schedule = record.schedule
    occurrence = first_from(schedule.cron, schedule.zone, _just_after(min(record.cursor, now.wall)))
    return None if occurrence is None else due_at(schedule, occurrence)


def upcoming(schedule: Schedule, after: float, count: int) -> list[float]:
    """The next occurrences after a moment, without their jitter."""
    found: list[float] = []
    while len(found) < count:
        occurrence = first_from(schedule.cron, schedule.zone, _just_after(found[-1] if found else after))
        if occurrence is None:
            break
        found.append(occurrence)
    return found


def due_at(schedule: Schedule, occurrence: float) -> float:
    """With its jitter: the same for an occurrence whoever asks, and never as late as the next occurrence."""
    if schedule.jitter <= 0:
        return occurrence
    following = first_from(schedule.cron, schedule.zone, _just_after(occurrence))
    width = schedule.jitter if following is None else min(schedule.jitter, following - occurrence)
    digest = hashlib.blake2b(f"{schedule.key}\0{occurrence:.0f}".encode(), digest_size=6).digest()
    return occurrence + width * int.from_bytes(digest, "big") / 2**48


def _latest(schedule: Schedule, now: float) -> float | None:
    """The latest occurrence whose time has come, its jitter included."""
    latest = last_until(schedule.cron, schedule.zone, now)
    if latest is not None and due_at(schedule, latest) > now:
        latest = last_until(schedule.cron, schedule.zone, latest - 1)  # its jitter ends before the later one begins
    return latest


def _latest_ones(schedule: Schedule, latest: float, after: float) -> tuple[float, ...]:
    found: list[float] = []
    occurrence: float | None = latest
    while occurrence is not None and occurrence > after and len(found) < schedule.may_wait:
        found.append(occurrence)
        occurrence = last_until(schedule.cron, schedule.zone, occurrence - 1)
    return tuple(reversed(found))


def _between(schedule: Schedule, after: float, before: float) -> tuple[float, ...]:
    """The first ones of a gap."""
    found: list[float] = []
    occurrence = first_from(schedule.cron, schedule.zone, _just_after(after))
    while occurrence is not None and occurrence < before and len(found) < COUNTED:
        found.append(occurrence)
        occurrence = first_from(schedule.cron, schedule.zone, _just_after(occurrence))
    return tuple(found)


def _just_after(moment: float) -> float:
    return moment // 1 + 1  # occurrences are whole seconds
