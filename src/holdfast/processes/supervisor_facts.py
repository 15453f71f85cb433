"""The file in which a supervisor records its surroundings: its settings, its process and its namespaces.

A process inside a run reads the same file of settings instead of the one that its own environment names. A process in
other namespaces may hide there that it is inside a run (processes/caller.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, field

from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.files import open_private

NAME = "supervisor.json"
LOCK = "supervisor.lock"  # supervisor/home_lock.py: held by a living supervisor
# The namespaces that decide what a process sees of its ancestors and its cgroup, with the number of the machine's first
# one (include/linux/proc_ns.h). Mount namespaces differ between a person's own shells, and do not count.
FIRST_NAMESPACES = {"pid": 0xEFFFFFFC, "user": 0xEFFFFFFD, "cgroup": 0xEFFFFFFB}


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """The surroundings of the newest supervisor of a home. Empty: no supervisor recorded any."""

    settings: str = ""  # the path of the user's file of settings
    pid: int = 0  # in the namespace of the supervisor
    namespaces: Mapping[str, int] = field(default_factory=dict)  # kind → number; without those that it could not read


def read_namespaces() -> dict[str, int]:
    """Return the number of each namespace of this process."""
    found = {}
    for kind in FIRST_NAMESPACES:
        with contextlib.suppress(OSError):
            found[kind] = os.stat(f"/proc/self/ns/{kind}").st_ino
    return found


def has_supervisor(home: str) -> bool:
    """True if a supervisor of this home lives, in whatever namespace: the kernel holds its lock."""
    try:
        fd = os.open(os.path.join(home, LOCK), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def record_surroundings(home: str, settings: str) -> None:
    """Record the surroundings of this supervisor, which holds the lock of the home. On a full disk nothing is recorded
    and no error is raised, because the supervisor may be needed to free space."""
    path = os.path.join(home, NAME)
    own = Surroundings(settings=settings, pid=os.getpid(), namespaces=read_namespaces())
    try:
        faults.effect("supervisor.record")
        with open(f"{path}.new", "w", encoding="utf-8", errors="surrogateescape", opener=open_private) as file:
            json.dump(asdict(own), file)
        os.replace(f"{path}.new", path)
    except OSError:
        for name in (path, f"{path}.new"):  # that of an earlier supervisor would be wrong
            with contextlib.suppress(OSError):
                os.unlink(name)


def read_surroundings(home: str) -> Surroundings:
    """Return the record of this home. An unreadable record is empty."""
    try:
        with open(os.path.join(home, NAME), encoding="utf-8", errors="surrogateescape", opener=open_private) as file:
            kept = json.load(file)
        namespaces = {str(kind): int(number) for kind, number in kept["namespaces"].items()}
        return Surroundings(settings=str(kept["settings"]), pid=int(kept["pid"]), namespaces=namespaces)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Surroundings()
