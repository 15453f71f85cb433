"""Reading files that may have holes: the keeper punches the middle out of an agent's endless output."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

BLOCK = 1 << 16
LONGEST_LINE = 1 << 20  # a longer one is given in pieces: memory is not the agent's to fill


def data_blocks(fd: int, position: int = 0) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of everything from `position` on that is there; holes are skipped, not read as zeros."""
    while True:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA)
            end = os.lseek(fd, position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # nothing more
            end = os.fstat(fd).st_size  # a file system without holes
            if position >= end:
                return
        while position < end:
            block = os.pread(fd, min(BLOCK, end - position), position)
            if not block:
                return
            yield position, block
            position += len(block)


def data_lines(path: str) -> Iterator[str]:
    """Line by line, without the newline. Lines that a hole cut are given as what is left of them."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        rest, follows = b"", 0
        for offset, block in data_blocks(fd):
            if offset != follows and rest:
                yield rest.decode(errors="replace")
                rest = b""
            follows = offset + len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")
            if len(rest) > LONGEST_LINE:
                yield rest.decode(errors="replace")
                rest = b""
        if rest:
            yield rest.decode(errors="replace")
    finally:
        os.close(fd)
