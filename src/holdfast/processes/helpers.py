"""Helpers: short-lived commands of the supervisor (git, set-up scripts), each in a process group with a deadline.

Helpers of a dead supervisor must be ended: a git that is still checking out would fight with the git that recovery
starts. Every helper, and whatever a helper starts, inherits a descriptor of one lock file. So a process that has that
file open is a helper of this home. With that proof the next supervisor ends the helpers that the last one left.

A helper may also leave processes outside its process group. They are found by a mark in their environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO

from holdfast.base import faults
from holdfast.base.errors import Unavailable
from holdfast.processes.children import Children
from holdfast.processes.identity import identify, signal_exactly
from holdfast.processes.open_files import processes_with_open

NAME = "helpers.lock"
LOCK_PATIENCE = 10.0
TERM_PATIENCE = 0.25  # seconds; on TERM git removes its lock files, which after a KILL would block every other git


class HelperLock:
    """The lock file that all helpers of a home inherit.

    The process that holds the home's lock makes this file, before it starts any other process.
    """

    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, NAME)
        self.fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def take(self) -> None:
        """End every helper of an earlier supervisor. The exclusive lock proves that none is left. Then hold the lock
        shared."""
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - began > LOCK_PATIENCE:
                    raise Unavailable(
                        f"A helper of an earlier supervisor cannot be ended (it holds {self._path}). "
                        f"Find the process with `fuser {self._path}`, end it, then run `holdfast up` again."
                    ) from None
            faults.passed("helpers.end")
            number = signal.SIGTERM if time.monotonic() - began < TERM_PATIENCE else signal.SIGKILL
            for pid in processes_with_open(os.fstat(self.fd)):
                identity = identify(pid)
                if identity is not None:
                    signal_exactly(identity, number)
            time.sleep(0.01)  # a killed process releases its locks within milliseconds
        fcntl.flock(self.fd, fcntl.LOCK_SH)

    def close(self) -> None:
        os.close(self.fd)


VARIABLE = "HOLDFAST_HELPER"  # holds the mark of a set-up command, in its environment and that of all it starts
PATIENCE = 5.0


QUIET = 5  # searches in a row that must find nothing: a process that just forks or execs may be missed by one


def kill_marked(mark: str) -> None:
    """Kill every process that carries `mark`, until none is left. Blocks for milliseconds, because a kill is quick."""
    deadline = time.monotonic() + PATIENCE
    ended: set[int] = set()
    others: set[int] = set()
    quiet = 0
    while quiet < QUIET and time.monotonic() < deadline:
        found = _find_marked(mark, others)
        quiet = 0 if found else quiet + 1
        for pid in found:
            identity = identify(pid)
            if identity is not None:
                signal_exactly(identity, signal.SIGKILL)
                ended.add(pid)
        time.sleep(0.002)
        ended = {pid for pid in ended if not _is_reaped(pid)}
    while (ended := {pid for pid in ended if not _is_reaped(pid)}) and time.monotonic() < deadline:
        time.sleep(0.002)


def _find_marked(mark: str, others: set[int]) -> list[int]:
    """Return the processes that carry `mark` in their environment.

    A zombie has no environment, so it is never returned. A process in the middle of an exec has none either.
    `others` collects the processes with an environment without the mark: they are not read again.
    """
    wanted = f"{VARIABLE}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and (pid := int(name)) not in others:
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
                if wanted in environment.split(b"\0"):
                    found.append(pid)
                elif environment:
                    others.add(pid)
    return found


def _is_reaped(pid: int) -> bool:
    """True if no zombie of that process is left. The process is reaped if it became our child when its parent died."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


class HelperRunner:
    """The runner of one command. On a cancel or timeout its whole group is ended and reaped before the call returns.

    Output goes to unlinked temporary files: a grandchild could hold a pipe open, and the size is not limited.
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
        """Run a command and return (exit code, output, error output).

        `output`: a descriptor that gets everything the command prints, instead of the caller. `mark`: all processes
        that the command starts carry this mark and are ended with the command, whatever group they are in. Processes
        that dropped their environment are found by an inherited open file.
        """
        if mark is None:
            return await self._run(argv, cwd, env, timeout, stdin, output)
        with tempfile.TemporaryFile() as badge:
            try:
                marked = {**env, VARIABLE: mark}
                return await self._run(argv, cwd, marked, timeout, stdin, output, badge.fileno())
            finally:
                kill_marked(mark)
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
    """Wait until our child `pid` has ended. It stays a zombie until it is reaped."""
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
