"""One git administration at a time per repository: parallel `worktree add` on one repo fails."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from holdfast.errors import Unavailable, WorkspaceProblem
from holdfast.workspaces.names import REPO_LOCK

PATIENCE = 60.0


def repo_lock(common_dir: str) -> AbstractAsyncContextManager[None]:
    """Hold the lock in the git common directory, which other homes use too."""
    return file_lock(os.path.join(common_dir, REPO_LOCK))


@asynccontextmanager
async def file_lock(path: str) -> AsyncIterator[None]:
    """An exclusive flock; released by the kernel when we die."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise WorkspaceProblem(f"The lock {path} cannot be used: {error.strerror}.") from error
    try:
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + PATIENCE, 0.002
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if loop.time() > deadline:
                    raise Unavailable(f"{path} stayed locked by another Holdfast for {PATIENCE:.0f} s.") from None
            await asyncio.sleep(pause)
            pause = min(0.05, pause * 1.5)
        yield
    finally:
        os.close(fd)
