"""Reading an agent's output as it grows: in blocks, from where we stopped, across the holes that a cap has punched."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

BLOCK = 1 << 18  # bytes per look: a flood of one agent must not hold up the others
LONGEST_LINE = 1 << 20


class OutputReader:
    """Hands over each whole line once. `offset` is where the next one begins."""

    def __init__(self, path: str, offset: int = 0) -> None:
        self._path = path
        self._at = offset  # up to here it was read …
        self._rest = b""  # … and this is the line that was not over yet
        self._skipping = False  # in a line that is too long, or whose beginning is gone

    @property
    def offset(self) -> int:
        return self._at - len(self._rest)

    def read_on(self, hear: Callable[[str], None]) -> bool:
        """Up to BLOCK more bytes. True: there is more."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return False  # the agent can remove it; its silence says the rest
        try:
            block = self._next_block(fd)
        except OSError:
            return False  # it put something else in its place
        finally:
            os.close(fd)
        for line in self._lines(block):
            hear(line.decode(errors="replace"))
        return len(block) == BLOCK

    def _next_block(self, fd: int) -> bytes:
        size = os.fstat(fd).st_size
        if size < self._at:  # cut off: what comes now is new
            self._at, self._rest, self._skipping = size, b"", False
        try:
            start = os.lseek(fd, self._at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return b""  # nothing but a hole, or nothing at all
            start = self._at  # this file system knows no holes
        if start > self._at:
            self._at, self._rest, self._skipping = start, b"", True
        block = os.pread(fd, BLOCK, self._at)
        self._at += len(block)
        return block

    def _lines(self, block: bytes) -> list[bytes]:
        """Whole lines; a carriage return ends one as well, so that a spinner's frames are lines."""
        if not block:
            return []
        lines = (self._rest + block).splitlines(keepends=True)
        self._rest = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        if lines and self._skipping:
            del lines[0]
            self._skipping = False
        if len(self._rest) > LONGEST_LINE:
            self._rest, self._skipping = b"", True
        return [line.rstrip(b"\r\n") for line in lines]
