"""Which agents' command lines this machine has. `init` tells; nothing is decided by it."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

from holdfast import faults
from holdfast.text import one_line

# Each with a way to run it unattended, the prompt on its standard input.
KNOWN_AGENTS: dict[str, tuple[str, ...]] = {
    "claude": ("claude", "-p"),
    "codex": ("codex", "exec", "-"),
    "gemini": ("gemini",),
    "opencode": ("opencode", "run"),
    "qwen": ("qwen",),
    "copilot": ("copilot",),
    "aider": ("aider",),
}
PATIENCE = 5.0
_ENOUGH = 4096


@dataclass(frozen=True, slots=True)
class FoundCli:
    name: str
    path: str
    version: str  # empty when it did not say
    example: tuple[str, ...]


def find_clis() -> list[FoundCli]:
    """Those in PATH. All are asked for their version at once, so one that hangs costs PATIENCE, not more."""
    asked = [(name, path, _ask(path)) for name in KNOWN_AGENTS if (path := shutil.which(name))]
    deadline = time.monotonic() + PATIENCE
    return [FoundCli(name, path, _answer(process, deadline), KNOWN_AGENTS[name]) for name, path, process in asked]


def _ask(path: str) -> subprocess.Popen[bytes] | None:
    faults.effect("clis.version")
    try:
        return subprocess.Popen(
            [path, "--version"],
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
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        process.wait()
    lines = said.decode(errors="replace").strip().splitlines()
    return one_line(lines[0], 60) if lines else ""
