"""A program on a terminal of ours: started on a pty, drained as a terminal would, and timed by what it draws."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence

from bench.proc import Patience

SIZE = (120, 40)
PATIENCE = 60.0
TICK = os.sysconf("SC_CLK_TCK")
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")


class Screen:
    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
        self._drawn, self._changed = bytearray(), threading.Condition()
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            env={**env, "TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def seconds_until(self, words: str) -> float:
        """From its start (or the last `forget`) until the words are drawn."""
        wanted, patience = words.encode(), Patience(PATIENCE)
        with self._changed:
            while wanted not in _ESCAPES.sub(b"", bytes(self._drawn)):
                if patience.is_over() or self._process.poll() is not None:
                    raise RuntimeError(f"{words!r} is never drawn: {bytes(self._drawn[-2000:])!r}")
                self._changed.wait(0.5)
            return time.perf_counter() - self.began

    def forget(self) -> int:
        """What was drawn so far; how many bytes that were."""
        with self._changed:
            many = len(self._drawn)
            self._drawn.clear()
            self.began = time.perf_counter()
        return many

    def cpu_seconds(self) -> float:
        """Of all its threads, those that ended included."""
        with open(f"/proc/{self.pid}/stat", "rb") as stat:
            user, system = stat.read().rpartition(b")")[2].split()[11:13]
        return (int(user) + int(system)) / TICK

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=10)
        os.close(self._master)
        self._reader.join(timeout=5)

    def _drain(self) -> None:
        while True:
            try:
                found = os.read(self._master, 65536)
            except OSError:  # its last end was closed
                return
            with self._changed:
                self._drawn += found
                self._changed.notify_all()
