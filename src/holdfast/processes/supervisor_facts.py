"""The file in which a supervisor records its surroundings: the user's file of settings that it reads.

A process inside a run reads that file instead of the one that its own environment names.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass

from holdfast.base import faults
from holdfast.base.files import open_private

NAME = "supervisor.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """The surroundings of the newest supervisor of a home. Empty: no supervisor recorded any."""

    settings: str = ""  # the path of the user's file of settings


def record_surroundings(home: str, settings: str) -> None:
    """Record the surroundings of this supervisor, which holds the lock of the home. On a full disk nothing is recorded:
    the supervisor may be needed to free space."""
    path = os.path.join(home, NAME)
    try:
        faults.effect("supervisor.record")
        with open(f"{path}.new", "w", encoding="utf-8", errors="surrogateescape", opener=open_private) as file:
            json.dump(asdict(Surroundings(settings=settings)), file)
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
        return Surroundings(settings=str(kept["settings"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Surroundings()
