"""The one place that reads clocks. Everything else takes an `Instant`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import lru_cache

from holdfast.core.model import Instant

Clock = Callable[[], Instant]
_OFFSET = float(os.environ.get("HOLDFAST_CLOCK_OFFSET", "0"))  # moves the wall clock in tests


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Which boot this is; no process survives a change of it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        # macOS has no boot id; the boot's wall time is steady enough to tell two boots apart.
        return f"boot-{int((time.time() - time.monotonic()) // 60)}"


def boottime() -> float:
    """Seconds since boot, sleep included, where the system has such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def now() -> Instant:
    """Now, by the system's clocks."""
    return Instant(wall=time.time() + _OFFSET, boottime=boottime(), boot_id=boot_id())
