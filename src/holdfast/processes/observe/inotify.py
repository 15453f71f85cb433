"""The kernel tells which files changed: inotify through ctypes, because the standard library has no door to it."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

IN_MODIFY, IN_ATTRIB, IN_MOVED_TO, IN_CREATE = 0x2, 0x4, 0x80, 0x100
IN_Q_OVERFLOW, IN_IGNORED = 0x4000, 0x8000
_HEADER = struct.Struct("iIII")
_BLOCK = 1 << 16


class Inotify:
    """One queue of changes. OSError where the system has none, or no room for another."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, "this system has no inotify")
        self.fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, path: str, mask: int) -> int:
        """The watch's number: the same one for the same file."""
        return self._checked(self._libc.inotify_add_watch(self.fd, os.fsencode(path), mask))

    def remove(self, watch: int) -> None:
        self._libc.inotify_rm_watch(self.fd, watch)  # refused: it went with its file, which is as good

    def read(self) -> list[tuple[int, int]]:
        """(watch, mask) of everything that happened since; the watch is -1 when the kernel had to drop some."""
        found: list[tuple[int, int]] = []
        while True:
            try:
                block = os.read(self.fd, _BLOCK)
            except BlockingIOError:
                return found
            position = 0
            while position < len(block):
                watch, mask, _cookie, length = _HEADER.unpack_from(block, position)
                position += _HEADER.size + length
                found.append((watch, mask))

    def close(self) -> None:
        os.close(self.fd)

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"inotify: {os.strerror(number)}")
        return result
