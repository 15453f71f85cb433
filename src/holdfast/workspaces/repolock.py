"""One git administration at a time per repository: parallel `worktree add` on one repo fails."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.errors import WorkspaceProblem
from holdfast.workspaces.names import REPO_LOCK

PATIENCE = 60.0


@asynccontextmanager
async def repo_lock(common_dir: str) -> AsyncIterator[None]:
    """Hold the lock in the git common directory, which other homes use too. Released when we die."""
    try:
        fd = os.open(os.path.join(common_dir, REPO_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise WorkspaceProblem(f"The repository {common_dir} cannot be used: {error.strerror}.") from error
    try:
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + PATIENCE, 0.002
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if loop.time() > deadline:
                    raise WorkspaceProblem(
                        f"The repository {common_dir} stayed locked by another Holdfast for {PATIENCE:.0f} s."
                    ) from None
            await asyncio.sleep(pause)
            pause = min(0.05, pause * 1.5)
        yield
    finally:
        os.close(fd)
