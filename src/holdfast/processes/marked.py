"""What a helper left behind outside its process group: found by the mark in its environment, ended and reaped."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from holdfast.processes.identity import identify, signal_exactly

VARIABLE = "HOLDFAST_HELPER"  # a set-up command and all that it starts carry their own number in it
PATIENCE = 5.0


QUIET = 5  # looks that find nothing, one after the other: what forks or execs just then is not seen by every one


def end_marked(mark: str) -> None:
    """Kill every process that carries `mark`, until there is none. Blocks for milliseconds: a kill is quick."""
    deadline = time.monotonic() + PATIENCE
    ended: set[int] = set()
    others: set[int] = set()
    quiet = 0
    while quiet < QUIET and time.monotonic() < deadline:
        found = _marked(mark, others)
        quiet = 0 if found else quiet + 1
        for pid in found:
            identity = identify(pid)
            if identity is not None:
                signal_exactly(identity, signal.SIGKILL)
                ended.add(pid)
        time.sleep(0.002)
        ended = {pid for pid in ended if not _reaped(pid)}
    while (ended := {pid for pid in ended if not _reaped(pid)}) and time.monotonic() < deadline:
        time.sleep(0.002)


def _marked(mark: str, others: set[int]) -> list[int]:
    """Dead ones have no environment any more, so a zombie is not among them; nor has one that is about to run another
    program. `others`: who has one without the mark, and need not be asked again."""
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


def _reaped(pid: int) -> bool:
    """Whether nothing of it is left to collect: its parent died before it, so it may have become our child."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
