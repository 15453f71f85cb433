"""Waits that keep our git administration apart from other processes: the repository lock, and the user's git gc.

Only one process at a time may administer a repository, because parallel `worktree add` calls on one repository fail.
The user's garbage collection lists all worktrees and then reads them one by one. It fails if one vanishes in between
("Invalid path …/worktrees/…"). Git's own removal of a worktree has the same effect on it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from holdfast.base.errors import Unavailable, WorkspaceProblem
from holdfast.base.files import open_regular_file
from holdfast.workspaces.names import REPO_LOCK

LONGEST = 5.0  # seconds; a longer collection has reached its packing phase, in which it reads no worktrees
PAUSE = 0.02


class UserGcWaiter:
    """A waiter that waits once for each garbage collection: one that takes an hour delays one removal, not a
    thousand."""

    def __init__(self) -> None:
        self._waited: dict[str, int] = {}

    def runs(self, common_dir: str) -> bool:
        """True if a collection runs for which we have not waited yet."""
        which = _running_gc(common_dir)
        return which is not None and self._waited.get(common_dir) != which

    async def over(self, common_dir: str) -> None:
        """Wait until no collection runs in the repository, or until the running one has used up the waiting time."""
        deadline = time.monotonic() + LONGEST
        while self.runs(common_dir):
            if time.monotonic() > deadline:
                self._waited[common_dir] = _running_gc(common_dir) or 0
                return
            await asyncio.sleep(PAUSE)


def _running_gc(common_dir: str) -> int | None:
    """Return the mtime of `gc.pid` ("PID HOST") as the id of the running collection. None: no collection of this
    machine runs."""
    path = os.path.join(common_dir, "gc.pid")
    try:
        with open(path, encoding="utf-8", errors="replace", opener=open_regular_file) as file:
            pid, _, host = file.read(512).strip().partition(" ")
        if host != socket.gethostname() or not os.path.exists(f"/proc/{int(pid)}"):
            return None
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError):
        return None


PATIENCE = 60.0


def hold_repo_lock(common_dir: str) -> AbstractAsyncContextManager[None]:
    """Hold the lock file in the git common directory. Other homes use the same lock."""
    return hold_file_lock(os.path.join(common_dir, REPO_LOCK), mode=0o644)


@asynccontextmanager
async def hold_file_lock(
    path: str, *, shared: bool = False, patience: float = PATIENCE, mode: int = 0o600
) -> AsyncIterator[None]:
    """Hold a flock, exclusive or shared. The kernel releases it if our process dies."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    except OSError as error:
        raise WorkspaceProblem(f"The lock {path} cannot be used: {error.strerror}.") from error
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + patience, 0.002
        while True:
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if loop.time() > deadline:
                    raise Unavailable(f"{path} stayed locked by another Holdfast for {patience:.0f} s.") from None
            await asyncio.sleep(pause)
            pause = min(0.05, pause * 1.5)
        yield
    finally:
        os.close(fd)
