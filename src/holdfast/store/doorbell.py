"""The doorbell: a FIFO that makes the supervisor look at the store. A ring is only a hint. If a ring is lost, the
supervisor's slow poll of the store finds the change."""

from __future__ import annotations

import contextlib
import os
import stat

from holdfast.base import faults

NAME = "doorbell"


def ring(home: str) -> bool:
    """Wake the supervisor of `home`. False if no supervisor listens."""
    faults.passed("doorbell.ring")
    try:
        fd = os.open(os.path.join(home, NAME), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False  # the change is on disk already, so a doorbell that cannot be rung must not look like a refusal
    try:
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
        os.write(fd, b"!")
    except BlockingIOError:
        return True  # the FIFO is full of rings that the supervisor has not read yet
    except BrokenPipeError:
        return False
    finally:
        os.close(fd)
    return True


def open_listener(home: str) -> int:
    """Make the FIFO and return a descriptor to listen on. It is open for reading and writing, so a read never reports
    end-of-file."""
    path = os.path.join(home, NAME)
    faults.effect("doorbell.hang_up")
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        os.unlink(path)
        os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def discard_rings(fd: int) -> None:
    """Discard all rings so far."""
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 4096):
            pass
