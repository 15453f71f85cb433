"""Who holds a file's lock, by the kernel's own list: what a person needs when the store stays locked."""

from __future__ import annotations

import os


def holders(*paths: str) -> list[int]:
    """Pids of other processes with a write lock on one of `paths`; empty where it cannot be told."""
    wanted = {_device_and_inode(path) for path in paths}
    found: set[int] = set()
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file if "->" not in line]  # those with an arrow only wait
    except OSError:
        return []
    for fields in lines:
        if len(fields) >= 6 and fields[3] == "WRITE" and fields[5] in wanted and fields[4].isdigit():
            found.add(int(fields[4]))
    return sorted(found - {0, os.getpid()})


def told(pids: list[int]) -> str:
    """A sentence about them, to go into a refusal."""
    if not pids:
        return ""
    listed = ", ".join(f"{pid} ({_name(pid)})" for pid in pids)
    return f" It is held by pid {listed}: let that end, or continue it if it is stopped (kill -CONT)."


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "gone"


def _device_and_inode(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
