"""Queries for the versions of agent CLIs: all at the same time, within one deadline."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from holdfast.base import faults
from holdfast.base.text import one_line

PATIENCE = 5.0  # seconds for all of them; the slowest take two and a half on an idle machine
_ENOUGH = 4096


def ask_versions(questions: Mapping[str, Sequence[str]], patience: float = PATIENCE) -> dict[str, str]:
    """Run commands by name and return the first line of output of each. Empty: no output in time.

    A command that hangs costs `patience` seconds.
    """
    asked: dict[str, subprocess.Popen[bytes] | None] = {}
    try:
        for name, argv in questions.items():
            asked[name] = _ask(argv)
        deadline = time.monotonic() + patience
        return {name: _answer(process, deadline) for name, process in asked.items()}
    finally:  # Ctrl-C leaves no process behind
        for process in asked.values():
            _end(process)


def _ask(argv: Sequence[str]) -> subprocess.Popen[bytes] | None:
    faults.effect("clis.version")
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        return None


def _answer(process: subprocess.Popen[bytes] | None, deadline: float) -> str:
    if process is None or process.stdout is None:
        return ""
    said = b""
    with process.stdout as pipe:
        while len(said) < _ENOUGH and select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            block = os.read(pipe.fileno(), _ENOUGH)
            if not block:
                break
            said += block
    _end(process)
    lines = said.decode(errors="replace").strip().splitlines()
    return one_line(lines[0], 60) if lines else ""


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """Kill a process and everything that it started, once."""
    if process is None or process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
