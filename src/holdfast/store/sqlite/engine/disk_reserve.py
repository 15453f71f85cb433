"""A little room kept back: on a full disk it is given up, so that the supervisor can still record what happens."""

from __future__ import annotations

import contextlib
import os

from holdfast.base import faults

NAME = "reserve"
SIZE = 256 * 1024
PLENTY = 16 * SIZE  # a disk with less than this left is not asked for the room again
FULL = 64 * 1024  # with less than this, a database and its log cannot work


class Reserve:
    def __init__(self, home: str) -> None:
        self._home = home
        self._path = os.path.join(home, NAME)

    def ensure(self) -> None:
        """Keep the room back, if the disk has plenty."""
        with contextlib.suppress(OSError):
            if self._is_whole() or free_bytes(self._home) < PLENTY:
                return
            faults.effect("reserve.make")
            fd = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, SIZE)
            finally:
                os.close(fd)

    def _is_whole(self) -> bool:
        """A file whose maker was killed, or refused the room, keeps nothing back."""
        try:
            return os.stat(self._path).st_size >= SIZE
        except FileNotFoundError:
            return False

    def give_up(self) -> bool:
        """Free the room; False when there is none to free."""
        try:
            faults.effect("reserve.give_up")
            os.unlink(self._path)
        except OSError:
            return False
        return True

    def give_up_if_full(self) -> bool:
        return free_bytes(self._home) < FULL and self.give_up()


def free_bytes(folder: str) -> int:
    """What we may still write to the disk of `folder`."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def is_full(folder: str) -> bool:
    try:
        return free_bytes(folder) < FULL
    except OSError:
        return False
