"""What a command prints must not fill the disk: while it runs, the middle of its log is let go, as a keeper does with
an agent's output. Its beginning and its end stay where they are."""

from __future__ import annotations

import asyncio
import ctypes
import os

HEAD_KEPT = 1 << 20
TAIL_KEPT = 4 << 20
PUNCH_AT_LEAST = 4 << 20
LOOK_EVERY = 0.2  # seconds
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_libc = ctypes.CDLL(None)
if hasattr(_libc, "fallocate"):
    _libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Bounded:
    """`with Bounded(log):` around a command that prints into it. Looks by a timer: nothing of it is awaited."""

    def __init__(self, log: int) -> None:
        self._log = log
        self._punched = HEAD_KEPT
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._look_later()

    def __exit__(self, *_why: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._make_room()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._make_room()
        self._look_later()

    def _make_room(self) -> None:
        end = (os.fstat(self._log).st_size - TAIL_KEPT) & ~0xFFF  # whole blocks
        if end - self._punched < PUNCH_AT_LEAST:
            return
        mode, size = _PUNCH_HOLE | _KEEP_SIZE, end - self._punched
        if _libc.fallocate(self._log, mode, self._punched, size) == 0:  # else: this file system cannot
            self._punched = end
