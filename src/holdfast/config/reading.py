"""Reading a file that somebody else may have made, such as a repository: whole, or not at all, and never for long."""

from __future__ import annotations

import os
import stat

LARGEST_FILE = 64 * 1024


def bytes_of(path: str, largest: int = LARGEST_FILE) -> bytes:
    """All of it. A pipe or an endless device, perhaps behind a repository's symbolic link, must not hang us."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(fd).st_mode
        if os.path.realpath(path) == os.devnull:
            return b""
        if not stat.S_ISREG(mode):
            what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise OSError(22, f"it is {what}")
        data = b""
        while len(data) <= largest and (block := os.read(fd, largest)):
            data += block
    finally:
        os.close(fd)
    if len(data) > largest:
        raise OSError(27, f"it is larger than {largest // 1024} KiB")
    return data
