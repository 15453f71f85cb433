"""The identity of a process: boot id, pid and start time, checked through an open pidfd before a signal is sent."""

from __future__ import annotations

import contextlib
import os
import signal

from holdfast.base import clock, faults
from holdfast.core.runs.liveness import Liveness, ProcessIdentity, ProcessSighting, judge_liveness


def read_process(pid: int) -> ProcessSighting:
    """Return what /proc shows about `pid` now."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ProcessSighting(boot_id=clock.boot_id(), start_ticks=None)
    except PermissionError:
        return ProcessSighting(boot_id=clock.boot_id(), start_ticks=None, readable=False)
    return ProcessSighting(boot_id=clock.boot_id(), start_ticks=int(fields[19]), zombie=fields[0] == b"Z")


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a process, or None when it is gone."""
    seen = read_process(pid)
    if seen.start_ticks is None:
        return None
    return ProcessIdentity(boot_id=seen.boot_id, pid=pid, start_ticks=seen.start_ticks)


def life_of(identity: ProcessIdentity | None) -> Liveness:
    if identity is None:
        return Liveness.UNKNOWN
    seen = read_process(identity.pid)
    return judge_liveness(identity, seen)


def open_pidfd(identity: ProcessIdentity) -> int | None:
    """Return a pidfd of exactly that process, or None when it is gone. The pidfd is opened before the identity is
    compared, so a reused pid is always noticed."""
    if identity.boot_id != clock.boot_id():
        return None
    try:
        fd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None  # every other error (for example out of descriptors) means "unknown" and must not look like "gone"
    try:
        is_it = life_of(identity) is Liveness.ALIVE
    except BaseException:
        os.close(fd)  # the error may be "out of descriptors": this one must not leak too
        raise
    if not is_it:
        os.close(fd)
        return None
    return fd


def signal_exactly(identity: ProcessIdentity, *numbers: int) -> bool:
    """Send signals to exactly that process. False when it is gone."""
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
