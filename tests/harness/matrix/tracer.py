"""Runs git and ends it at one of its system calls. `python -I -S tracer.py WHO AT FILE GIT ARGUMENT…`; stands alone.

Time would be another instant on every machine, and most of git's time is spent where nothing is half done; its system
calls are the instants between which something changes. WHO: `count` (end nobody; append their number to FILE), `leader`
(git alone: what it started lives on), `group` (all of it); with `-and-supervisor` also the process that started it.
Only the process itself is traced, not its children.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_TRACE_ME, _SYSCALL, _SET_OPTIONS = 0, 24, 0x4200
_MARKED_STOPS = 1  # PTRACE_O_TRACESYSGOOD: a stop at a system call is told from a signal
_AT_A_CALL = signal.SIGTRAP | 0x80


def main(who: str, at: int, file: str, argv: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    pid = os.fork()
    if pid == 0:
        libc.ptrace(_TRACE_ME, 0, None, None)
        os.execvp(argv[0], argv)
    os.waitpid(pid, 0)  # it stops after its exec
    libc.ptrace(_SET_OPTIONS, pid, None, _MARKED_STOPS)
    count, delivered = 0, 0
    while True:
        libc.ptrace(_SYSCALL, pid, None, delivered or None)
        _pid, status = os.waitpid(pid, 0)
        delivered = 0
        if not os.WIFSTOPPED(status):
            break
        if os.WSTOPSIG(status) == _AT_A_CALL:
            count += 1
            if count == at and who != "count":
                _end(who, pid)
        else:
            delivered = os.WSTOPSIG(status)  # its own business: let it have it
    if who == "count":
        with open(file, "a", encoding="utf-8") as counts:
            counts.write(f"{at} {count} {' '.join(' '.join(argv[1:]).split())}\n")
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _end(who: str, pid: int) -> None:
    """Never returns: whoever waits for us must see a git that was killed."""
    if who.endswith("-and-supervisor"):
        os.kill(os.getppid(), signal.SIGKILL)
    if who.startswith("group"):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
