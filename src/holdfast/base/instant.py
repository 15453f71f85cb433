"""One reading of the clocks, as a value. The value has its own module, because the pure core may import that module,
but not `base/clock.py`."""

from __future__ import annotations

from typing import NamedTuple


class Instant(NamedTuple):
    """One reading of the clocks that durable decisions need.

    A named tuple, because every command imports this module: the import of dataclasses costs 4 ms, a third of Python's
    own start.
    """

    wall: float  # seconds since the epoch; may jump
    boottime: float  # CLOCK_BOOTTIME; never jumps, counts sleep, starts again at boot
    boot_id: str  # the boot that `boottime` belongs to

    def since(self, earlier: Instant) -> float:
        """Return the seconds since `earlier`: exact within a boot, clamped wall time across boots (never negative)."""
        if self.boot_id == earlier.boot_id:
            return self.boottime - earlier.boottime
        return max(0.0, self.wall - earlier.wall)
