"""How old something is, for whoever deletes what is old: in time that passed, whatever the clock was set to."""

from __future__ import annotations

from typing import Protocol

from holdfast.core.model import Instant


class Timekeeper(Protocol):
    """Who knows how much time has passed."""

    def ago(self, age: float, now: Instant) -> float:
        """The wall time before which everything is older than `age`."""
        ...

    def shown(self, since: float, now: Instant) -> float:
        """What the clock would show if nobody had set it forward since it showed `since`."""
        ...


class BelievesTheClock:
    """Where nobody remembers: an attempt that is driven alone."""

    def ago(self, age: float, now: Instant) -> float:
        return now.wall - age

    def shown(self, since: float, now: Instant) -> float:
        return now.wall
