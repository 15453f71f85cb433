"""The budgets that automatic continuations are paid from, and what is left of them. Pure arithmetic over a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.model import Instant


class Budget(StrEnum):
    RUNS = "runs"
    CRASH = "crash"
    RETRY = "retry"
    LOST = "lost"
    OUTAGE = "outage"
    SESSION = "session"
    RESUME = "resume"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much of each budget a task has. All are settings."""

    runs: int = 12
    crash: int = 3
    crash_window: float = 600.0
    retry: int = 3
    retry_base: float = 1.0  # seconds before the first retry; each later one waits twice as long
    lost: int = 5
    outage: float = 6 * 3600.0
    outage_base: float = 16.0  # seconds before the first try after an outage; each later one waits twice as long
    session: int = 1
    backoff_cap: float = 300.0
    default_hold: float = 300.0  # a limit without a known reset time


@dataclass(frozen=True, kw_only=True, slots=True)
class Spend:
    """One entry of a task's budget ledger."""

    budget: Budget
    at: Instant


def spent(ledger: Sequence[Spend], budget: Budget) -> int:
    return sum(1 for entry in ledger if entry.budget is budget)


def recent_crashes(ledger: Sequence[Spend], limits: Limits, now: Instant) -> int:
    """Crashes inside the sliding window; one exactly at its edge is outside (R-CRASH-04)."""
    return sum(1 for e in ledger if e.budget is Budget.CRASH and now.since(e.at) < limits.crash_window)


def lost_without_progress(ledger: Sequence[Spend]) -> int:
    """Losses since the last run that came to an end of its own."""
    count = 0
    for entry in reversed(ledger):
        if entry.budget is Budget.RUNS:
            break
        count += entry.budget is Budget.LOST
    return count


def outage_seconds(ledger: Sequence[Spend], now: Instant) -> float:
    """How long the provider has been down for this task: since the last run or resume, losses aside.

    Added up from entry to entry, so that one wrong reading of the wall clock cannot hide the rest.
    """
    later, total = now, 0.0
    for entry in reversed(ledger):
        if entry.budget is Budget.OUTAGE:
            total += later.since(entry.at)
            later = entry.at
        elif entry.budget is not Budget.LOST:
            break
    return total


def backoff(n: int, cap: float, jitter: float, first: float = 1.0) -> float:
    """`first` × 2^n seconds plus up to a quarter of it, never beyond `cap` (R-TERM-11)."""
    base = min(cap, first * 2.0 ** min(n, 32))
    return min(cap, base * (1.0 + 0.25 * jitter))
