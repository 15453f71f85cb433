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
from holdfast.core.runs.policy import Decision, PolicyAction, decide
from holdfast.core.runs.retry_budgets import (
    Budget,
    RetryLimits,
    Spend,
    decide_resume,
    end_of_pause,
    max_waits,
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
    assert "after 96.0 h for earlier limits: longer than `resume.max_wait` (168.0 h)" in refused.reason
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


# -- a limit without a known end --------------------------------------------------------------------------------------


def refused(resets_in: float | None = None, outcome: Outcome = Outcome.RATE_LIMITED) -> Verdict:
    """A run whose first request met the limit: no model answered."""
    at = None if resets_in is None else NOW.wall + resets_in
    return Verdict(outcome=outcome, reason="429", resets_at=at, has_answer=False)


def wait_out(verdict: Verdict, limits: RetryLimits, most: int = 10_000) -> tuple[list[float], list[Spend], Decision]:
    """Let probes meet the same limit until an operator has to decide. Return the holds, the ledger, and the end."""
    ledger: list[Spend] = []
    holds: list[float] = []
    passed = 0.0
    for _ in range(most):
        now = at(passed)
        decision = decide(replace(verdict, resets_at=None), ledger, limits, now)
        assert decision.action is PolicyAction.PAUSE, decision.reason
        ledger += [Spend(budget=budget, at=now) for budget in decision.spends]
        if decision.resume_after is None:
            return holds, ledger, decision
        holds.append(decision.resume_after - now.wall)
        passed += holds[-1]
        ledger.append(Spend(budget=Budget.RESUME, at=at(passed)))
        passed += 1.0
    pytest.fail("it waits for ever")


@pytest.mark.parametrize("outcome", [Outcome.RATE_LIMITED, Outcome.USAGE_LIMITED])
def test_a_limit_without_a_known_end_is_waited_out_with_growing_holds(outcome: Outcome) -> None:
    """R-RES-08: it never fails the task. Only `wait` is spent, and an operator decides after `resume.max_wait`."""
    holds, ledger, last = wait_out(refused(outcome=outcome), RetryLimits())
    assert holds[:6] == [300, 600, 1200, 2400, 3600, 3600]
    assert set(holds[4:]) == {3600}
    assert 7 * DAY - 3600 <= sum(holds) <= 7 * DAY
    assert {entry.budget for entry in ledger} == {Budget.WAIT, Budget.RESUME}
    assert last.alert
    assert "resume.max_wait" in last.reason
    assert "its account still has something left" in last.reason
    assert "smaller tasks" not in last.reason


def test_a_run_that_met_the_same_limit_returns_its_resume() -> None:
    """R-RES-08: one limit costs one resume at most, told or not; a run with an answer pays for its own."""
    met = [Spend(budget=Budget.RUNS, at=at(-900)), Spend(budget=Budget.WAIT, at=at(-900))]
    resumed = [*met, Spend(budget=Budget.RESUME, at=at(-10))]
    for verdict in (refused(), refused(30.0)):
        assert decide(verdict, resumed, RetryLimits(), NOW).returns_resume
        assert not decide(verdict, met, RetryLimits(), NOW).returns_resume, "no resume was counted"
        assert not decide(replace(verdict, has_answer=True), resumed, RetryLimits(), NOW).returns_resume
        crashed = [*resumed, Spend(budget=Budget.CRASH, at=NOW), Spend(budget=Budget.RUNS, at=NOW)]
        assert not decide(verdict, crashed, RetryLimits(), NOW).returns_resume, "the run after it was another one"
    paid = decide(replace(refused(), has_answer=True), resumed, RetryLimits(), NOW)
    assert set(paid.spends) == {Budget.RUNS, Budget.WAIT}


def test_a_told_limit_that_is_met_again_holds_longer_each_time() -> None:
    """A provider that says "in a second" for ever does not cause a run per second."""
    ledger: list[Spend] = []
    holds = []
    for _ in range(12):
        decision = decide(refused(1.0), ledger, RetryLimits(), NOW)
        holds.append((decision.resume_after or 0.0) - NOW.wall)
        ledger += [Spend(budget=Budget.WAIT, at=NOW), Spend(budget=Budget.RESUME, at=NOW)]
    assert holds == [1, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]


def test_the_holds_of_an_account_grow_whichever_task_is_its_probe() -> None:
    """A task that was never started continues where the probes of others came to."""
    holds = [decide(refused(), [], RetryLimits(), NOW, repeats=n) for n in range(6)]
    assert [(one.resume_after or 0.0) - NOW.wall for one in holds] == [300, 600, 1200, 2400, 3600, 3600]
    assert [one.parking and (one.parking.is_guess, one.parking.is_repeated) for one in holds[:2]] == [
        (True, False),
        (True, True),
    ]


def test_waiting_ends_although_no_clock_ever_moves() -> None:
    """Promise 4: rebooted after every try, with the wall clock set back each time, no time passes: tries count."""
    limits = RetryLimits()
    ledger: list[Spend] = []
    for number in range(10_000):
        now = Instant(wall=NOW.wall - 1e5 * number, boottime=1.0, boot_id=f"boot-{number}")
        decision = decide(refused(), ledger, limits, now)
        if decision.resume_after is None:
            break
        ledger += [Spend(budget=budget, at=now) for budget in (*decision.spends, Budget.RESUME)]
    assert decision.waits_for_operator
    assert number == max_waits(limits)


@settings(max_examples=100, deadline=None)
@given(
    answers=st.lists(st.booleans(), min_size=1, max_size=6),
    told=st.none() | st.floats(-10, 7 * DAY),
    hold=st.sampled_from([1.0, 300.0, DAY]),
    wait=st.sampled_from([0.0, 3600.0, 7 * DAY]),
    resumes=st.integers(0, 4),
)
def test_any_mixture_of_limits_comes_to_rest(
    answers: list[bool], told: float | None, hold: float, wait: float, resumes: int
) -> None:
    """R-RES-12: with or without answers, told or not, the task ends or waits for an operator."""
    limits, spent_resumes, passed = RetryLimits(default_hold=hold, max_wait=wait), 0, 0.0
    ledger: list[Spend] = []
    for number in range(5_000):
        now = at(passed)
        verdict = Verdict(
            outcome=Outcome.USAGE_LIMITED,
            reason="x",
            resets_at=None if told is None else now.wall + told,
            has_answer=answers[number % len(answers)],
        )
        decision = decide(verdict, ledger, limits, now)
        ledger += [Spend(budget=budget, at=now) for budget in decision.spends]
        spent_resumes -= decision.returns_resume
        if decision.action is PolicyAction.FAIL or decision.resume_after is None:
            return
        passed += decision.resume_after - now.wall
        spent_resumes += 1
        if spent_resumes > resumes:
            return
        ledger.append(Spend(budget=Budget.RESUME, at=at(passed)))
    pytest.fail("it continues for ever")
