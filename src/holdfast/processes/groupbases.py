"""Which cgroup bases this home has made: noted before they are made, gone over at each start.

Where a base lies depends on the cgroup in which `holdfast up` was started, so the next start may look elsewhere.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from holdfast.base import faults
from holdfast.base.folders import listed
from holdfast.processes.cgroups import base_name, remove_group

NAME = "cgroups"


class Bases:
    """The file `cgroups` of a home: one directory a line. What is not named after this home is not ours to touch."""

    def __init__(self, home: str) -> None:
        self._file = os.path.join(home, NAME)
        self._name = base_name(home)

    def note(self, base: str) -> None:
        if base not in self.all():
            faults.effect("cgroup.note")
            with open(self._file, "a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(base + "\n")

    def all(self) -> list[str]:
        try:
            with open(self._file, encoding="utf-8", errors="surrogateescape") as file:
                return [line for line in file.read().splitlines() if os.path.basename(line) == self._name]
        except FileNotFoundError:
            return []

    def sweep(self, in_use: Iterable[str]) -> int:
        """Remove the empty groups of runs that are over (their keeper was killed first)."""
        used = set(in_use)
        removed = 0
        for base in self.all():
            for name in listed(base):
                if name not in used and os.path.isdir(os.path.join(base, name)):
                    faults.passed("cgroup.sweep")
                    removed += remove_group(os.path.join(base, name))
        return removed

    def abandon(self) -> None:
        """All that is empty goes, for a home that itself goes away: a test's, say, whose last supervisor was killed."""
        self.sweep(in_use=())
        self.leave()

    def leave(self) -> None:
        """Nothing of ours stays in the kernel when no run is left; a living run's group keeps them."""
        left = []
        for base in self.all():
            with contextlib.suppress(OSError):
                faults.passed("cgroup.unbase")
                os.rmdir(base)
            left += [base] if os.path.isdir(base) else []
        if not left:
            with contextlib.suppress(FileNotFoundError):
                faults.passed("cgroup.forget")
                os.unlink(self._file)
