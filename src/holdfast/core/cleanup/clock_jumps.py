"""How much time has passed, whatever the wall clock was set to. Pure.

Records carry the wall time at which they were made. A clock that is set forward makes all of them old at once, and what
is old is deleted for good. So every leap that no time stands behind is remembered, and whoever asks for the moment a
month ago is given the wall time that was shown after a month less of *lived* time: within a boot as CLOCK_BOOTTIME
counted it (a machine that sleeps lives), across boots as the wall clock says, but a week at the most.

A clock that is set back needs no memory: records from its future are young until it gets there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from holdfast.base.instant import Instant

SMALL = 60.0  # seconds; less is drift, or a daemon that keeps the time
OFF_AT_MOST = 7 * 86400.0  # seconds for which a machine that was off is believed to have been off
MOST = 32  # leaps that are remembered apart


@dataclass(frozen=True, slots=True)
class Leap:
    """The clock showed `to` when it was seen that it had been set forward by `by` seconds."""

    to: float
    by: float


@dataclass(frozen=True, slots=True)
class Passing:
    """What the clocks showed when they were last looked at, and where the wall clock leapt, oldest first."""

    seen: Instant
    leaps: tuple[Leap, ...] = ()

    def moved(self, now: Instant) -> float:
        """Seconds by which the wall clock was set since it was last seen; small ones count as none."""
        went = now.wall - self.seen.wall
        by = went - self._lived(now)
        return by if abs(by) > SMALL else 0.0

    def after(self, now: Instant) -> Passing:
        by = self.moved(now)
        if by > 0:
            return Passing(now, _few((*self.leaps, Leap(now.wall, by))))
        return Passing(now, self._taken_back(now, -by) if by < 0 else self.leaps)

    def restored(self, made_at: float, now: Instant) -> Passing:
        """Records of that moment were brought back: they lived in none of the time since."""
        by = now.wall - made_at
        return Passing(now, _few((*self.leaps, Leap(now.wall, by)))) if by > SMALL else self

    def moment(self, age: float, now: Instant) -> float:
        """The wall time that was shown before `age` seconds of lived time: what is dated earlier is older than that."""
        moment = now.wall - age
        for leap in reversed(self.leaps):
            if moment >= leap.to:
                break
            moment -= leap.by
        return moment

    def shown(self, since: float, now: Instant) -> float:
        """What the clock would show if nobody had set it forward since it showed `since`."""
        return now.wall - sum(leap.by for leap in self.leaps if leap.to > since)

    def _lived(self, now: Instant) -> float:
        if now.boot_id == self.seen.boot_id:
            return max(0.0, now.boottime - self.seen.boottime)
        return min(OFF_AT_MOST, max(0.0, now.wall - self.seen.wall))

    def _taken_back(self, now: Instant, by: float) -> tuple[Leap, ...]:
        """Leaps into what is the future again are undone by as much."""
        kept: list[Leap] = []
        for leap in reversed(self.leaps):
            undone = min(by, leap.by) if leap.to > now.wall else 0.0
            by -= undone
            if leap.by - undone > SMALL:
                kept.append(replace(leap, to=min(leap.to, now.wall), by=leap.by - undone))
        return tuple(reversed(kept))


def _few(leaps: tuple[Leap, ...]) -> tuple[Leap, ...]:
    """The two oldest become one, as late as the later and as wide as both: things are kept longer, never shorter."""
    while len(leaps) > MOST:
        leaps = (Leap(leaps[1].to, leaps[0].by + leaps[1].by), *leaps[2:])
    return leaps


def as_json(passing: Passing) -> dict[str, object]:
    seen = passing.seen
    return {
        "wall": seen.wall,
        "boottime": seen.boottime,
        "boot_id": seen.boot_id,
        "leaps": [[leap.to, leap.by] for leap in passing.leaps],
    }


def of_json(found: Mapping[str, object]) -> Passing:
    """Raises KeyError, TypeError or ValueError when it is none."""
    leaps = found["leaps"]
    if not isinstance(leaps, list):
        raise TypeError("leaps are a list")
    return Passing(
        Instant(wall=float(str(found["wall"])), boottime=float(str(found["boottime"])), boot_id=str(found["boot_id"])),
        tuple(Leap(float(to), float(by)) for to, by in leaps),
    )
