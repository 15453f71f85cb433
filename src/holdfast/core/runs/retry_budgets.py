"""The retry budgets that pay for automatic continuations, and the decision whether a paused task may continue. Pure.

R-RES-02 to R-RES-04 are about the decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.dispatch.spending_caps import NO_CAPS, SharedCaps
from holdfast.core.model import PauseReason, Request


class Budget(StrEnum):
    RUNS = "runs"
    CRASH = "crash"
    RETRY = "retry"
    LOST = "lost"
    OUTAGE = "outage"
    SESSION = "session"
    RESUME = "resume"
    WAIT = "wait"  # a pause for a limit began; the next resume ends it
    WAITED = "waited"  # a pause for a limit ended without a counted resume: costs nothing
    MOVE = "move"  # the task continues under another account
    STAGE = "stage"  # a stage is done: costs nothing, and counts as progress


_BROKEN_RUNS = frozenset({Budget.CRASH, Budget.RETRY, Budget.SESSION})


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryLimits:
    """The size of each retry budget of a task. All fields are settings."""

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
    max_hold: float = 3600.0  # the longest hold of a limit that is met again and again
    moves: int = 8  # to another account
    caps: SharedCaps = NO_CAPS  # money and tokens that tasks share
    auto_resume: bool = True  # False: a task that a limit paused continues only when an operator resumes it
    resume_enabled: bool = True  # False: a limit fails its task
    resume_jitter: float = 1.0  # seconds over which the end of a limit is spread
    max_wait: float = 7 * 86400.0  # seconds in pauses for limits, all of them together
    reset_on_progress: bool = False  # a completed stage gives back the resumes before it
    change_account: bool = False  # a task leaves its session when its account is limited and another one is open


@dataclass(frozen=True, kw_only=True, slots=True)
class Spend:
    """One entry of a task's ledger of spent retry budgets."""

    budget: Budget
    at: Instant


def spent(ledger: Sequence[Spend], budget: Budget) -> int:
    return sum(1 for entry in ledger if entry.budget is budget)


def count_recent_crashes(ledger: Sequence[Spend], limits: RetryLimits, now: Instant) -> int:
    """Count the crashes inside the sliding window. A crash exactly at its edge is outside (R-CRASH-04)."""
    return sum(1 for e in ledger if e.budget is Budget.CRASH and now.since(e.at) < limits.crash_window)


def seconds_until_crash_expires(ledger: Sequence[Spend], limits: RetryLimits, now: Instant) -> float | None:
    """Return the seconds until the oldest counted crash leaves the window. None: no crash is counted."""
    ages = [now.since(entry.at) for entry in ledger if entry.budget is Budget.CRASH]
    inside = [age for age in ages if age < limits.crash_window]
    return limits.crash_window - max(inside) if inside else None


def _mark_own_ends(ledger: Sequence[Spend]) -> list[bool]:
    """Return one flag per entry: true for a run that neither broke nor hung, so that its provider answered and its host
    lived.

    A crash is recorded as two entries, of a crash and of a run. Its run is not marked, because it proves neither. A
    completed stage is marked.
    """
    return [
        entry.budget is Budget.STAGE
        or (entry.budget is Budget.RUNS and (index == 0 or ledger[index - 1].budget not in _BROKEN_RUNS))
        for index, entry in enumerate(ledger)
    ]


def count_losses_in_a_row(ledger: Sequence[Spend]) -> int:
    """Count the losses since the last run that ended by itself."""
    count = 0
    for entry, is_own_end in zip(reversed(ledger), reversed(_mark_own_ends(ledger)), strict=True):
        if is_own_end:
            break
        count += entry.budget is Budget.LOST
    return count


def is_lost_too_often(ledger: Sequence[Spend], limits: RetryLimits) -> bool:
    """True if there were too many losses in a row, or as many losses in total as a task may have runs."""
    return count_losses_in_a_row(ledger) >= limits.lost or spent(ledger, Budget.LOST) >= max_losses(limits)


def max_losses(limits: RetryLimits) -> int:
    return max(limits.lost, limits.runs)


def outage_seconds(ledger: Sequence[Spend], now: Instant) -> float:
    """Return how long the provider has been down for this task: since its last answer or a resume, without crashes and
    losses.

    The time is added up from entry to entry, so that one wrong reading of the wall clock cannot hide the rest. Time
    after a crash is not waiting and does not count. A crash does not reset the total either.
    """
    later, total = now, 0.0
    for entry, is_own_end in zip(reversed(ledger), reversed(_mark_own_ends(ledger)), strict=True):
        if entry.budget is Budget.RESUME or is_own_end:
            break
        if entry.budget is Budget.OUTAGE:
            total += later.since(entry.at)
        if entry.budget is not Budget.LOST:
            later = entry.at
    return total


def is_outage_too_long(ledger: Sequence[Spend], limits: RetryLimits, now: Instant) -> bool:
    """True if the outage is too long by the clock, or by the number of tries.

    The number is the safeguard against wrong clocks. The length of each wait is known, except with a clock that is set
    back at every boot.
    """
    return outage_seconds(ledger, now) >= limits.outage or _count_outages(ledger) >= max_outages(limits)


def max_outages(limits: RetryLimits) -> int:
    """Return twice the number of longest pauses that fit into the outage limit, and a few more for the short ones."""
    return 16 + 2 * int(limits.outage / max(1.0, limits.backoff_cap))


def _count_outages(ledger: Sequence[Spend]) -> int:
    """Count the outage entries since the last resume, whether these entries belong to one outage or to several."""
    count = 0
    for entry in reversed(ledger):
        if entry.budget is Budget.RESUME:
            break
        count += entry.budget is Budget.OUTAGE
    return count


def seconds_waited_for_limits(ledger: Sequence[Spend], now: Instant) -> float:
    """Return the total seconds for which the task has been paused for limits, the present pause included."""
    total, began = 0.0, None
    for entry in ledger:
        if entry.budget is Budget.WAIT:
            began = began or entry.at
        elif entry.budget in (Budget.RESUME, Budget.WAITED) and began is not None:
            total += entry.at.since(began)
            began = None
    return total if began is None else total + now.since(began)


def count_limits_in_a_row(ledger: Sequence[Spend]) -> int:
    """Count the pauses for limits since the ledger's newest entry of a run or a stage. No model answered in any later
    run."""
    count = 0
    for entry in reversed(ledger):
        if entry.budget in (Budget.RUNS, Budget.STAGE):
            # that run itself may have ended with a limit, after an answer: its wait follows it in the ledger
            break
        count += entry.budget is Budget.WAIT
    return count


def max_waits(limits: RetryLimits) -> int:
    """Return twice the number of longest holds that fit into `resume.max_wait`, and a few more for the short ones.

    The number is the safeguard against wrong clocks, as in `max_outages`.
    """
    return 16 + 2 * int(limits.max_wait / max(1.0, limits.max_hold))


def may_return_resume(ledger: Sequence[Spend]) -> bool:
    """True if the newest run follows a counted resume, so that this resume is given back if the run got no answer."""
    kinds = (Budget.RUNS, Budget.STAGE, Budget.WAIT, Budget.RESUME)
    newest = next((entry.budget for entry in reversed(ledger) if entry.budget in kinds), None)
    return newest is Budget.RESUME


def backoff(n: int, cap: float, jitter: float, first: float = 1.0) -> float:
    """Return `first` × 2^n seconds plus up to a quarter of that, never more than `cap` (R-TERM-11)."""
    base = min(cap, first * 2.0 ** min(n, 32))
    return min(cap, base * (1.0 + 0.25 * jitter))


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeDecision:
    """The decision whether a task may be resumed. It is the same for manual, automatic and API resumes."""

    allowed: bool
    attempt: int
    message: str


def end_of_pause(request: Request, now: Instant) -> float | None:
    """Return the wall time at which a task that an operator paused for a duration continues. The result is at most that
    duration from now, because a clock that was set back since must not turn hours into years."""
    until, seconds = request.data.get("until"), request.data.get("seconds")
    if not isinstance(until, int | float) or not isinstance(seconds, int | float):
        return None
    return min(until, now.wall + seconds)


FREE_RESUME_PAUSES = frozenset(
    {PauseReason.AUTH, PauseReason.BILLING, PauseReason.APPROVAL, PauseReason.GATE, PauseReason.OPERATOR}
)
"""Pauses whose resume is free. Fixing an account or a gate, approving or pausing is the act of a person and not another
try."""
RESUMES_SPENT = "max_resume_attempts_exceeded"  # the failure of a task whose next resume is refused


def decide_resume(
    attempts: int, maximum: int, task_id: str, pause: PauseReason | None = None, *, force: bool = False
) -> ResumeDecision:
    """Decide on the resume after `attempts` earlier ones, when `maximum` are allowed (R-RES-03/04). `force`: an
    operator allows more than that. The resume is counted all the same."""
    if pause in FREE_RESUME_PAUSES:
        return ResumeDecision(
            allowed=True, attempt=attempts, message=f"resumed after a pause ({pause}) that spends no resume"
        )
    attempt = attempts + 1
    if attempt <= maximum:
        return ResumeDecision(allowed=True, attempt=attempt, message=f"resume {attempt} of {maximum}")
    if force:
        return ResumeDecision(allowed=True, attempt=attempt, message=f"resume {attempt} of {maximum}, by force")
    what = "the task kept pausing" if attempts else "the task paused, and may not be resumed"
    return ResumeDecision(
        allowed=False,
        attempt=attempt,
        message=(
            f"Maximum resume attempts exceeded ({attempt}/{maximum}): {what}. "
            f"Break it into smaller tasks; or give it more: `holdfast retry {task_id} --max-resumes {2 * attempt}` "
            "(for all new tasks: `resume.max_attempts`); "
            f"or look into why it pauses with `holdfast events {task_id}`"
        ),
    )
