"""The reader of an agent's growing output. It reads in blocks, from where it stopped.

It skips the holes that the keeper punched to limit the size on disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from holdfast.base import clock

# One agent's flood of output must not delay the others. These are the limits of one look:
BLOCK = 1 << 18  # bytes
MOST_LINES = 5000
MOST_TIME = 0.01  # seconds of our CPU time
PIECE = 1 << 15  # bytes read at a time
_HANDFUL = 64  # lines between two checks of the CPU time
LONGEST_LINE = 8 << 20  # bytes; a tool's result may be a whole image


class OutputReader:
    """The reader of one log. It passes on each complete line once. `offset` is where the next line begins."""

    def __init__(self, path: str, offset: int = 0) -> None:
        self._path = path
        self._at = offset  # the log was read up to here
        self._rest: list[bytes] = []  # the pieces of the last line, which is not complete yet
        self._length = 0  # bytes of those pieces together
        self._skipping = False  # inside a line that is too long, or whose beginning is gone

    @property
    def offset(self) -> int:
        return self._at - self._length

    def read_on(self, hear: Callable[[str], None]) -> bool:
        """Pass new lines to `hear`, as many as one look may cost. True: there is more."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return False  # the agent can remove its log; it then counts as silent
        try:
            return self._read_pieces(fd, hear)
        finally:
            os.close(fd)

    def _read_pieces(self, fd: int, hear: Callable[[str], None]) -> bool:
        until, left = clock.own_cpu() + MOST_TIME, MOST_LINES
        for _piece in range(BLOCK // PIECE):
            try:
                piece = self._next_piece(fd)
            except OSError:
                return False  # the agent put something else in its place
            lines = self._lines(piece)
            heard = 0
            while heard < len(lines):
                if left <= 0 or clock.own_cpu() > until:
                    self._put_back(lines[heard:])
                    return True
                handful = lines[heard : heard + _HANDFUL]
                for line in handful:
                    hear(line.rstrip(b"\r\n").decode(errors="replace"))
                heard += len(handful)
                left -= len(handful)
            if len(piece) < PIECE:
                return False
        return True

    def _put_back(self, lines: list[bytes]) -> None:
        """Move the offset back, so that these lines and all that follow are read again."""
        self._at -= sum(map(len, lines)) + self._length
        self._forget()

    def _next_piece(self, fd: int) -> bytes:
        size = os.fstat(fd).st_size
        if size < self._at:  # truncated: what follows is new
            self._at, self._skipping = size, False
            self._forget()
        try:
            start = os.lseek(fd, self._at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return b""  # only a hole is left, or nothing
            start = self._at  # this file system has no holes
        if start > self._at:
            self._at, self._skipping = start, True
            self._forget()
        piece = os.pread(fd, PIECE, self._at)
        self._at += len(piece)
        return piece

    def _lines(self, piece: bytes) -> list[bytes]:
        """Return complete lines with their ends. A carriage return ends a line too, so a spinner's frames are lines."""
        if not piece:
            return []
        lines = piece.splitlines(keepends=True)
        rest = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        if lines:
            lines[0] = b"".join((*self._rest, lines[0]))
            self._forget()
            if self._skipping:
                del lines[0]
                self._skipping = False
        self._rest.append(rest)
        self._length += len(rest)
        if self._length > LONGEST_LINE:
            self._forget()
            self._skipping = True
        return lines

    def _forget(self) -> None:
        self._rest, self._length = [], 0
