"""Processes that still use a workspace: a `holdfast shell`, known by its lock, and others, found in /proc (R-CLEAN-08).

A shell holds a shared lock on a file of the workspace as long as one of its processes lives. The removal of the
workspace takes the same lock exclusively, so that no shell starts meanwhile. The kernel releases the locks of dead
processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.base.files import listed

FOLDER = "leases"
FRESH = 1.0  # seconds during which one scan of open files serves many removals


def lock_path(home: str, workspace_id: str) -> str:
    return os.path.join(home, FOLDER, workspace_id)


def lock_shared(home: str, workspace_id: str) -> int | None:
    """Take a shared lock and return a descriptor that children may inherit. None: the workspace is being removed."""
    return _try_lock(lock_path(home, workspace_id), fcntl.LOCK_SH)


@contextlib.contextmanager
def lock_exclusive(home: str, workspace_id: str) -> Iterator[bool]:
    """Lock the workspace exclusively, so that no shell can start in it. Yields False if a shell is using it."""
    path = lock_path(home, workspace_id)
    try:
        fd = _try_lock(path, fcntl.LOCK_EX)
    except OSError:  # e.g. a full disk. Without the file no shell runs and none can start, and the removal frees space.
        if os.path.exists(path):
            raise
        yield True
        return
    if fd is None:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # while locked: a process that has opened the file can see that it was replaced
        os.close(fd)


def clear_dead_locks(home: str) -> None:
    """Remove, at start-up, the lock files whose holders are dead."""
    for name in listed(os.path.join(home, FOLDER)):
        with lock_exclusive(home, name):
            pass


def _try_lock(path: str, how: int) -> int | None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        try:
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except FileNotFoundError:
            pass
        os.close(fd)  # the file was removed between open and flock: try again


@dataclass(slots=True)
class WorkspaceUsers:
    """A finder of processes that use a path: those of our user, or of all users for root. Our own process is excluded.

    To look at a process is to read one link for each of its open files. So the look at all processes serves all
    removals within a second, and each removal looks only at processes that are new since then. A process that was found
    to use the path is looked at again.
    """

    proc: str = "/proc"
    _seen: float = -FRESH
    _used: dict[int, list[str]] = field(default_factory=dict)

    def of(self, path: str) -> list[str]:
        """Return at most five processes that use `path` or anything below it, like "vim (pid 4711)"."""
        path = os.path.realpath(path)  # /proc shows real paths, even if the home is reached through a link
        found = [pid for pid, used in self._used_places().items() if _is_any_within(used, path)]
        # The look may be a second old. A process found there, such as a git of ours, may have ended since.
        return [f"{self._name(pid)} (pid {pid})" for pid in found if _is_any_within(self._places_of(pid), path)][:5]

    def _used_places(self) -> dict[int, list[str]]:
        """Return the working directory and the open files of every process, by pid."""
        now = time.monotonic()
        if now - self._seen >= FRESH:
            self._used, self._seen = {}, now
        pids = [int(name) for name in _names(self.proc) if name.isdigit() and int(name) != os.getpid()]
        self._used = {pid: self._used[pid] if pid in self._used else self._places_of(pid) for pid in pids}
        return self._used

    def _places_of(self, pid: int) -> list[str]:
        return [self._link(pid, "cwd"), *self._files_of(pid)]

    def _files_of(self, pid: int) -> list[str]:
        links = (self._link(pid, f"fd/{name}") for name in _names(os.path.join(self.proc, str(pid), "fd")))
        return [link for link in links if link.startswith("/") and not link.startswith(("/dev/", "/proc/", "/sys/"))]

    def _link(self, pid: int, name: str) -> str:
        try:
            return os.readlink(os.path.join(self.proc, str(pid), name))
        except OSError:
            return ""  # the process is gone, or belongs to another user

    def _name(self, pid: int) -> str:
        try:
            with open(os.path.join(self.proc, str(pid), "comm"), encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return "a process"


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # gone, or another user's process, which we cannot inspect


def _is_any_within(links: list[str], path: str) -> bool:
    return any(link == path or link.startswith(f"{path}/") for link in links)
