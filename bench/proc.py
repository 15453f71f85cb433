"""What the kernel says about processes: the witness of the process benchmarks. Nothing of ours is asked."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

KIB = 1024
TICK = os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    """Bytes. `private`: only this process has them; `fair`: shared pages divided among those who share them (PSS)."""

    resident: int
    fair: int
    private: int


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def children(pid: int) -> list[int]:
    return [other for other in pids() if parent(other) == pid]


def cpu_seconds(pid: int) -> float:
    """Of all its threads, to the nanosecond; threads that ended are not counted."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError):
            total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
    return total / 1e9


def wakes(pid: int) -> int:
    """How often its threads went to sleep by themselves: as often as they were woken."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(f"/proc/{pid}/task/{thread}/status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    total += int(line.split()[1])
    return total


def memory(pid: int) -> Memory:
    found = {"Rss": 0, "Pss": 0, "Private_Clean": 0, "Private_Dirty": 0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in found:
            found[name] = int(rest.split()[0]) * KIB
    return Memory(found["Rss"], found["Pss"], found["Private_Clean"] + found["Private_Dirty"])


def holders(witness: Path) -> list[int]:
    """Who has that file open: an inherited descriptor survives exec, sessions, groups and scrubbed environments."""
    target = os.stat(witness)
    found = []
    for pid in pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and _has_open(pid, target):
                found.append(pid)
    return found


def _has_open(pid: int, target: os.stat_result) -> bool:
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{fd}"), target):
                return True
    return False


def end(processes: Iterable[int], witness: Path) -> None:
    """End what a benchmark started and nobody else has ended: only who still holds the witness, through a pidfd."""
    target = os.stat(witness)
    for pid in processes:
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            try:
                if _has_open(pid, target):
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
            finally:
                os.close(fd)


class Patience:
    """How long a fact is waited for: seconds in which the machine had CPU time left.

    While others keep every core busy, time counts little: a benchmark is slow then, and not stuck. It counts a
    twentieth at least, so that each wait ends.
    """

    LEAST = 0.05

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._at, self._cores = time.monotonic(), _core_seconds()

    def is_over(self) -> bool:
        now, cores = time.monotonic(), _core_seconds()
        idle, busy = cores[0] - self._cores[0], cores[1] - self._cores[1]
        if idle + busy >= 0.5:  # the kernel counts in ticks of 10 ms: too few of them tell nothing
            self._left -= (now - self._at) * max(self.LEAST, idle / (idle + busy))
            self._at, self._cores = now, cores
        return self._left <= 0


def _core_seconds() -> tuple[float, float]:
    """Seconds that all cores together were idle, and busy. Waiting for a disk is idle."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return idle / TICK, (sum(ticks) - idle) / TICK
