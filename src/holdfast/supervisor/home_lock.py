"""The lock of a home: one supervisor per home. The kernel drops the lock when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os

from holdfast.base import faults
from holdfast.base.errors import Conflict
from holdfast.base.home import refuse_foreign_home

NAME = "supervisor.lock"


class HomeLock:
    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, NAME)
        self._fd: int | None = None

    def take(self) -> None:
        refuse_foreign_home(os.path.dirname(self._path))
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            home = os.path.dirname(self._path)
            refuse_stopped(home, holder)
            raise Conflict(
                f"A supervisor is already running on {home} (pid {holder}). "
                "Use it as it is, or end it first with `holdfast down`."
            ) from None
        faults.passed("home.locked")
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        self._fd = fd

    def is_held(self) -> bool:
        """True if the file at the lock's path is still the file that this process has locked.

        The file may have been removed, with or without the home. Then a second supervisor could start.
        """
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        if self._fd is None:
            return False
        held = os.fstat(self._fd)
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def has_lock_file(home: str) -> bool:
    return os.path.exists(os.path.join(home, NAME))


def refuse_stopped(home: str, pid: str) -> None:
    """Raise Conflict if the supervisor is stopped by a signal: it would never answer."""
    if _is_stopped(pid):
        raise Conflict(
            f"The supervisor of {home} (pid {pid}) is stopped (SIGSTOP, or Ctrl-Z) and does nothing. "
            f"Let it continue with `kill -CONT {pid}`; or end it with `kill -9 {pid}` and start again."
        ) from None


def _is_stopped(pid: str) -> bool:
    try:
        with open(f"/proc/{int(pid)}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, ValueError):
        return False
