"""Waiting for the user's garbage collection: it lists all worktrees and reads them one by one, and ends with an error
when one vanishes in between ("Invalid path …/worktrees/…"). Git's own removal does that to it as well."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from holdfast.base.errors import Unavailable, WorkspaceProblem
from holdfast.base.files import plainly
from holdfast.workspaces.names import REPO_LOCK

LONGEST = 5.0  # seconds; one that takes longer is at its packing, where it looks at no worktree
PAUSE = 0.02


class UsersGc:
    """Waits for each of them once: a collection of an hour holds up one removal for seconds, not a thousand."""

    def __init__(self) -> None:
        self._waited: dict[str, int] = {}

    def runs(self, common_dir: str) -> bool:
        """Whether one runs for which we have not waited yet."""
        which = _running(common_dir)
        return which is not None and self._waited.get(common_dir) != which

    async def over(self, common_dir: str) -> None:
        """Until no collection runs in the repository, or we have waited long enough for the one that does."""
        deadline = time.monotonic() + LONGEST
        while self.runs(common_dir):
            if time.monotonic() > deadline:
                self._waited[common_dir] = _running(common_dir) or 0
                return
            await asyncio.sleep(PAUSE)


def _running(common_dir: str) -> int | None:
    """Which collection runs, by the time of its file `gc.pid` ("PID HOST"). One of another machine is not seen."""
    path = os.path.join(common_dir, "gc.pid")
    try:
        with open(path, encoding="utf-8", errors="replace", opener=plainly) as file:
            pid, _, host = file.read(512).strip().partition(" ")
        if host != socket.gethostname() or not os.path.exists(f"/proc/{int(pid)}"):
            return None
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError):
        return None


PATIENCE = 60.0


def repo_lock(common_dir: str) -> AbstractAsyncContextManager[None]:
    """Hold the lock in the git common directory, which other homes use too."""
    return file_lock(os.path.join(common_dir, REPO_LOCK), mode=0o644)


@asynccontextmanager
async def file_lock(
    path: str, *, shared: bool = False, patience: float = PATIENCE, mode: int = 0o600
) -> AsyncIterator[None]:
    """A flock, exclusive or shared; released by the kernel when we die."""
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
