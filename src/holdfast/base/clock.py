"""The one module that reads clocks. All other modules take an `Instant`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from functools import lru_cache

from holdfast.base.errors import UsageError
from holdfast.base.instant import Instant

LONGEST_OFFSET = 300 * 365.25 * 86400
Clock = Callable[[], Instant]
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Return the id of the present boot. No process survives a change of it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        # macOS has no boot id. The boot's wall time is steady enough to distinguish two boots.
        return f"boot-{int((time.time() - time.monotonic()) // 60)}"


def boottime() -> float:
    """Return the seconds since boot, sleep included, where the system has such a clock."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def monotonic() -> float:
    """Return the seconds of a clock that stands still while the machine sleeps, to measure how long an agent was
    silent. The clock is the same for all processes, and restarts at each boot."""
    return time.monotonic()


def own_cpu() -> float:
    """Return the CPU seconds that this thread has used: the cost of Holdfast's own work, however busy the machine
    is."""
    return time.thread_time()


def file_time() -> float:
    """Return the time by the clock that stamps files. Tests never move it."""
    return time.time()


def now() -> Instant:
    """Read the system's clocks. HOLDFAST_CLOCK_OFFSET moves the wall clock in tests."""
    return Instant(wall=time.time() + _offset(), boottime=boottime(), boot_id=boot_id())


@lru_cache(maxsize=1)
def _offset() -> float:
    given = os.environ.get("HOLDFAST_CLOCK_OFFSET", "0")
    try:
        offset = float(given)
    except ValueError:
        offset = math.nan
    if not abs(offset) <= LONGEST_OFFSET:  # nan is refused too
        raise UsageError(f"HOLDFAST_CLOCK_OFFSET is '{given}', not a number of seconds within 300 years.")
    return offset
