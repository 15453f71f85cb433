"""A runner of the supervisor's git steps for the command line: one step at a time, in the foreground."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from holdfast.base import faults
from holdfast.workspaces.git.git import TIMED_OUT


async def run_here(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout: float,
    stdin: bytes = b"",
    output: int | None = None,
    mark: str | None = None,
) -> tuple[int, bytes, bytes]:
    """Run one command and return its exit code, output and errors, as a CommandRunner does. The call blocks, because
    the command line has no other work meanwhile."""
    faults.effect("gitrun.run")
    try:
        done = subprocess.run(  # noqa: ASYNC221 - a command line has nothing else to do meanwhile
            list(argv), cwd=cwd, env=dict(env), input=stdin, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return TIMED_OUT, b"", f"it has not answered for {timeout:g} s and was ended".encode()
    return done.returncode, done.stdout, done.stderr
