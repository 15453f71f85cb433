"""Might somebody be at work with git in these places? Asked before a lock that lies around is called stale."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from holdfast.processes.open_files import processes_with_open


def may_be_held(lock: str, folders: Sequence[str]) -> bool:
    """Whether a process has that file open, or a git works in one of those folders: `git commit` closes the lock of its
    index while the user writes the message. Where we may not look, we cannot rule it out. Our own git is not asked for:
    whoever calls knows what that is doing."""
    try:
        if processes_with_open(os.lstat(lock)):
            return True
    except FileNotFoundError:
        return False
    roots = [os.path.realpath(folder) for folder in folders]
    for name in os.listdir("/proc"):
        if name.isdigit() and _is_git(name):
            try:
                where = os.readlink(f"/proc/{name}/cwd")
            except FileNotFoundError:
                continue
            except OSError:
                return True
            if any(where == root or where.startswith(f"{root}/") for root in roots):
                return True
    return False


def _is_git(pid: str) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        head, _, rest = file.read().rpartition(b")")
        state, parent = rest.split()[:2]
        return head.partition(b"(")[2].startswith(b"git") and state != b"Z" and int(parent) != os.getpid()
    return False
