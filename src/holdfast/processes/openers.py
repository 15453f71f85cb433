"""Who has a file of ours open? Having it open is a proof of ownership that no record can fake or lose."""

from __future__ import annotations

import os


def processes_with_open(file: os.stat_result) -> list[int]:
    """Every other process of ours that has that very file open."""
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and int(name) != os.getpid() and has_open(int(name), file)
    ]


def has_open(pid: int, file: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return False  # gone, or another user's
    for descriptor in descriptors:
        try:
            seen = os.stat(f"{folder}/{descriptor}")
        except OSError:
            continue
        if (seen.st_dev, seen.st_ino) == (file.st_dev, file.st_ino):
            return True
    return False
