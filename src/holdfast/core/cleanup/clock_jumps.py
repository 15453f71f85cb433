"""The elapsed time behind wall times, whatever the wall clock was set to. Pure.

Records carry the wall time at which they were made. A clock that is set forward makes all of them old at once, and old
records are deleted for good. So every forward jump of the wall clock is recorded.

`wall_time_ago(age, now)` returns the wall time of `age` seconds of elapsed time ago. Within a boot, CLOCK_BOOTTIME
counts elapsed time, which includes sleep. Across boots it is the difference of the wall times, but a week at most.

A clock that is set back needs no record: entries with a later time count as young until the clock reaches that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant

SMALL = 60.0  # seconds; less is drift, or the work of a time daemon
OFF_AT_MOST = 7 * 86400.0  # seconds for which a machine that was off is believed to have been off
MOST = 32  # jumps that are recorded separately


@dataclass(frozen=True, slots=True)
class ClockJump:
    """One forward jump: the clock showed `to` when it was seen that it had been set forward by `by` seconds."""

    to: float
    by: float


@dataclass(frozen=True, slots=True)
class ClockHistory:
    """The last reading of the clocks, and the forward jumps of the wall clock, oldest first."""

    seen: Instant
    jumps: tuple[ClockJump, ...] = ()

    def jump_since_reading(self, now: Instant) -> float:
        """Return the seconds by which the wall clock was set since the last reading. Small ones count as 0."""
        went = now.wall - self.seen.wall
        by = went - self._elapsed(now)
        return by if abs(by) > SMALL else 0.0

    def after(self, now: Instant) -> ClockHistory:
        by = self.jump_since_reading(now)
        if by > 0:
            return ClockHistory(now, _merge_oldest((*self.jumps, ClockJump(now.wall, by))))
        return ClockHistory(now, self._undo_jumps(now, -by) if by < 0 else self.jumps)

    def restored(self, made_at: float, now: Instant) -> ClockHistory:
        """Return the state after a restore of records made at `made_at`. The time since then does not count as age of
        these records."""
        by = now.wall - made_at
        return ClockHistory(now, _merge_oldest((*self.jumps, ClockJump(now.wall, by)))) if by > SMALL else self

    def wall_time_ago(self, age: float, now: Instant) -> float:
        """Return the wall time `age` seconds of elapsed time ago. A record with an earlier date is older."""
        moment = now.wall - age
        for leap in reversed(self.jumps):
            if moment >= leap.to:
                break
            moment -= leap.by
        return moment

    def shown(self, since: float, now: Instant) -> float:
        """Return the wall time that the clock would show now if it had not been set forward since it showed `since`."""
        return now.wall - sum(leap.by for leap in self.jumps if leap.to > since)

    def _elapsed(self, now: Instant) -> float:
        if now.boot_id == self.seen.boot_id:
            return max(0.0, now.boottime - self.seen.boottime)
        return min(OFF_AT_MOST, max(0.0, now.wall - self.seen.wall))

    def _undo_jumps(self, now: Instant, by: float) -> tuple[ClockJump, ...]:
        """Return the jumps after the clock was set back by `by` seconds. A jump to a time that is now
        ahead of the clock is shortened or removed."""
        kept: list[ClockJump] = []
        for leap in reversed(self.jumps):
            undone = min(by, leap.by) if leap.to > now.wall else 0.0
            by -= undone
            if leap.by - undone > SMALL:
                kept.append(replace(leap, to=min(leap.to, now.wall), by=leap.by - undone))
        return tuple(reversed(kept))


def _merge_oldest(leaps: tuple[ClockJump, ...]) -> tuple[ClockJump, ...]:
    """Merge the two oldest jumps into one, with the later time and the sum of both jumps. The merge makes records live
    longer, never shorter."""
    while len(leaps) > MOST:
        leaps = (ClockJump(leaps[1].to, leaps[0].by + leaps[1].by), *leaps[2:])
    return leaps


def history_to_json(passing: ClockHistory) -> dict[str, object]:
    seen = passing.seen
    return {
        "wall": seen.wall,
        "boottime": seen.boottime,
        "boot_id": seen.boot_id,
        "leaps": [[leap.to, leap.by] for leap in passing.jumps],
    }


def history_from_json(found: Mapping[str, object]) -> ClockHistory:
    """Rebuild the state. Raise KeyError, TypeError or ValueError for data of another form."""
    leaps = found["leaps"]
    if not isinstance(leaps, list):
        raise TypeError("leaps are a list")
    return ClockHistory(
        Instant(wall=float(str(found["wall"])), boottime=float(str(found["boottime"])), boot_id=str(found["boot_id"])),
        tuple(ClockJump(float(to), float(by)) for to, by in leaps),
    )
