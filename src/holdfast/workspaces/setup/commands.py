"""Set-up, gate and teardown of a workspace: copied files that git does not carry, and user commands.

A gate is one command in a workspace whose exit code decides whether the agent's work passes. All commands are helpers:
each has its own process group and a deadline. Each ends when its caller is cancelled, or by the next supervisor if ours
dies. Background processes that a command leaves are ended with the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.base import faults
from holdfast.base.errors import WorkspaceProblem
from holdfast.base.ids import new_id
from holdfast.base.text import clean_text, one_line
from holdfast.base.units import show_duration
from holdfast.core.model import Repo, Strategy, Workspace
from holdfast.core.workflows.result import MOST_GATE, GateResult
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.git.hardening import environment
from holdfast.workspaces.names import setup_log
from holdfast.workspaces.port import CommandRunner, CopiedFiles, FailedCommand
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.setup import copy_files

HEAD_KEPT = 1 << 20
TAIL_KEPT = 4 << 20
PUNCH_AT_LEAST = 4 << 20
LOOK_EVERY = 0.2  # seconds
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_libc = ctypes.CDLL(None)
if hasattr(_libc, "fallocate"):
    _libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class LogLimit:
    """A size limit for the log of a command, used as `with LogLimit(log):` around it.

    A command's output must not fill the disk. While the command runs, the middle of its log is freed, as a keeper does
    with an agent's output. The log's beginning and end stay at their offsets. A timer checks the size, so nothing has
    to be awaited.
    """

    def __init__(self, log: int) -> None:
        self._log = log
        self._punched = HEAD_KEPT
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._schedule_check()

    def __exit__(self, *_why: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._free_middle()

    def _schedule_check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._free_middle()
        self._schedule_check()

    def _free_middle(self) -> None:
        end = (os.fstat(self._log).st_size - TAIL_KEPT) & ~0xFFF  # only whole blocks can be freed
        if end - self._punched < PUNCH_AT_LEAST:
            return
        mode, size = _PUNCH_HOLE | _KEEP_SIZE, end - self._punched
        if _libc.fallocate(self._log, mode, self._punched, size) == 0:  # otherwise the file system does not support it
            self._punched = end


_PERMANENT_ERRORS = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.E2BIG}
)  # a retry would not help


async def run_gate(
    runner: CommandRunner, log: str, workspace: Workspace, command: str, env: Mapping[str, str], timeout: float
) -> GateResult:
    """Run the gate's command. Its output replaces the content of `log`, and the end of it is returned.

    An agent may have removed its workspace. Then the gate fails, and its command is not run anywhere else.
    """
    is_link = workspace.strategy is not Strategy.NONE and os.path.islink(workspace.path)
    if is_link or not os.path.isdir(workspace.path):
        return _gate_not_run(command, "its workspace is not there any more")
    faults.effect("gate.log")
    os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    output = os.open(log, flags, 0o600)
    try:
        os.write(output, f"$ {command}\n".encode(errors="surrogateescape"))
        began = os.fstat(output).st_size
        faults.effect("gate.command")
        with LogLimit(output):
            code, _out, err = await runner(
                ["/bin/sh", "-c", command], cwd=workspace.path, env=env, timeout=timeout, output=output, mark=new_id()
            )
        faults.passed("gate.commanded")
        hindrance, how = _NOT_RUN.get(code, ""), _describe_gate_end(code, err, timeout)
        end = os.fstat(output).st_size
        tail = os.pread(output, MOST_GATE, max(began, end - MOST_GATE)).replace(b"\0", b"")
        os.write(output, f"({how})\n".encode())
    except OSError as error:
        if error.errno not in _PERMANENT_ERRORS:
            raise  # a problem of the machine: the gate is run again
        return replace(_gate_not_run(command, os.strerror(error.errno or 0)), was_run=False)
    finally:
        os.close(output)
    said = clean_text(tail.decode(errors="replace"))
    if hindrance:
        last = one_line(next((line for line in reversed(said.splitlines()) if line.strip()), hindrance), 200)
        how = f"could not be run (exit code {code}): {last}"
    return GateResult(command=one_line(command, 200), passed=code == 0, how=how, output=said, was_run=not hindrance)


def _gate_not_run(command: str, why: str) -> GateResult:
    return GateResult(command=one_line(command, 200), passed=False, how=f"could not be run: {why}")


_NOT_RUN = {126: "the command is not executable", 127: "the command was not found"}  # exit codes of every shell


def _describe_gate_end(code: int, err: bytes, timeout: float) -> str:
    if code == TIMED_OUT and err.startswith(TIMED_OUT_TEXT):
        return f"timed out after {show_duration(timeout)}"
    return f"was killed by signal {-code}" if code < 0 else f"exited with {code}"


COPY_PATIENCE = 3600.0
TAIL = 600  # characters of the output that a failure shows
TIMED_OUT = 124  # only together with the text LATE: a command may exit with 124 too
TIMED_OUT_TEXT = b"timed out after"


class CommandSetup:
    """The WorkspaceSetup port: copies files into a workspace, and runs its set-up, gate and teardown commands."""

    def __init__(self, home: str, git: Git, runner: CommandRunner) -> None:
        self._home = home
        self._git = git
        self._runner = runner
        self._teardowns: dict[str, asyncio.Task[FailedCommand | None]] = {}
        self._cancelled_teardowns: set[str] = set()  # ids of tasks whose teardown is cut short

    async def copy(self, repo: Repo, workspace: Workspace, patterns: Sequence[str]) -> CopiedFiles:
        """Copy matching files of the user's checkout that git does not track. Existing files are not overwritten."""
        specs = [f":(top,glob){pattern.lstrip('/')}" for pattern in patterns]
        listed = await self._git.run("ls-files", "--others", "-z", "--", *specs, cwd=repo.path, timeout=COPY_PATIENCE)
        names = [name for name in listed.split("\0") if name]
        if not names:
            return CopiedFiles(copied=(), left={})
        argv = [sys.executable, "-I", "-X", "utf8", copy_files.__file__, repo.path, workspace.path]
        faults.effect("furnish.copy")
        code, out, err = await self._runner(
            argv, cwd="/", env=environment(), timeout=COPY_PATIENCE, stdin=os.fsencode("\0".join(names))
        )
        if code != 0:
            last = err.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise WorkspaceProblem(f"files of {repo.path} could not be copied: {last[0]}")
        said = json.loads(out)
        return CopiedFiles(copied=tuple(said["copied"]), left=said["left"])

    async def set_up(
        self,
        workspace: Workspace,
        commands: Sequence[str],
        env: Mapping[str, str],
        timeout: float,
        runner: CommandRunner | None = None,
    ) -> FailedCommand | None:
        """Run the commands in order, in the workspace, until one fails. The log is begun again."""
        return await self._run("setup", workspace, commands, env, timeout, runner, all_of_them=False)

    async def tear_down(
        self,
        workspace: Workspace,
        commands: Sequence[str],
        env: Mapping[str, str],
        timeout: float,
        runner: CommandRunner | None = None,
    ) -> FailedCommand | None:
        """Run all commands and return the first failure. Do nothing if the path is not the workspace that we made."""
        if os.path.islink(workspace.path) or not os.path.isdir(workspace.path):
            return None
        if owner_marker.read_owner(workspace.path) != workspace.id:
            return None
        running = asyncio.create_task(
            self._run("teardown", workspace, commands, env, timeout, runner, all_of_them=True)
        )
        self._teardowns[workspace.task_id] = running
        if workspace.task_id in self._cancelled_teardowns:
            running.cancel()
        try:
            await asyncio.wait([running])
        finally:
            self._teardowns.pop(workspace.task_id, None)
            while not running.done():  # our own task was cancelled
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
        if running.cancelled():
            log = setup_log(self._home, workspace, "teardown")
            return FailedCommand(
                command="teardown", how="was cut short, because the supervisor stops", tail="", log=log
            )
        return running.result()

    async def gate(
        self,
        workspace: Workspace,
        kind: str,
        command: str,
        env: Mapping[str, str],
        timeout: float,
        runner: CommandRunner | None = None,
    ) -> GateResult:
        """Run one gate. `kind`: the name of the gate's log, among the logs of the workspace."""
        runner = runner or self._runner
        return await run_gate(runner, setup_log(self._home, workspace, kind), workspace, command, env, timeout)

    def cut_short(self, task_id: str) -> None:
        """End the teardown of the task, now or as soon as it begins. The workspace is removed all the same."""
        self._cancelled_teardowns.add(task_id)
        if task_id in self._teardowns:
            self._teardowns[task_id].cancel()

    async def _run(
        self,
        kind: str,
        workspace: Workspace,
        commands: Sequence[str],
        env: Mapping[str, str],
        timeout: float,
        runner: CommandRunner | None,
        *,
        all_of_them: bool,
    ) -> FailedCommand | None:
        log = setup_log(self._home, workspace, kind)
        first: FailedCommand | None = None
        faults.effect("furnish.log")
        os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        output = os.open(log, flags, 0o600)
        try:
            for command in commands:
                os.write(output, f"$ {command}\n".encode(errors="surrogateescape"))
                began = os.fstat(output).st_size
                faults.effect("furnish.command")
                with LogLimit(output):
                    code, _out, err = await (runner or self._runner)(
                        ["/bin/sh", "-c", command],
                        cwd=workspace.path,
                        env=env,
                        timeout=timeout,
                        output=output,
                        mark=new_id(),
                    )
                faults.passed("furnish.commanded")
                end = os.fstat(output).st_size
                if code == 0:
                    continue
                how = _describe_failure(code, err, timeout)
                tail = os.pread(output, TAIL, max(began, end - TAIL)).decode(errors="replace")
                first = first or FailedCommand(
                    command=one_line(command, 200), how=how, tail=one_line(tail, TAIL), log=log
                )
                os.write(output, f"({how})\n".encode())
                if not all_of_them:
                    break
        finally:
            os.close(output)
        return first


def _describe_failure(code: int, err: bytes, timeout: float) -> str:
    if code == TIMED_OUT and err.startswith(TIMED_OUT_TEXT):
        return f"took longer than {show_duration(timeout)} and was ended"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
