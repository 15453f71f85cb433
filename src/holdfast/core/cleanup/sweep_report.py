"""The report of a sweep, for its one event and its one answer (R-TREE-06)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class SweepReport:
    """The counts of one sweep, filled while it runs."""

    swept_count: int = 0  # workspaces and their remains that are gone now
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # for lack of permission; each with the command that fixes it
    in_use: list[str] = field(default_factory=list)  # finished, but in use: removed when they are free
    prune_succeeded: bool = True  # our git entries agree with the ledger
    foreign: Sequence[str] = ()
    preserved: int = 0
    healed: int = 0  # markers, branches and ledger rows that were repaired
    reported: Sequence[str] = ()  # for a person: perhaps ours, but without proof
    odd: int = 0  # names that we do not give
    processes_ended: int = 0
    containers_removed: int = 0
    cgroups_removed: int = 0
    duration_ms: float = 0.0

    @property
    def backlog_count(self) -> int:
        return self.swept_count + len(self.skipped)

    def data(self) -> dict[str, object]:
        return {
            "swept_count": self.swept_count,
            "failed_count": len(self.failed),
            "root_owned_skipped": len(self.skipped),
            "prune_succeeded": self.prune_succeeded,
            "duration_ms": self.duration_ms,
            "backlog_count": self.backlog_count,
            "foreign": list(self.foreign),
            "preserved": self.preserved,
            "healed": self.healed,
            "in_use": list(self.in_use),
            "odd": self.odd,
            "processes_ended": self.processes_ended,
            "containers_removed": self.containers_removed,
            "cgroups_removed": self.cgroups_removed,
            "reported": list(self.reported),
            "failed": list(self.failed),
            "skipped": list(self.skipped),
        }

    def message(self, many: int, slow: int) -> str:
        words = [
            f"worktree sweep complete: {self.swept_count} removed",
            f"{self.preserved} preserved",
            f"{len(self.foreign)} foreign",
        ]
        words += [f"{len(self.failed)} failed (tried again)"] if self.failed else []
        words += [f"{len(self.in_use)} in use"] if self.in_use else []
        words += [f"{len(self.skipped)} skipped for lack of permission"] if self.skipped else []
        first = f" First: {self.skipped[0]}" if self.skipped else ""
        return ", ".join(words) + "." + backlog_warning(self.backlog_count, many, slow) + first


def backlog_warning(backlog: int, many: int, slow: int) -> str:
    """Return the warning about more than `many` or `slow` leftovers (R-TREE-08). Empty: there are few leftovers."""
    if backlog > slow:
        return f" {backlog} leftovers: a crash storm is likely, and removing them makes this start slow."
    return f" {backlog} leftovers: a crash storm is likely." if backlog > many else ""
