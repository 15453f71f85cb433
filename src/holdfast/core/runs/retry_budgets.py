"""The budgets that automatic continuations are paid from, and what is left of them. Pure arithmetic over a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.base.instant import Instant
from holdfast.core.dispatch.spending_caps import NO_CAPS, Caps


class Budget(StrEnum):
    RUNS = "runs"
    CRASH = "crash"
    RETRY = "retry"
    LOST = "lost"
    OUTAGE = "outage"
    SESSION = "session"
    RESUME = "resume"
    WAIT = "wait"  # a pause for a limit began; the resume after it ends it
    STAGE = "stage"  # a stage is done: costs nothing, and is progress


_BROKEN = frozenset({Budget.CRASH, Budget.RETRY, Budget.SESSION})


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
    caps: Caps = NO_CAPS  # money and tokens that tasks share
    auto_resume: bool = True  # False: what a limit paused goes on when an operator says so
    resume_enabled: bool = True  # False: a limit fails its task
    resume_jitter: float = 1.0  # seconds over which the end of a limit is spread
    max_wait: float = 7 * 86400.0  # seconds in pauses for limits, all of them together
    reset_on_progress: bool = False  # a stage that is done gives back the resumes before it


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


def crash_leaves_in(ledger: Sequence[Spend], limits: Limits, now: Instant) -> float | None:
    """Seconds until the oldest crash that counts is outside the window; None: none counts."""
    ages = [now.since(entry.at) for entry in ledger if entry.budget is Budget.CRASH]
    inside = [age for age in ages if age < limits.crash_window]
    return limits.crash_window - max(inside) if inside else None


def _ways_of_its_own(ledger: Sequence[Spend]) -> list[bool]:
    """Of each entry: whether it is a run that neither broke nor hung, so its provider answered and its host lived.

    A crash is paid together with a run, and proves neither: it must not give anything back. A stage that is done does.
    """
    return [
        entry.budget is Budget.STAGE
        or (entry.budget is Budget.RUNS and (index == 0 or ledger[index - 1].budget not in _BROKEN))
        for index, entry in enumerate(ledger)
    ]


def lost_without_progress(ledger: Sequence[Spend]) -> int:
    """Losses since the last run that came to an end of its own."""
    count = 0
    for entry, is_own_end in zip(reversed(ledger), reversed(_ways_of_its_own(ledger)), strict=True):
        if is_own_end:
            break
        count += entry.budget is Budget.LOST
    return count


def lost_too_often(ledger: Sequence[Spend], limits: Limits) -> bool:
    """Too many in a row; or, whatever lay between them, more than a task may have runs."""
    return lost_without_progress(ledger) >= limits.lost or spent(ledger, Budget.LOST) >= most_losses(limits)


def most_losses(limits: Limits) -> int:
    return max(limits.lost, limits.runs)


def outage_seconds(ledger: Sequence[Spend], now: Instant) -> float:
    """How long the provider has been down for this task: since its last answer or a resume, crashes and losses aside.

    Added up from entry to entry, so that one wrong reading of the wall clock cannot hide the rest. What came after a
    crash is not waiting, and does not count; but it takes nothing back.
    """
    later, total = now, 0.0
    for entry, is_own_end in zip(reversed(ledger), reversed(_ways_of_its_own(ledger)), strict=True):
        if entry.budget is Budget.RESUME or is_own_end:
            break
        if entry.budget is Budget.OUTAGE:
            total += later.since(entry.at)
        if entry.budget is not Budget.LOST:
            later = entry.at
    return total


def outage_is_too_long(ledger: Sequence[Spend], limits: Limits, now: Instant) -> bool:
    """By the clock; and by its number, should the clocks say nothing: each wait is a known one, but for a clock that is
    set back at every boot."""
    return outage_seconds(ledger, now) >= limits.outage or _outages(ledger) >= most_outages(limits)


def most_outages(limits: Limits) -> int:
    """Twice as often as the longest pauses between two tries fit into the time, and a few for the short ones."""
    return 16 + 2 * int(limits.outage / max(1.0, limits.backoff_cap))


def _outages(ledger: Sequence[Spend]) -> int:
    """Since the last resume, of the same outage or not."""
    count = 0
    for entry in reversed(ledger):
        if entry.budget is Budget.RESUME:
            break
        count += entry.budget is Budget.OUTAGE
    return count


def waited_for_limits(ledger: Sequence[Spend], now: Instant) -> float:
    """How long the task has been paused for limits in all, the present pause included."""
    total, began = 0.0, None
    for entry in ledger:
        if entry.budget is Budget.WAIT:
            began = began or entry.at
        elif entry.budget is Budget.RESUME and began is not None:
            total += entry.at.since(began)
            began = None
    return total if began is None else total + now.since(began)


def backoff(n: int, cap: float, jitter: float, first: float = 1.0) -> float:
    """`first` × 2^n seconds plus up to a quarter of it, never beyond `cap` (R-TERM-11)."""
    base = min(cap, first * 2.0 ** min(n, 32))
    return min(cap, base * (1.0 + 0.25 * jitter))
