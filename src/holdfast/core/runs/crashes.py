"""Crashes: what is one, what follows it, and what is told of a task that had too many (R-CRASH-01 to 06). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.runs.outcome import Outcome

CRASHES = frozenset({Outcome.EXTERNAL_KILL, Outcome.OUT_OF_MEMORY, Outcome.CRASHED})
"""The process is dead and nobody asked for it. A stop of ours, a limit, a failure that the agent reports itself and a
host that was lost with everything on it are none."""

LONGEST_ERROR = 2000  # characters of an agent's last words that are kept with its crash


class Answer(StrEnum):
    """What is done about a crash."""

    RESTART = "restart"
    NOTIFY = "notify"  # not started again by itself: a person is told
    IGNORE = "ignore"  # it is no crash, or was dealt with before


@dataclass(frozen=True, kw_only=True, slots=True)
class Recent:
    """How many crashes there were of late, this one included, and how many stop the task."""

    count: int
    limit: int
    window: float

    def __str__(self) -> str:
        return f"{self.count} of {self.limit} crashes within {self.window:g} s"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovered:
    """What is left of a task that crashed out, and where."""

    branch: str | None = None
    workspace: str | None = None
    salvage: str | None = None  # the commit of what was saved last

    def __str__(self) -> str:
        kept = [
            f"its workspace {self.workspace}" if self.workspace else "",
            f"its commits, if it made any, on branch {self.branch}" if self.branch else "",
            f"uncommitted work as salvage {self.salvage[:12]}" if self.salvage else "",
        ]
        return ", ".join(word for word in kept if word) or "nothing was there to be kept"


def answer_to(outcome: Outcome, *, goes_on: bool, is_known: bool = False) -> Answer:
    """`goes_on`: the policy queues it again. `is_known`: this very death was recorded before."""
    if outcome not in CRASHES or is_known:
        return Answer.IGNORE
    return Answer.RESTART if goes_on else Answer.NOTIFY


def crash_alert(task_id: str) -> str:
    """The key of a task's alert that it crashed out. Every alert about crashes has a key that begins with `crash:`."""
    return f"crash:task:{task_id}"


def worker_alert(worker: str) -> str:
    """Likewise of a worker."""
    return f"crash:worker:{worker}"


def is_about_crashes(alert_key: str) -> bool:
    """Whether `crash.notify` has a word in whether it is sent (R-CRASH-05)."""
    return alert_key.startswith("crash:")


def last_words(text: str) -> str:
    """The end of what it wrote to its standard error, short enough for a record."""
    flat = text.rstrip()
    return flat if len(flat) <= LONGEST_ERROR else "…" + flat[1 - LONGEST_ERROR :]
