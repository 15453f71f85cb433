"""One reading of the clocks, as a value. Alone, because the pure core may import it and `base/clock.py` not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Instant:
    """One reading of the clocks that durable decisions need."""

    wall: float  # seconds since the epoch; may jump
    boottime: float  # CLOCK_BOOTTIME; never jumps, counts sleep, starts anew at boot
    boot_id: str  # which boot the second number belongs to

    def since(self, earlier: Instant) -> float:
        """Seconds since `earlier`: exact within one boot, clamped wall time across boots (never negative)."""
        if self.boot_id == earlier.boot_id:
            return self.boottime - earlier.boottime
        return max(0.0, self.wall - earlier.wall)
