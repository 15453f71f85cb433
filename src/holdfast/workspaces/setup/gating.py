"""A gate: one command in a workspace, whose exit says whether what was done there passes.

A helper like those of a set-up: in a group of its own, with a deadline, ended when its caller is cancelled, and by the
next supervisor when ours dies. What it leaves running in the background ends with it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from holdfast.base import faults
from holdfast.base.ids import new_id
from holdfast.base.text import clean, one_line
from holdfast.base.units import show_duration
from holdfast.core.model import Strategy, Workspace
from holdfast.core.workflows.result import MOST_GATE, GateResult
from holdfast.workspaces.port import CommandRunner
from holdfast.workspaces.setup.logroom import Bounded

TIMED_OUT = 124  # with these words, so that a command's own 124 is not taken for it
LATE = b"timed out after"
_NEVER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.E2BIG})  # however often it is tried


async def run_gate(
    runner: CommandRunner, log: str, workspace: Workspace, command: str, env: Mapping[str, str], timeout: float
) -> GateResult:
    """Its output goes to `log`, which begins anew; the end of it comes back. What its agent did to the workspace may
    leave nothing to run it in: then it fails, and does not run anywhere else."""
    is_link = workspace.strategy is not Strategy.NONE and os.path.islink(workspace.path)
    if is_link or not os.path.isdir(workspace.path):
        return _never(command, "its workspace is not there any more")
    faults.effect("gate.log")
    os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    output = os.open(log, flags, 0o600)
    try:
        os.write(output, f"$ {command}\n".encode(errors="surrogateescape"))
        began = os.fstat(output).st_size
        faults.effect("gate.command")
        with Bounded(output):
            code, _out, err = await runner(
                ["/bin/sh", "-c", command], cwd=workspace.path, env=env, timeout=timeout, output=output, mark=new_id()
            )
        faults.passed("gate.commanded")
        how = _how(code, err, timeout)
        end = os.fstat(output).st_size
        tail = os.pread(output, MOST_GATE, max(began, end - MOST_GATE)).replace(b"\0", b"")
        os.write(output, f"({how})\n".encode())
    except OSError as error:
        if error.errno not in _NEVER:
            raise  # the machine's trouble: it is tried again
        return _never(command, os.strerror(error.errno or 0))
    finally:
        os.close(output)
    return GateResult(
        command=one_line(command, 200), passed=code == 0, how=how, output=clean(tail.decode(errors="replace"))
    )


def _never(command: str, why: str) -> GateResult:
    return GateResult(command=one_line(command, 200), passed=False, how=f"could not be run: {why}")


def _how(code: int, err: bytes, timeout: float) -> str:
    if code == TIMED_OUT and err.startswith(LATE):
        return f"timed out after {show_duration(timeout)}"
    return f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
