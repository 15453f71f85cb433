"""The supervisor's own log when it runs in the background: put aside when it is long, three old ones are kept."""

from __future__ import annotations

import contextlib
import os
import stat

from holdfast.base import faults
from holdfast.supervisor.saying import say

NAME = "supervisor.log"
KEPT = 3


def rotate(home: str, limit: int) -> bool:
    """Only if our standard error is that very file: what a service manager or a user redirected is theirs.

    The file is renamed and a new one opened in its place. Killed in between, the next start opens it; nothing that was
    written is lost, and nothing is copied.
    """
    path = os.path.join(home, NAME)
    try:
        written_to = [fd for fd in (1, 2) if _same(os.fstat(fd), os.stat(path))]
        if 2 not in written_to or os.fstat(2).st_size <= limit:
            return False
    except OSError:
        return False  # there is no such file: we write elsewhere
    try:
        _put_aside(path, written_to)
    except OSError as trouble:
        say(f"holdfast: {path} could not be put aside: {trouble.strerror}")
    return True


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return stat.S_ISREG(one.st_mode) and (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _put_aside(path: str, written_to: list[int]) -> None:
    for number in range(KEPT - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}.{number}", f"{path}.{number + 1}")
    faults.effect("log.rename")
    os.rename(path, f"{path}.1")
    faults.passed("log.renamed")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        for ours in written_to:
            os.dup2(fd, ours)
    finally:
        os.close(fd)
    faults.passed("log.rotated")
