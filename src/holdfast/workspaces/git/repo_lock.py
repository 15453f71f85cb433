"""Waiting for the user's garbage collection: it lists all worktrees and reads them one by one, and ends with an error
when one vanishes in between ("Invalid path …/worktrees/…"). Git's own removal does that to it as well."""

from __future__ import annotations

import asyncio
import os
import socket
import time

from holdfast.base.folders import plainly

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
