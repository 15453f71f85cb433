"""Short-lived commands of the supervisor (git, set-up scripts): in a group of their own, killable, with a deadline."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO

from holdfast.processes.children import Children
from holdfast.processes.helperlock import HelperLock
from holdfast.processes.marked import VARIABLE, end_marked


class HelperRunner:
    """Runs one command to its end. Cancelled or late, its whole group is ended and reaped before we return.

    Output goes to unlinked temporary files: no pipe that a grandchild could hold open, no limit on its size.
    """

    def __init__(self, children: Children, lock: HelperLock | None = None) -> None:
        self._children = children
        self._lock = lock

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        timeout: float,
        stdin: bytes = b"",
        output: int | None = None,
        mark: str | None = None,
    ) -> tuple[int, bytes, bytes]:
        """`output`: a descriptor that gets everything it prints, instead of us. `mark`: what it starts carries this,
        and ends with it, whatever group it went to; also what dropped its environment, by a file that it has open."""
        if mark is None:
            return await self._run(argv, cwd, env, timeout, stdin, output)
        with tempfile.TemporaryFile() as badge:
            try:
                marked = {**env, VARIABLE: mark}
                return await self._run(argv, cwd, marked, timeout, stdin, output, badge.fileno())
            finally:
                end_marked(mark)
                self._children.end_strays_with(os.fstat(badge.fileno()))

    async def _run(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        timeout: float,
        stdin: bytes,
        output: int | None,
        badge: int | None = None,
    ) -> tuple[int, bytes, bytes]:
        kept = () if self._lock is None else (self._lock.fd,)
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            tempfile.TemporaryFile() as given,
        ):
            given.write(stdin)
            given.seek(0)
            pid = self._children.spawn(
                argv,
                cwd=cwd,
                env=env,
                stdin=given.fileno() if stdin else subprocess.DEVNULL,
                stdout=out.fileno() if output is None else output,
                stderr=err.fileno() if output is None else output,
                pass_fds=kept if badge is None else (*kept, badge),
            )
            try:
                async with asyncio.timeout(timeout):
                    await wait_exit(pid)
            except TimeoutError:
                self._children.end_group_and_reap(pid)
                return 124, _content(out), f"timed out after {timeout:.0f} s: {' '.join(argv)}".encode()
            except BaseException:
                self._children.end_group_and_reap(pid)
                raise
            return self._children.kill_group_and_reap(pid), _content(out), _content(err)


async def wait_exit(pid: int) -> None:
    """Until our child `pid` has ended (it stays a zombie until it is reaped)."""
    fd = os.pidfd_open(pid)
    try:
        await wait_readable(fd)
    finally:
        os.close(fd)


async def wait_readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def note() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, note)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
