"""Furnishing a workspace before its first agent: files that git does not carry, set-up commands; and its teardown.

Commands are helpers: in a group of their own, with a deadline, ended when their caller is cancelled, and by the next
supervisor when ours dies. What they leave running in the background ends with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence

from holdfast.base import faults
from holdfast.base.errors import WorkspaceProblem
from holdfast.base.ids import new_id
from holdfast.base.text import one_line
from holdfast.base.units import show_duration
from holdfast.core.model import Repo, Workspace
from holdfast.core.workflows.result import GateResult
from holdfast.workspaces.git.git import Git, environment
from holdfast.workspaces.names import setup_log
from holdfast.workspaces.port import CommandRunner, Copied, Failed
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.setup import copy_files
from holdfast.workspaces.setup.gating import run_gate
from holdfast.workspaces.setup.logroom import Bounded

COPY_PATIENCE = 3600.0
TAIL = 600  # characters of its output that a failure shows
TIMED_OUT = 124  # with these words, so that a command's own 124 is not taken for it
LATE = b"timed out after"


class Furnisher:
    def __init__(self, home: str, git: Git, runner: CommandRunner) -> None:
        self._home = home
        self._git = git
        self._runner = runner
        self._teardowns: dict[str, asyncio.Task[Failed | None]] = {}
        self._hurried: set[str] = set()  # tasks whose teardown is not to be waited for

    async def copy(self, repo: Repo, workspace: Workspace, patterns: Sequence[str]) -> Copied:
        """Files of the user's checkout that match and that git does not track. What the workspace has, stays."""
        specs = [f":(top,glob){pattern.lstrip('/')}" for pattern in patterns]
        listed = await self._git.run("ls-files", "--others", "-z", "--", *specs, cwd=repo.path, timeout=COPY_PATIENCE)
        names = [name for name in listed.split("\0") if name]
        if not names:
            return Copied(copied=(), left={})
        argv = [sys.executable, "-I", "-X", "utf8", copy_files.__file__, repo.path, workspace.path]
        faults.effect("furnish.copy")
        code, out, err = await self._runner(
            argv, cwd="/", env=environment(), timeout=COPY_PATIENCE, stdin=os.fsencode("\0".join(names))
        )
        if code != 0:
            last = err.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise WorkspaceProblem(f"files of {repo.path} could not be copied: {last[0]}")
        said = json.loads(out)
        return Copied(copied=tuple(said["copied"]), left=said["left"])

    async def set_up(
        self, workspace: Workspace, commands: Sequence[str], env: Mapping[str, str], timeout: float
    ) -> Failed | None:
        """Run them in order, in the workspace, until one fails. Its log begins anew."""
        return await self._run("setup", workspace, commands, env, timeout, all_of_them=False)

    async def tear_down(
        self, workspace: Workspace, commands: Sequence[str], env: Mapping[str, str], timeout: float
    ) -> Failed | None:
        """Run all of them; the first failure is told. Quietly nothing where the workspace is not what we made."""
        if os.path.islink(workspace.path) or not os.path.isdir(workspace.path):
            return None
        if owner_marker.owner(workspace.path) != workspace.id:
            return None
        running = asyncio.create_task(self._run("teardown", workspace, commands, env, timeout, all_of_them=True))
        self._teardowns[workspace.task_id] = running
        if workspace.task_id in self._hurried:
            running.cancel()
        try:
            await asyncio.wait([running])
        finally:
            self._teardowns.pop(workspace.task_id, None)
            while not running.done():  # we were cancelled
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
        if running.cancelled():
            log = setup_log(self._home, workspace, "teardown")
            return Failed(command="teardown", how="was cut short, because the supervisor stops", tail="", log=log)
        return running.result()

    async def gate(
        self, workspace: Workspace, kind: str, command: str, env: Mapping[str, str], timeout: float
    ) -> GateResult:
        """`kind`: the name of its log, among those of its workspace."""
        return await run_gate(self._runner, setup_log(self._home, workspace, kind), workspace, command, env, timeout)

    def cut_short(self, task_id: str) -> None:
        """End the teardown of that task, now or when it would begin: its workspace is put away without it."""
        self._hurried.add(task_id)
        if task_id in self._teardowns:
            self._teardowns[task_id].cancel()

    async def _run(
        self,
        kind: str,
        workspace: Workspace,
        commands: Sequence[str],
        env: Mapping[str, str],
        timeout: float,
        *,
        all_of_them: bool,
    ) -> Failed | None:
        log = setup_log(self._home, workspace, kind)
        first: Failed | None = None
        faults.effect("furnish.log")
        os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        output = os.open(log, flags, 0o600)
        try:
            for command in commands:
                os.write(output, f"$ {command}\n".encode(errors="surrogateescape"))
                began = os.fstat(output).st_size
                faults.effect("furnish.command")
                with Bounded(output):
                    code, _out, err = await self._runner(
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
                how = _how(code, err, timeout)
                tail = os.pread(output, TAIL, max(began, end - TAIL)).decode(errors="replace")
                first = first or Failed(command=one_line(command, 200), how=how, tail=one_line(tail, TAIL), log=log)
                os.write(output, f"({how})\n".encode())
                if not all_of_them:
                    break
        finally:
            os.close(output)
        return first


def _how(code: int, err: bytes, timeout: float) -> str:
    if code == TIMED_OUT and err.startswith(LATE):
        return f"took longer than {show_duration(timeout)} and was ended"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
