"""Reading files that may have holes: the keeper punches the middle out of an agent's endless output."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

BLOCK = 1 << 16
LONGEST_LINE = (
    8 << 20
)  # tools answer with whole images; a longer one is given in pieces: memory is not the agent's to fill


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


def extents(fd: int) -> list[tuple[int, int]]:
    """(first, end) of every part that is there."""
    found: list[tuple[int, int]] = []
    position = 0
    while True:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA)
            end = os.lseek(fd, position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return found
            return [(0, os.fstat(fd).st_size)]  # a file system without holes
        found.append((position, end))
        position = end


def open_plain(path: str) -> int:
    """A plain file, for reading. The agent may have put a FIFO there: it is neither followed nor waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise FileNotFoundError(errno.ENOENT, "something else than a plain file is there", path)


def data_lines(path: str) -> Iterator[str]:
    """Line by line, without the newline. Lines that a hole cut are given as what is left of them."""
    fd = open_plain(path)
    try:
        rest: list[bytes] = []  # of a line that is not over yet: joined once, or a long one would be copied for ever
        length = follows = 0
        for offset, block in data_blocks(fd):
            *lines, last = block.split(b"\n")
            if rest and (offset != follows or length > LONGEST_LINE):
                yield b"".join(rest).decode(errors="replace")
                rest, length = [], 0
            follows = offset + len(block)
            for line in lines:
                yield b"".join((*rest, line)).decode(errors="replace")
                rest, length = [], 0
            if last:
                rest.append(last)
                length += len(last)
        if rest:
            yield b"".join(rest).decode(errors="replace")
    finally:
        os.close(fd)


def last_lines(path: str, most: int) -> Iterator[str]:
    """Whole lines from the end of a file, of at most so many bytes; none when it is not there any more."""
    try:
        fd = open_plain(path)
    except OSError:
        return
    try:
        size = os.fstat(fd).st_size
        start = max(0, size - most)
        block = b""
        while len(block) < size - start and (piece := os.pread(fd, size - start - len(block), start + len(block))):
            block += piece
    except OSError:
        return
    finally:
        os.close(fd)
    lines = block.split(b"\n")
    for line in lines[1:] if start else lines:
        yield line.replace(b"\0", b"").decode(errors="replace").rstrip("\r")


def listed(folder: str) -> list[str]:
    """The names in a directory, in order; none where there is no such directory. Any other error is the caller's."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def privately(path: str, flags: int) -> int:
    """The `opener` of `open` for files of the home: made for its owner alone, whatever the umask."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class NotPlain(OSError):
    """A pipe, a socket or a device where a file should be."""


def plainly(path: str, flags: int) -> int:
    """The `opener` of `open` for files that an agent can reach: a pipe in their place is refused, not waited for."""
    try:
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket
            raise
        raise NotPlain(errno.ENXIO, "It is no plain file", path) from error
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # of a directory `open` says that it is one
        return fd
    os.close(fd)
    raise NotPlain(errno.EINVAL, "It is no plain file", path)
