"""Who still uses a workspace: a `holdfast shell` by its lock, anybody else by what /proc says (R-CLEAN-08).

A shell holds a shared lock on a file of the workspace for as long as one of its processes lives; whoever removes the
workspace takes the same lock alone, so that nobody enters while it goes. The kernel forgets the locks of the dead.
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
FRESH = 1.0  # seconds for which one look at what processes have open serves many removals


def path_of(home: str, workspace_id: str) -> str:
    return os.path.join(home, FOLDER, workspace_id)


def enter(home: str, workspace_id: str) -> int | None:
    """A shared lock, as a descriptor that children may inherit; None: it is just being put away."""
    return _locked(path_of(home, workspace_id), fcntl.LOCK_SH)


@contextlib.contextmanager
def sole_use(home: str, workspace_id: str) -> Iterator[bool]:
    """While this lasts nobody enters. False: somebody is in it."""
    path = path_of(home, workspace_id)
    try:
        fd = _locked(path, fcntl.LOCK_EX)
    except OSError:  # a full disk, say: without the file nobody is in it, and nobody can enter; removing makes room
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
            os.unlink(path)  # before the lock goes: who opened it meanwhile sees that it is not the file any more
        os.close(fd)


def clear(home: str) -> None:
    """At start-up: files whose holders are dead."""
    for name in listed(os.path.join(home, FOLDER)):
        with sole_use(home, name):
            pass


def _locked(path: str, how: int) -> int | None:
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
        os.close(fd)  # it was removed between the two: once more


@dataclass(slots=True)
class Users:
    """What processes of ours (or, for root, of anybody) stand in or have open. Our own process does not count."""

    proc: str = "/proc"
    _seen: float = -FRESH
    _open: dict[int, list[str]] = field(default_factory=dict)

    def of(self, path: str) -> list[str]:
        """Like "vim (pid 4711)", of at most five processes that use `path` or anything below it."""
        path = os.path.realpath(path)  # as /proc tells it, where the home is reached through a link
        found = [pid for pid in self._pids() if _is_within(self._link(pid, "cwd"), path)]
        open_ones = [pid for pid, files in self._files().items() if any(_is_within(file, path) for file in files)]
        # The look may be a second old: who was there then, a git of ours say, may have gone since.
        found += [pid for pid in open_ones if any(_is_within(file, path) for file in self._files_of(pid))]
        return [f"{self._name(pid)} (pid {pid})" for pid in dict.fromkeys(found)][:5]

    def _pids(self) -> list[int]:
        return [int(name) for name in _names(self.proc) if name.isdigit() and int(name) != os.getpid()]

    def _files(self) -> dict[int, list[str]]:
        """A look at every descriptor costs a hundred times as much as one at directories: not for every removal."""
        now = time.monotonic()
        if now - self._seen >= FRESH:
            self._open = {pid: self._files_of(pid) for pid in self._pids()}
            self._seen = now
        return self._open

    def _files_of(self, pid: int) -> list[str]:
        links = (self._link(pid, f"fd/{name}") for name in _names(os.path.join(self.proc, str(pid), "fd")))
        return [link for link in links if link.startswith("/") and not link.startswith(("/dev/", "/proc/", "/sys/"))]

    def _link(self, pid: int, name: str) -> str:
        try:
            return os.readlink(os.path.join(self.proc, str(pid), name))
        except OSError:
            return ""  # gone, or another user's

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
        return []  # gone, or another user's: nothing of it can be seen


def _is_within(link: str, path: str) -> bool:
    return link == path or link.startswith(f"{path}/")
