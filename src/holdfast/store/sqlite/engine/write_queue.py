"""A fair queue in front of the database's write lock, and the processes that hold a file's lock.

SQLite's busy handler sleeps and tries again: with many writers one of them waits for seconds. A blocking flock wakes
waiters in turn. The queue is only a courtesy between our own processes: correctness rests on BEGIN IMMEDIATE. The
kernel's own list shows which process holds a lock. A person needs that when the store stays locked.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from holdfast.base.errors import Unavailable


def lock_holders(*paths: str) -> list[int]:
    """Return pids of other processes with a write lock on one of `paths`, or nothing if that cannot be determined."""
    wanted = {_device_and_inode(path) for path in paths}
    found: set[int] = set()
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file if "->" not in line]  # a line with an arrow is a waiter
    except OSError:
        return []
    for fields in lines:
        if len(fields) >= 6 and fields[3] == "WRITE" and fields[5] in wanted and fields[4].isdigit():
            found.add(int(fields[4]))
    return sorted(found - {0, os.getpid()})


def describe_holders(pids: list[int]) -> str:
    """Return a sentence about the processes that hold the lock, for an error message."""
    if not pids:
        return ""
    listed = ", ".join(f"{pid} ({_name(pid)})" for pid in pids)
    return f" It is held by pid {listed}: let that end, or continue it if it is stopped (kill -CONT)."


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "gone"


def _device_and_inode(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"


class WriteQueue:
    """The lock of the write queue. `patience`: seconds that the main thread waits for its turn."""

    def __init__(self, path: str, patience: float) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._patience = patience

    @contextmanager
    def turn(self) -> Iterator[None]:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait()
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _wait(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            fcntl.flock(self._fd, fcntl.LOCK_EX)  # the supervisor's writer thread has nothing else to do than wait
            return

        def give_up(_signal: int, _frame: FrameType | None) -> None:
            raise Unavailable(
                f"Another process has been writing to the store for {self._patience:.0f} s (lock {self._path}). "
                f"Nothing was written; try again.{describe_holders(lock_holders(self._path))}"
            )

        before = signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, self._patience)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def close(self) -> None:
        """Close the lock file. Idempotent: afterwards the descriptor's number may belong to another file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
