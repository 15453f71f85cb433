"""Crashes: which outcomes are crashes, what follows a crash, and the record of a task that crashed too often
(R-CRASH-01 to 06). Pure."""

from __future__ import annotations

from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.core.runs.outcome import Outcome

CRASHES = frozenset({Outcome.EXTERNAL_KILL, Outcome.OUT_OF_MEMORY, Outcome.CRASHED})
"""Outcomes in which the process died without a stop request. A stop of ours and a limit are not crashes. Neither is a
failure that the agent reports itself, nor a host that was lost with everything on it."""

QUEUED_AGAIN = "It is queued to run again"  # the decision in a crash record
MASS_DEATH_NOT_COUNTED = "part of a mass death, so it is not counted"
LONGEST_ERROR = 2000  # characters of an agent's last output that are stored with its crash


class CrashReaction(StrEnum):
    """The reaction to a crash."""

    RESTART = "restart"
    NOTIFY = "notify"  # not started again automatically: an alert is raised
    IGNORE = "ignore"  # not a crash, or handled before


@dataclass(frozen=True, kw_only=True, slots=True)
class RecentCrashes:
    """The number of recent crashes, this one included, and the number that stops the task."""

    count: int
    limit: int
    window: float
    is_mass: bool = False  # this one is part of a mass death: it is not in `count`

    def __str__(self) -> str:
        counted = f"{self.count} of {self.limit} crashes within {self.window:g} s"
        return f"{MASS_DEATH_NOT_COUNTED}; {counted}" if self.is_mass else counted


@dataclass(frozen=True, kw_only=True, slots=True)
class RecoverableWork:
    """The work that is left of a task that crashed too often, and where it is."""

    branch: str | None = None
    workspace: str | None = None
    salvage: str | None = None  # the commit of the latest salvage

    def __str__(self) -> str:
        kept = [
            f"its workspace {self.workspace}" if self.workspace else "",
            f"its commits, if it made any, on branch {self.branch}" if self.branch else "",
            f"uncommitted work as salvage {self.salvage[:12]}" if self.salvage else "",
        ]
        return ", ".join(word for word in kept if word) or "there was nothing to keep"


def choose_reaction(outcome: Outcome, *, goes_on: bool, is_known: bool = False) -> CrashReaction:
    """Return the reaction to an ending. `goes_on`: true if the policy queues the task again. `is_known`: true if this
    very death was recorded before."""
    if outcome not in CRASHES or is_known:
        return CrashReaction.IGNORE
    return CrashReaction.RESTART if goes_on else CrashReaction.NOTIFY


def task_crash_alert_key(task_id: str) -> str:
    """Return the key of the alert that a task crashed too often. Every alert about crashes has a key that begins with
    `crash:`."""
    return f"crash:task:{task_id}"


def worker_crash_alert_key(worker: str) -> str:
    """Return the key of the alert that a worker crashed too often."""
    return f"crash:worker:{worker}"


def is_crash_alert(alert_key: str) -> bool:
    """True for the key of an alert about crashes: `crash.notify` decides whether it is sent (R-CRASH-05)."""
    return alert_key.startswith("crash:")


def tail_of_error(text: str) -> str:
    """Return the end of an agent's standard error, short enough for a record."""
    flat = text.rstrip()
    return flat if len(flat) <= LONGEST_ERROR else "…" + flat[1 - LONGEST_ERROR :]
