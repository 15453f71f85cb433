"""A small reserve of disk space. On a full disk it is released, so that the supervisor can still record what
happens."""

from __future__ import annotations

import contextlib
import os

from holdfast.base import faults

NAME = "reserve"
SIZE = 256 * 1024
PLENTY = 16 * SIZE  # on a disk with less free space than this, the reserve is not made again
FULL = 64 * 1024  # bytes. With less than this, a database and its WAL cannot work


class DiskReserve:
    """The reserve file of one home."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._path = os.path.join(home, NAME)

    def ensure(self) -> None:
        """Reserve the space, if the disk has plenty."""
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
        """True if the file has its full size. If its maker was killed or got no space, the file reserves nothing."""
        try:
            return os.stat(self._path).st_size >= SIZE
        except FileNotFoundError:
            return False

    def give_up(self) -> bool:
        """Release the space. False if there is none to release."""
        try:
            faults.effect("reserve.give_up")
            os.unlink(self._path)
        except OSError:
            return False
        return True

    def release_if_full(self) -> bool:
        return free_bytes(self._home) < FULL and self.give_up()


def free_bytes(folder: str) -> int:
    """Return how many bytes we may still write to the disk of `folder`."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def is_full(folder: str) -> bool:
    try:
        return free_bytes(folder) < FULL
    except OSError:
        return False
