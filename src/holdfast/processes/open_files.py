"""The owner of a process, found by its open files and its environment.

They are better evidence than a record, which can be faked or lost.
`may_be_held` answers whether a process may be using git in some folders, before an old lock file is treated as stale.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence


def processes_with_open(file: os.stat_result) -> list[int]:
    """Return every other process of our user that has that file open."""
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and int(name) != os.getpid() and has_open(int(name), file)
    ]


def has_open(pid: int, file: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # gone, or another user's. Any other error means "unknown" and is raised
    for descriptor in descriptors:
        try:
            seen = os.stat(f"{folder}/{descriptor}")
        except OSError:
            continue  # closed meanwhile
        if (seen.st_dev, seen.st_ino) == (file.st_dev, file.st_ino):
            return True
    return False


def processes_of_run(run_directory: str) -> list[int]:
    """Return every process whose environment names that run directory.

    The mark proves that a process belongs to the run. It does not prove that no other process does.
    """
    mark = b"HOLDFAST_RUN_DIR=" + os.fsencode(run_directory)
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found.append(int(name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
    return found


def command_line(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def children_of(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def is_git_lock_in_use(lock: str, folders: Sequence[str]) -> bool:
    """True if a process has that lock file open, or a git runs in one of those folders.

    The open file is not enough: `git commit` closes the lock of its index while the user writes the message. True also
    if we have no permission to read a git's working directory. Our own git processes are ignored, because the caller
    knows them.
    """
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
