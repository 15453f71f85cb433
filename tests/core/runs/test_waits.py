"""How long a task may wait for limits, how the ends of limits are spread, and what switches it all off."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.base.instant import Instant
from holdfast.core.model import PauseReason, Request, RequestKind, StopWhy, outranks_stop
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import PolicyAction, decide
from holdfast.core.runs.retry_budgets import (
    Budget,
    RetryLimits,
    Spend,
    decide_resume,
    end_of_pause,
    seconds_waited_for_limits,
)

HOUR, DAY, YEAR = 3600.0, 86400.0, 365 * 86400.0
NOW = Instant(wall=1_800_000_000.0, boottime=1_000_000.0, boot_id="boot-0")
LIMITS = (Outcome.RATE_LIMITED, Outcome.USAGE_LIMITED, Outcome.CONTEXT_LIMIT)


def at(seconds: float, boot: str = "boot-0", wall_error: float = 0.0) -> Instant:
    return Instant(wall=NOW.wall + seconds + wall_error, boottime=NOW.boottime + seconds, boot_id=boot)


def limited(resets_in: float, outcome: Outcome = Outcome.USAGE_LIMITED) -> Verdict:
    return Verdict(outcome=outcome, reason="the week is used up", resets_at=NOW.wall + resets_in)


def a_wait(start: float, end: float, **how: object) -> list[Spend]:
    return [
        Spend(budget=Budget.RUNS, at=at(start)),
        Spend(budget=Budget.WAIT, at=at(start)),
        Spend(budget=Budget.RESUME, at=at(end, **how)),  # type: ignore[arg-type]
    ]


def test_whoever_would_wait_for_longer_in_all_is_left_to_an_operator() -> None:
    """R-RES-08: the waits of the past and the next one count; the limit itself is still allowed."""
    ledger = [*a_wait(-6 * DAY, -3 * DAY), *a_wait(-2 * DAY, -1 * DAY)]
    assert seconds_waited_for_limits(ledger, NOW) == pytest.approx(4 * DAY)
    allowed = decide(limited(3 * DAY - 1), ledger, RetryLimits(), NOW)
    assert allowed.resume_after is not None
    refused = decide(limited(3 * DAY + 1), ledger, RetryLimits(), NOW)
    assert (refused.action, refused.pause, refused.resume_after) == (PolicyAction.PAUSE, PauseReason.USAGE_LIMIT, None)
    assert refused.alert
    assert refused.waits_for_operator
    assert "the week is used up" in refused.reason
    assert "after 96.0 h for earlier limits: more than `resume.max_wait` (168.0 h)" in refused.reason
    assert refused.parking is not None, "its account waits for the reset all the same"


def test_the_wait_is_measured_whatever_the_wall_clock_does() -> None:
    """Exact within a boot, with the wall clock ten years off; never negative across boots."""
    assert seconds_waited_for_limits(a_wait(-HOUR, 0, wall_error=-10 * YEAR), NOW) == pytest.approx(HOUR)
    assert seconds_waited_for_limits(a_wait(-HOUR, 0, wall_error=10 * YEAR), NOW) == pytest.approx(HOUR)
    assert seconds_waited_for_limits(a_wait(-HOUR, 0, boot="boot-1", wall_error=-10 * YEAR), NOW) == 0.0
    waiting = a_wait(-HOUR, 0)[:2]
    assert seconds_waited_for_limits(waiting, NOW) == pytest.approx(HOUR), "the present pause counts"


@pytest.mark.parametrize("outcome", LIMITS)
def test_with_resumes_switched_off_a_limit_fails_its_task(outcome: Outcome) -> None:
    """R-RES-08: `resume.enabled = false`; what waits for a person anyway is paused as ever."""
    off = RetryLimits(resume_enabled=False)
    decision = decide(limited(60, outcome), [], off, NOW)
    assert (decision.action, decision.failure, decision.resume_after) == (PolicyAction.FAIL, "resume_disabled", None)
    assert "resume.enabled" in decision.reason
    assert decide(limited(60, Outcome.AUTH), [], off, NOW).action is PolicyAction.PAUSE
    assert decide(Verdict(outcome=Outcome.PAUSED, reason="x"), [], off, NOW).action is PolicyAction.PAUSE


@settings(max_examples=60, deadline=None)
@given(wait=st.floats(0, 30 * DAY), jitter=st.floats(0, 0.999), spread=st.floats(0, HOUR))
def test_ends_of_limits_are_spread_but_never_early(wait: float, jitter: float, spread: float) -> None:
    """R-RES-08: up to `resume.jitter`, at most a tenth of the wait."""
    limits = RetryLimits(resume_jitter=spread, max_wait=YEAR)
    due = decide(limited(wait), [], limits, NOW, jitter).resume_after
    assert due is not None
    late = due - max(NOW.wall + wait, NOW.wall + jitter)
    assert -1e-3 <= late <= min(spread, wait / 10) + 1e-3


def test_a_pause_for_a_time_ends_when_the_operator_said() -> None:
    paused = Verdict(outcome=Outcome.PAUSED, reason="paused by ann", resets_at=NOW.wall + 2 * HOUR)
    decision = decide(paused, [], RetryLimits(), NOW)
    assert (decision.pause, decision.resume_after, decision.spends) == (PauseReason.OPERATOR, NOW.wall + 2 * HOUR, ())
    asked = Request(
        id=1,
        kind=RequestKind.PAUSE,
        task_id="t",
        by="ann",
        at=NOW.wall,
        why="",
        data={"until": NOW.wall + 2 * HOUR, "seconds": 2 * HOUR},
    )
    assert end_of_pause(asked, at(HOUR)) == NOW.wall + 2 * HOUR
    back = at(HOUR, wall_error=-10 * YEAR)
    assert end_of_pause(asked, back) == back.wall + 2 * HOUR, "the clock was set back: not ten years"
    assert end_of_pause(replace(asked, data={}), NOW) is None


def test_an_operators_force_goes_beyond_the_limit_and_is_counted() -> None:
    """R-RES-02, R-RES-03."""
    assert not decide_resume(3, 3, "t").allowed
    forced = decide_resume(3, 3, "t", force=True)
    assert (forced.allowed, forced.attempt, forced.message) == (True, 4, "resume 4 of 3, by force")
    assert decide_resume(0, 3, "t", force=True).message == "resume 1 of 3"


def test_whose_wish_stands_when_several_come_at_once() -> None:
    """Cancel before pause before down before our own verdicts; the first of equals stands."""
    for one, other in product(StopWhy, StopWhy):
        assert not (outranks_stop(one, other) and outranks_stop(other, one)), (one, other)
    order = [StopWhy.STUCK, StopWhy.DOWN, StopWhy.PAUSE, StopWhy.CANCEL]
    for low, high in ((a, b) for i, a in enumerate(order) for b in order[i + 1 :]):
        assert outranks_stop(high, low)
        assert not outranks_stop(low, high)
    assert all(outranks_stop(why, None) for why in StopWhy)
