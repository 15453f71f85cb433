"""The policy: which action follows an outcome, and which durable retry budget pays for it.

Every automatic continuation spends from a budget in the store, so neither a crash nor a restart can make Holdfast loop.
The table `POLICY` is the whole policy. `decide` only does the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.agents.limit_reset import LONGEST_WAIT_FOR_LIMIT
from holdfast.core.dispatch.accounts import PARKING, STOPPING, AccountPause
from holdfast.core.model import PauseReason
from holdfast.core.runs.crashes import CRASHES, RecentCrashes
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.retry_budgets import (
    RESUMES_SPENT,
    Budget,
    ResumeDecision,
    RetryLimits,
    Spend,
    backoff,
    count_limits_in_a_row,
    count_losses_in_a_row,
    count_recent_crashes,
    is_lost_too_often,
    is_outage_too_long,
    max_waits,
    may_return_resume,
    seconds_waited_for_limits,
    spent,
)


class PolicyAction(StrEnum):
    COMPLETE = "complete"
    FAIL = "fail"
    REQUEUE = "requeue"
    PAUSE = "pause"
    CANCEL = "cancel"
    FREEZE = "freeze"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One row of the policy table."""

    action: PolicyAction
    spends: tuple[Budget, ...] = ()
    pause: PauseReason | None = None
    alert: bool = False
    keeps_session: bool = True


_CRASH = Rule(action=PolicyAction.REQUEUE, spends=(Budget.CRASH, Budget.RUNS))
_RETRY = Rule(action=PolicyAction.REQUEUE, spends=(Budget.RETRY, Budget.RUNS))
_OUTAGE = Rule(action=PolicyAction.REQUEUE, spends=(Budget.OUTAGE,))
_OVER = Rule(action=PolicyAction.PAUSE, spends=(Budget.RUNS,), pause=PauseReason.BUDGET)

POLICY: Mapping[Outcome, Rule] = {
    Outcome.COMPLETED: Rule(action=PolicyAction.COMPLETE, spends=(Budget.RUNS,)),
    Outcome.FAILED: Rule(action=PolicyAction.FAIL, spends=(Budget.RUNS,)),
    Outcome.EXTERNAL_KILL: _CRASH,
    Outcome.OUT_OF_MEMORY: _CRASH,
    Outcome.CRASHED: _CRASH,
    Outcome.TIMEOUT: _RETRY,
    Outcome.STUCK: _RETRY,
    Outcome.LOOPING: _RETRY,
    Outcome.STARTUP_TIMEOUT: _RETRY,
    Outcome.OVERLOADED: _OUTAGE,
    Outcome.NETWORK: _OUTAGE,
    Outcome.RATE_LIMITED: Rule(
        action=PolicyAction.PAUSE, spends=(Budget.RUNS, Budget.WAIT), pause=PauseReason.RATE_LIMIT
    ),
    Outcome.USAGE_LIMITED: Rule(
        action=PolicyAction.PAUSE, spends=(Budget.RUNS, Budget.WAIT), pause=PauseReason.USAGE_LIMIT
    ),
    Outcome.CONTEXT_LIMIT: Rule(
        action=PolicyAction.PAUSE, spends=(Budget.RUNS,), pause=PauseReason.CONTEXT_LIMIT, keeps_session=False
    ),
    Outcome.SESSION_LOST: Rule(action=PolicyAction.REQUEUE, spends=(Budget.SESSION, Budget.RUNS), keeps_session=False),
    Outcome.AUTH: Rule(action=PolicyAction.PAUSE, pause=PauseReason.AUTH, alert=True),
    Outcome.BILLING: Rule(action=PolicyAction.PAUSE, pause=PauseReason.BILLING, alert=True),
    Outcome.TURN_LIMIT: _OVER,
    Outcome.OVER_BUDGET: _OVER,
    Outcome.OUTPUT_LIMIT: _OVER,
    Outcome.PROCESS_LIMIT: _OVER,
    Outcome.LAUNCH_ERROR: Rule(action=PolicyAction.FAIL),
    Outcome.WORKSPACE_GONE: Rule(action=PolicyAction.FAIL, spends=(Budget.RUNS,)),
    Outcome.LOST: Rule(action=PolicyAction.REQUEUE, spends=(Budget.LOST,)),
    Outcome.CANCELLED: Rule(action=PolicyAction.CANCEL),
    Outcome.STOPPED: Rule(action=PolicyAction.REQUEUE),
    Outcome.PAUSED: Rule(action=PolicyAction.PAUSE, pause=PauseReason.OPERATOR),
    Outcome.UNKNOWN: Rule(action=PolicyAction.FREEZE, alert=True),
}

CLOCK_WAS_SET = 60.0  # seconds; less is the ordinary drift between two clocks
_LEAST_HOLD = 0.1  # share of `default_hold`: the shortest wait after the first resume
_MOST_SPREAD = 0.1  # share of a wait: a limit of seconds is not spread over minutes
CRASH_LOOP, RESUME_DISABLED = "crash_loop", "resume_disabled"  # failures; stable words
AUTO_RESUMED_PAUSES = frozenset({PauseReason.RATE_LIMIT, PauseReason.USAGE_LIMIT, PauseReason.CONTEXT_LIMIT})


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The next step of a task, and the reason. The reason reaches the log, the store and the screen."""

    action: PolicyAction
    reason: str
    delay: float = 0.0
    resume_after: float | None = None
    pause: PauseReason | None = None
    spends: tuple[Budget, ...] = ()
    failure: str | None = None  # stable word for a failure that we, not the agent, declared
    alert: bool = False
    keeps_session: bool = True
    begins_round: bool = False  # the work is done, and messages wait: the task continues with them
    returns_resume: bool = False  # the run met a limit before any answer, so the resume before it costs nothing
    refused: ResumeDecision | None = None  # the task fails now, because its next resume would be refused
    parking: AccountPause | None = None  # the effect on the run's account, if it had one
    # the task waits for the worker that it had (core/dispatch/workers.py); False: any may take it
    keeps_worker: bool = False
    crashes: RecentCrashes | None = None  # after a crash: the number of recent ones
    stage: Mapping[str, object] | None = None  # the task continues because a stage ended: the data of its event

    @property
    def waits_for_operator(self) -> bool:
        return self.action is PolicyAction.FREEZE or (self.action is PolicyAction.PAUSE and self.resume_after is None)


def decide(
    verdict: Verdict,
    ledger: Sequence[Spend],
    limits: RetryLimits,
    now: Instant,
    jitter: float = 0.0,
    repeats: int = 0,
) -> Decision:
    """Return the next step of a task after a run that ended with `verdict`. `jitter` is in [0, 1).

    `repeats`: how often probes of the run's account met its limit before this run.
    """
    repeats = max(repeats, count_limits_in_a_row(ledger)) if _is_refused_by_limit(verdict) else 0
    end = _end_of_limit(verdict, ledger, limits, now, jitter, repeats)
    decision = _enforce_max_wait(_decide(verdict, ledger, limits, now, jitter, end), ledger, limits, now)
    if verdict.outcome in CRASHES:
        count = count_recent_crashes(ledger, limits, now) + 1
        decision = replace(decision, crashes=RecentCrashes(count=count, limit=limits.crash, window=limits.crash_window))
    parking = _decide_parking(verdict, end, now, repeats)
    return decision if parking is None else replace(decision, parking=parking)


def task_outcome(verdict: Verdict, decision: Decision) -> Outcome:
    """Return the outcome to show for a task. It is the outcome of its last run, but never `completed` for a failed
    task."""
    is_refuted = decision.action is PolicyAction.FAIL and verdict.outcome is Outcome.COMPLETED
    return Outcome.FAILED if is_refuted else verdict.outcome


def rebase_times(decision: Decision, decided: Instant, now: Instant) -> Decision:
    """Shift the times of a decision made at `decided` if the wall clock was set before it is recorded at `now`.

    The work is saved between the two, which may take long. Without the shift, a wait of a second could become a wait of
    years.
    """
    moved = (now.wall - now.boottime) - (decided.wall - decided.boottime)
    if decided.boot_id != now.boot_id or abs(moved) < CLOCK_WAS_SET:
        return decision
    if decision.resume_after is not None:
        decision = replace(decision, resume_after=decision.resume_after + moved)
    parking = decision.parking
    if parking is not None and parking.until is not None:
        decision = replace(decision, parking=replace(parking, until=parking.until + moved))
    return decision


def _is_refused_by_limit(verdict: Verdict) -> bool:
    """True if the run met a limit before its model answered. That run was only a probe: it spends no budget of its task
    except the time of its wait."""
    return verdict.outcome in PARKING and not verdict.has_answer


def _rule_for(verdict: Verdict) -> Rule:
    rule = POLICY[verdict.outcome]
    return replace(rule, spends=(Budget.WAIT,)) if _is_refused_by_limit(verdict) else rule


def _decide_parking(verdict: Verdict, end: float, now: Instant, repeats: int) -> AccountPause | None:
    """Return the effect on the run's account. The effect does not depend on the task, because other runs of the account
    would meet the same limit."""
    if verdict.outcome in STOPPING:
        return AccountPause(until=None, outcome=verdict.outcome, reason=verdict.reason)
    if verdict.outcome in PARKING:
        return AccountPause(
            until=end,
            outcome=verdict.outcome,
            reason=verdict.reason,
            is_guess=not _is_end_known(verdict, now),
            is_repeated=repeats > 0,
        )
    return None


def _decide(
    verdict: Verdict, ledger: Sequence[Spend], limits: RetryLimits, now: Instant, jitter: float, end: float
) -> Decision:
    rule = _rule_for(verdict)
    spent_out = _exhausted_budget(rule, ledger, limits, now)
    if spent_out is not None:
        return _decide_exhausted(spent_out, verdict, rule)
    if rule.pause in AUTO_RESUMED_PAUSES and not limits.resume_enabled:
        return Decision(
            action=PolicyAction.FAIL,
            reason=f"resume_disabled: {verdict.reason}; with `resume.enabled = false` a limit ends its task",
            failure=RESUME_DISABLED,
            spends=rule.spends,
            keeps_session=rule.keeps_session,
        )
    if rule.action is PolicyAction.REQUEUE:
        return Decision(
            action=PolicyAction.REQUEUE,
            reason=verdict.reason,
            delay=_delay(rule, ledger, limits, now, jitter),
            spends=rule.spends,
            alert=rule.alert,
            keeps_session=rule.keeps_session,
        )
    return Decision(
        action=rule.action,
        reason=verdict.reason,
        pause=rule.pause,
        resume_after=_resume_after(rule, verdict, now, end),
        spends=rule.spends,
        failure=str(verdict.outcome) if rule.action is PolicyAction.FAIL else None,
        alert=rule.alert,
        keeps_session=rule.keeps_session,
        returns_resume=_is_refused_by_limit(verdict) and may_return_resume(ledger),
    )


def _enforce_max_wait(decision: Decision, ledger: Sequence[Spend], limits: RetryLimits, now: Instant) -> Decision:
    """Leave a task to an operator if its waits for limits would exceed `resume.max_wait` in total (R-RES-08)."""
    if Budget.WAIT not in decision.spends or decision.action is not PolicyAction.PAUSE or decision.resume_after is None:
        return decision
    before, ahead = seconds_waited_for_limits(ledger, now), decision.resume_after - now.wall
    if before + ahead <= limits.max_wait and spent(ledger, Budget.WAIT) < max_waits(limits):
        return decision
    words = (
        f"{decision.reason}; it would wait for {_hours(ahead)}, after {_hours(before)} for earlier limits: "
        f"longer than `resume.max_wait` ({_hours(limits.max_wait)}) allows. Look whether the plan or "
        "the key of its account still has something left; resume the task when it does, or raise `resume.max_wait`"
    )
    return replace(decision, resume_after=None, reason=words, alert=True)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"


def _exhausted_budget(rule: Rule, ledger: Sequence[Spend], limits: RetryLimits, now: Instant) -> Budget | None:
    """Return the first retry budget that forbids this continuation, counting the run that just ended."""
    checks: dict[Budget, Callable[[], bool]] = {
        Budget.CRASH: lambda: count_recent_crashes(ledger, limits, now) + 1 >= limits.crash,
        Budget.RETRY: lambda: spent(ledger, Budget.RETRY) >= limits.retry,
        Budget.LOST: lambda: is_lost_too_often(ledger, limits),
        Budget.OUTAGE: lambda: is_outage_too_long(ledger, limits, now),
        Budget.SESSION: lambda: spent(ledger, Budget.SESSION) >= limits.session,
        # counted in seconds, by `_enforce_max_wait`, once the length of the next wait is known
        Budget.WAIT: lambda: False,
        Budget.RUNS: lambda: _continues_automatically(rule) and spent(ledger, Budget.RUNS) + 1 >= limits.runs,
    }
    return next((b for b in rule.spends if checks[b]()), None)


def _continues_automatically(rule: Rule) -> bool:
    return rule.action is PolicyAction.REQUEUE or (
        rule.action is PolicyAction.PAUSE and rule.pause in AUTO_RESUMED_PAUSES
    )


_EXHAUSTED_FAILURES = {
    Budget.CRASH: CRASH_LOOP,
    Budget.RETRY: "retries_spent",
    Budget.LOST: "lost_too_often",
    Budget.SESSION: "session_lost",
    Budget.RUNS: "runs_spent",
}
FAILED_BY_LIMIT = frozenset({*_EXHAUSTED_FAILURES.values(), RESUME_DISABLED, RESUMES_SPENT, str(Outcome.OVER_BUDGET)})


def _decide_exhausted(budget: Budget, verdict: Verdict, rule: Rule) -> Decision:
    if budget is Budget.OUTAGE:
        return Decision(
            action=PolicyAction.PAUSE,
            pause=PauseReason.OUTAGE,
            reason=f"the provider stayed unavailable for too long; last: {verdict.reason}",
            spends=rule.spends,
            alert=True,
        )
    return Decision(
        action=PolicyAction.FAIL,
        reason=f"{_EXHAUSTED_FAILURES[budget]}: the {budget} budget is spent; last: {verdict.reason}",
        failure=_EXHAUSTED_FAILURES[budget],
        spends=rule.spends,
        alert=budget in (Budget.CRASH, Budget.LOST),
        keeps_session=rule.keeps_session,  # a retry begins again, too
    )


def _delay(rule: Rule, ledger: Sequence[Spend], limits: RetryLimits, now: Instant, jitter: float) -> float:
    if Budget.RETRY in rule.spends:
        return backoff(spent(ledger, Budget.RETRY), limits.backoff_cap, jitter, limits.retry_base)
    if Budget.CRASH in rule.spends:
        return backoff(count_recent_crashes(ledger, limits, now), limits.backoff_cap, jitter)
    if Budget.OUTAGE in rule.spends:
        return backoff(spent(ledger, Budget.OUTAGE), limits.backoff_cap, jitter, limits.outage_base)
    if Budget.LOST in rule.spends:
        earlier = count_losses_in_a_row(ledger)
        return 0.0 if earlier == 0 else backoff(earlier - 1, limits.backoff_cap, jitter)
    return 0.0


def _resume_after(rule: Rule, verdict: Verdict, now: Instant, end: float) -> float | None:
    if rule.pause is PauseReason.CONTEXT_LIMIT:
        return now.wall
    if rule.pause is PauseReason.OPERATOR:
        return None if verdict.resets_at is None else max(now.wall, verdict.resets_at)  # `pause --for`
    return end if rule.pause in AUTO_RESUMED_PAUSES else None


def _is_end_known(verdict: Verdict, now: Instant) -> bool:
    """True if the provider reported the end of the limit, and that time can be believed."""
    at = verdict.resets_at
    return at is not None and math.isfinite(at) and at <= now.wall + LONGEST_WAIT_FOR_LIMIT


def _end_of_limit(
    verdict: Verdict, ledger: Sequence[Spend], limits: RetryLimits, now: Instant, jitter: float, repeats: int
) -> float:
    """Return the wall time at which the limit ends, or at which the next probe tries.

    The reported reset time is believed. Without one, each hold is twice as long as the one before. A task that met a
    limit after a resume already waits longer each time. Otherwise a provider that always answers "try again in a
    second" would use up every resume within seconds.
    """
    longest = max(limits.max_hold, limits.default_hold)
    if verdict.resets_at is None or not _is_end_known(verdict, now):
        hold = min(longest, limits.default_hold * 2.0 ** min(repeats, 32))
        return now.wall + hold * (1.0 + 0.1 * jitter)
    earlier, cap = max(repeats, spent(ledger, Budget.RESUME)), longest if repeats else limits.default_hold
    least = backoff(earlier - 1, cap, jitter, _LEAST_HOLD * limits.default_hold) if earlier else 0.0
    wait = max(0.0, verdict.resets_at - now.wall)
    spread = jitter * min(limits.resume_jitter, _MOST_SPREAD * wait)
    return max(verdict.resets_at + spread, now.wall + max(least, jitter))
