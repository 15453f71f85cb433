"""The Observer port: watches runs from outside, with inotify, run directories and /proc.

One inotify queue reports which runs wrote something. It serves all runs and is read at most twenty times a second.
inotify is called through ctypes, because the standard library has no interface to it.

Where inotify is missing (or has no watches left), the runs that it cannot watch are reported as changed every POLL
seconds. The receiver checks for itself anyway, and a false "changed" costs only four stat calls.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable, Mapping

from holdfast.core.health.signs import SignReader
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.processes.observe.process_tree import read_trees
from holdfast.processes.observe.run_view import RunView, start_time_of
from holdfast.processes.port import ProcessTree
from holdfast.processes.run_dir import CHANNEL

IN_MODIFY, IN_ATTRIB, IN_MOVED_TO, IN_CREATE = 0x2, 0x4, 0x80, 0x100
IN_Q_OVERFLOW, IN_IGNORED = 0x4000, 0x8000
_HEADER = struct.Struct("iIII")
_BLOCK = 1 << 16


class Inotify:
    """One inotify queue. Its calls raise OSError if the system has no inotify, or no room for another queue or
    watch."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, "this system has no inotify")
        self.fd = self._check_result(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, path: str, mask: int) -> int:
        """Watch a file and return the watch's number: the same number for the same file."""
        return self._check_result(self._libc.inotify_add_watch(self.fd, os.fsencode(path), mask))

    def remove(self, watch: int) -> None:
        self._libc.inotify_rm_watch(self.fd, watch)  # an error is ignored: the watch was removed with its file

    def read(self) -> list[tuple[int, int]]:
        """Return (watch, mask) of all new events. The watch is -1 when the kernel had to drop some."""
        found: list[tuple[int, int]] = []
        while True:
            try:
                block = os.read(self.fd, _BLOCK)
            except BlockingIOError:
                return found
            position = 0
            while position < len(block):
                watch, mask, _cookie, length = _HEADER.unpack_from(block, position)
                position += _HEADER.size + length
                found.append((watch, mask))

    def close(self) -> None:
        os.close(self.fd)

    @staticmethod
    def _check_result(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"inotify: {os.strerror(number)}")
        return result


COALESCE = 0.05
POLL = 2.0
_LOGS = ("out.log", "err.log")
# The run directory itself is not watched for writes: our heartbeats to the keeper's FIFO would wake us.
_WATCHED = (
    *((name, IN_MODIFY) for name in _LOGS),
    ("", IN_MOVED_TO),  # exit.json appears when the leader has ended
    (CHANNEL, IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_MOVED_TO),
)


class RunChanges:
    """The watched runs. `on_change(run_id, is_output)` is called on the loop's thread when a run wrote something.

    `is_output`: the run wrote only to its logs.
    """

    def __init__(self, on_change: Callable[[str, bool], None]) -> None:
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._watches: dict[str, list[int]] = {}
        self._runs: dict[int, tuple[str, bool]] = {}
        self._polled: set[str] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._poll: asyncio.TimerHandle | None = None
        try:
            self._inotify: Inotify | None = Inotify()
            self._listen()
        except OSError:
            self._inotify = None

    def watch(self, run_id: str, path: str) -> None:
        watches = self._watches[run_id] = []
        try:
            if self._inotify is None:
                raise OSError("no inotify")
            for name, mask in _WATCHED:
                watch = self._inotify.add(f"{path}/{name}" if name else path, mask)
                watches.append(watch)
                self._runs[watch] = run_id, name in _LOGS
        except OSError:
            self._polled.add(run_id)
            self._start_polling()

    def unwatch(self, run_id: str) -> None:
        self._polled.discard(run_id)
        for watch in self._watches.pop(run_id, []):
            if self._runs.pop(watch, None) is not None and self._inotify is not None:
                self._inotify.remove(watch)

    def close(self) -> None:
        for timer in (self._pause, self._poll):
            if timer is not None:
                timer.cancel()
        if self._inotify is not None:
            self._loop.remove_reader(self._inotify.fd)
            self._inotify.close()
            self._inotify = None

    def _listen(self) -> None:
        self._pause = None
        if self._inotify is not None:
            self._loop.add_reader(self._inotify.fd, self._read)

    def _read(self) -> None:
        assert self._inotify is not None
        self._loop.remove_reader(self._inotify.fd)  # events wait in the queue meanwhile, and are then read together
        self._pause = self._loop.call_later(COALESCE, self._listen)
        changed: set[tuple[str, bool]] = set()
        for watch, mask in self._inotify.read():
            if watch == -1:  # the queue was full: anything may have changed
                changed.update((run_id, False) for run_id in self._watches)
            elif mask & IN_IGNORED:
                self._runs.pop(watch, None)
            elif watch in self._runs:
                changed.add(self._runs[watch])
        for run_id, is_output in changed:
            self._on_change(run_id, is_output)

    def _start_polling(self) -> None:
        if self._poll is None:
            self._poll = self._loop.call_later(POLL, self._report_polled)

    def _report_polled(self) -> None:
        self._poll = None
        for run_id in list(self._polled):
            self._on_change(run_id, False)
        if self._polled:
            self._start_polling()


class RunObserver:
    """The Observer port on inotify and /proc. Must be made on the loop's thread. See the port for `on_change`."""

    def __init__(self, root: str, on_change: Callable[[str, bool], None]) -> None:
        self._root = root
        self._changes = RunChanges(on_change)

    def watch(self, run_id: str, signs: SignReader | None, agent: ProcessIdentity | None, now: float) -> RunView:
        """Begin to watch a run. `agent` is given for a run of an earlier supervisor: its start time is the run's."""
        path = os.path.join(self._root, run_id)
        view = RunView(path, signs, now if agent is None else start_time_of(agent, now))
        if agent is not None:
            view.take_over(now)
        self._changes.watch(run_id, path)
        return view

    def unwatch(self, run_id: str) -> None:
        self._changes.unwatch(run_id)

    def trees(self, roots: Mapping[str, ProcessIdentity]) -> dict[str, ProcessTree]:
        return read_trees(roots)

    def close(self) -> None:
        self._changes.close()
