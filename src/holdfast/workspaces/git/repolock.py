"""One git administration at a time per repository: parallel `worktree add` on one repo fails."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from holdfast.base.errors import Unavailable, WorkspaceProblem
from holdfast.workspaces.names import REPO_LOCK

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
