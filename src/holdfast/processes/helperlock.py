"""Helpers of a dead supervisor: a git that goes on checking out would fight with the one that recovery starts.

Every helper (and whatever it starts) inherits a descriptor of one lock file. Whoever has that file open is a helper of
this home: that is the proof of ownership with which the next supervisor ends what the last one left.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time

from holdfast.base import faults
from holdfast.base.errors import Unavailable
from holdfast.processes.identity import identify, signal_exactly
from holdfast.processes.open_files import processes_with_open

NAME = "helpers.lock"
PATIENCE = 10.0
TERM_PATIENCE = 0.25  # git removes its lock files on TERM; after a KILL they would stand in everybody's way


class HelperLock:
    """Made by the holder of the home's lock, before it starts anything."""

    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, NAME)
        self.fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> None:
        """End every helper of an earlier supervisor, prove it by the lock, and hold it shared for our own."""
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - began > PATIENCE:
                    raise Unavailable(
                        f"A helper of an earlier supervisor cannot be ended (it holds {self._path}). "
                        "Look with `fuser`, end it, and start again."
                    ) from None
            faults.passed("helpers.end")
            number = signal.SIGTERM if time.monotonic() - began < TERM_PATIENCE else signal.SIGKILL
            for pid in processes_with_open(os.fstat(self.fd)):
                identity = identify(pid)
                if identity is not None:
                    signal_exactly(identity, number)
            time.sleep(0.01)  # a killed process lets go of its locks within milliseconds
        fcntl.flock(self.fd, fcntl.LOCK_SH)

    def close(self) -> None:
        os.close(self.fd)
