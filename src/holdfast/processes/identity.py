"""Which process is it? Boot id, pid and start time, checked through an open pidfd before anything is sent."""

from __future__ import annotations

import contextlib
import os
import signal

from holdfast.base import clock, faults
from holdfast.core.runs.liveness import Identity, Life, Sighting, judge


def sight(pid: int) -> Sighting:
    """What /proc says about `pid` now."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return Sighting(boot_id=clock.boot_id(), start_ticks=None)
    except PermissionError:
        return Sighting(boot_id=clock.boot_id(), start_ticks=None, readable=False)
    return Sighting(boot_id=clock.boot_id(), start_ticks=int(fields[19]), zombie=fields[0] == b"Z")


def identify(pid: int) -> Identity | None:
    """The identity of a living process, or None."""
    seen = sight(pid)
    if seen.start_ticks is None:
        return None
    return Identity(boot_id=seen.boot_id, pid=pid, start_ticks=seen.start_ticks)


def life_of(identity: Identity | None) -> Life:
    if identity is None:
        return Life.UNKNOWN
    seen = sight(identity.pid)
    return judge(identity, seen)


def open_pidfd(identity: Identity) -> int | None:
    """A pidfd of exactly that process, or None when it is gone. Open first, compare then: no race."""
    if identity.boot_id != clock.boot_id():
        return None
    try:
        fd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None  # every other error (out of descriptors, say) means "cannot tell" and must not look like "gone"
    try:
        is_it = life_of(identity) is Life.ALIVE
    except BaseException:
        os.close(fd)  # out of descriptors, say: this one must not be lost too
        raise
    if not is_it:
        os.close(fd)
        return None
    return fd


def signal_exactly(identity: Identity, *numbers: int) -> bool:
    """Send signals to that very process; False when it is not there any more."""
    fd = open_pidfd(identity)
    if fd is None:
        return False
    faults.passed("process.signal")
    try:
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)
    return True
