"""Outcome → action and budget: DESIGN.md's "How a run ended, and what follows", written down a second time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.api.tasks.why.circumstances import FREE_RESUMES
from holdfast.base.instant import Instant
from holdfast.core.model import PauseReason
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import POLICY, Decision, PolicyAction, decide, rebase_times
from holdfast.core.runs.retry_budgets import (
    FREE_RESUME_PAUSES,
    Budget,
    RetryLimits,
    Spend,
    backoff,
    decide_resume,
    max_losses,
    max_outages,
    outage_seconds,
    spent,
)

O, A, B, P = Outcome, PolicyAction, Budget, PauseReason  # noqa: E741  # the tables below are read by columns

HOUR = 3600.0
BASE = Instant(wall=1_800_000_000.0, boottime=1_000_000.0, boot_id="boot-0")
CRASHES = (O.EXTERNAL_KILL, O.OUT_OF_MEMORY, O.CRASHED)
RETRIES = (O.TIMEOUT, O.STUCK, O.LOOPING, O.STARTUP_TIMEOUT)
OUTAGES = (O.OVERLOADED, O.NETWORK)
COUNTED_AND_GOING_ON = (
    *CRASHES,
    *RETRIES,
    O.SESSION_LOST,
    O.RATE_LIMITED,
    O.USAGE_LIMITED,
    O.CONTEXT_LIMIT,
)


def ended(outcome: Outcome, resets_at: float | None = None) -> Verdict:
    return Verdict(outcome=outcome, reason=f"because of {outcome}", resets_at=resets_at)


def later(seconds: float, since: Instant = BASE) -> Instant:
    return Instant(wall=since.wall + seconds, boottime=since.boottime + seconds, boot_id=since.boot_id)


def spends(budget: Budget, count: int, at: Instant = BASE) -> list[Spend]:
    return [Spend(budget=budget, at=at)] * count


def decided(
    outcome: Outcome,
    ledger: Sequence[Spend] = (),
    now: Instant = BASE,
    limits: RetryLimits | None = None,
    jitter: float = 0.0,
) -> Decision:
    return decide(ended(outcome), ledger, limits or RetryLimits(), now, jitter)


# --------------------------------------------------------------------------------------------------------------------
# The table, row by row
# --------------------------------------------------------------------------------------------------------------------

# outcome, action, budgets, pause reason, alert, continues its session. Each run that its agent ended counts as one of
# the 12 runs; runs that were lost, kept waiting by a provider or stopped by us do not.
FIRST_TIME = [
    (O.COMPLETED, A.COMPLETE, {B.RUNS}, None, False, True),
    (O.FAILED, A.FAIL, {B.RUNS}, None, False, True),
    (O.EXTERNAL_KILL, A.REQUEUE, {B.CRASH, B.RUNS}, None, False, True),
    (O.OUT_OF_MEMORY, A.REQUEUE, {B.CRASH, B.RUNS}, None, False, True),
    (O.CRASHED, A.REQUEUE, {B.CRASH, B.RUNS}, None, False, True),
    (O.TIMEOUT, A.REQUEUE, {B.RETRY, B.RUNS}, None, False, True),
    (O.STUCK, A.REQUEUE, {B.RETRY, B.RUNS}, None, False, True),
    (O.LOOPING, A.REQUEUE, {B.RETRY, B.RUNS}, None, False, True),
    (O.STARTUP_TIMEOUT, A.REQUEUE, {B.RETRY, B.RUNS}, None, False, True),
    (O.OVERLOADED, A.REQUEUE, {B.OUTAGE}, None, False, True),
    (O.NETWORK, A.REQUEUE, {B.OUTAGE}, None, False, True),
    (O.RATE_LIMITED, A.PAUSE, {B.RUNS, B.WAIT}, P.RATE_LIMIT, False, True),
    (O.USAGE_LIMITED, A.PAUSE, {B.RUNS, B.WAIT}, P.USAGE_LIMIT, False, True),
    (O.CONTEXT_LIMIT, A.PAUSE, {B.RUNS}, P.CONTEXT_LIMIT, False, False),
    (O.SESSION_LOST, A.REQUEUE, {B.SESSION, B.RUNS}, None, False, False),
    (O.AUTH, A.PAUSE, set(), P.AUTH, True, True),
    (O.BILLING, A.PAUSE, set(), P.BILLING, True, True),
    (O.TURN_LIMIT, A.PAUSE, {B.RUNS}, P.BUDGET, False, True),
    (O.OVER_BUDGET, A.PAUSE, {B.RUNS}, P.BUDGET, False, True),
    (O.OUTPUT_LIMIT, A.PAUSE, {B.RUNS}, P.BUDGET, False, True),
    (O.PROCESS_LIMIT, A.PAUSE, {B.RUNS}, P.BUDGET, False, True),
    (O.LAUNCH_ERROR, A.FAIL, set(), None, False, True),
    (O.WORKSPACE_GONE, A.FAIL, {B.RUNS}, None, False, True),
    (O.LOST, A.REQUEUE, {B.LOST}, None, False, True),
    (O.CANCELLED, A.CANCEL, set(), None, False, True),
    (O.STOPPED, A.REQUEUE, set(), None, False, True),
    (O.PAUSED, A.PAUSE, set(), P.OPERATOR, False, True),
    (O.UNKNOWN, A.FREEZE, set(), None, True, True),
]


def test_every_outcome_has_a_rule_and_a_row_here() -> None:
    assert set(POLICY) == set(Outcome)
    assert [row[0] for row in FIRST_TIME] == list(Outcome)


@pytest.mark.parametrize(("outcome", "action", "budgets", "pause", "alert", "session"), FIRST_TIME)
def test_the_first_time(
    outcome: Outcome,
    action: PolicyAction,
    budgets: set[Budget],
    pause: PauseReason | None,
    alert: bool,
    session: bool,
) -> None:
    """R-RES-01, R-TERM-11, R-CRASH-04: what an ending leads to when nothing has been spent yet."""
    decision = decided(outcome)
    assert decision.action is action
    assert set(decision.spends) == budgets
    assert len(decision.spends) == len(budgets)
    assert decision.pause is pause
    assert decision.alert is alert
    assert decision.keeps_session is session
    assert decision.reason == f"because of {outcome}"
    assert decision.failure == (str(outcome) if action is A.FAIL else None)


@pytest.mark.parametrize(
    "outcome", [O.AUTH, O.BILLING, O.TURN_LIMIT, O.OVER_BUDGET, O.OUTPUT_LIMIT, O.PROCESS_LIMIT, O.PAUSED, O.UNKNOWN]
)
def test_these_wait_for_an_operator(outcome: Outcome) -> None:
    """R-RES-01: no clock brings them back; a spent budget or a broken account needs a person."""
    decision = decided(outcome)
    assert decision.waits_for_operator
    assert decision.resume_after is None


@pytest.mark.parametrize(
    "outcome",
    sorted(
        set(Outcome)
        - {O.AUTH, O.BILLING, O.TURN_LIMIT, O.OVER_BUDGET, O.OUTPUT_LIMIT, O.PROCESS_LIMIT, O.PAUSED, O.UNKNOWN}
    ),
)
def test_nothing_else_waits_for_an_operator_the_first_time(outcome: Outcome) -> None:
    assert not decided(outcome).waits_for_operator


# --------------------------------------------------------------------------------------------------------------------
# The crash budget: 3 in 600 s, sliding, the edge outside
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", CRASHES)
@pytest.mark.parametrize(
    ("ages", "goes_on"),
    [
        ((), True),
        ((1.0,), True),
        ((2.0, 1.0), False),
        ((599.999, 1.0), False),
        ((600.0, 1.0), True),  # exactly at the edge is outside
        ((600.001, 1.0), True),
        ((700.0, 650.0, 600.0), True),
        ((700.0, 650.0, 599.0, 0.0), False),
        ((0.0, 0.0), False),
    ],
)
def test_three_crashes_in_the_window_stop_the_task(outcome: Outcome, ages: tuple[float, ...], goes_on: bool) -> None:
    """R-CRASH-04: crashes 1 and 2 requeue, 3 stops and notifies; the window slides; its edge is outside."""
    ledger = [Spend(budget=B.CRASH, at=later(-age)) for age in ages]
    decision = decided(outcome, ledger)
    if goes_on:
        assert (decision.action, decision.failure, decision.alert) == (A.REQUEUE, None, False)
    else:
        assert (decision.action, decision.failure, decision.alert) == (A.FAIL, "crash_loop", True)
        assert "crash_loop" in decision.reason
        assert f"because of {outcome}" in decision.reason
    assert B.CRASH in decision.spends


@pytest.mark.parametrize(("age", "action"), [(59.9, A.FAIL), (60.0, A.REQUEUE)])
def test_the_configured_window_and_number_are_used(age: float, action: PolicyAction) -> None:
    """R-CRASH-04: the configured value, not the default."""
    limits = RetryLimits(crash=2, crash_window=60.0)
    assert decided(O.CRASHED, spends(B.CRASH, 1, later(-age)), limits=limits).action is action


@pytest.mark.parametrize("wall_jump", [-1e9, -700.0, 700.0, 1e9])
def test_within_a_boot_the_wall_clock_does_not_matter_to_the_crash_window(wall_jump: float) -> None:
    """R-CRASH-04: someone sets the clock; the three crashes were within ten minutes all the same."""
    now = Instant(wall=BASE.wall + wall_jump, boottime=BASE.boottime + 10, boot_id=BASE.boot_id)
    assert decided(O.CRASHED, spends(B.CRASH, 2), now).failure == "crash_loop"
    much_later = Instant(wall=BASE.wall + wall_jump, boottime=BASE.boottime + 600, boot_id=BASE.boot_id)
    assert decided(O.CRASHED, spends(B.CRASH, 2), much_later).action is A.REQUEUE


@pytest.mark.parametrize(("wall_after", "action"), [(599.0, A.FAIL), (600.0, A.REQUEUE), (0.0, A.FAIL), (-1e6, A.FAIL)])
def test_a_reboot_does_not_reset_the_crash_budget(wall_after: float, action: PolicyAction) -> None:
    """R-CRASH-04: across boots it is clamped wall time; a clock set back never makes a crash look old."""
    now = Instant(wall=BASE.wall + wall_after, boottime=20.0, boot_id="boot-1")
    assert decided(O.CRASHED, spends(B.CRASH, 2), now).action is action


def test_crashes_of_every_kind_draw_on_one_budget() -> None:
    """R-CRASH-04: killed, out of memory, then a segfault is still three crashes."""
    ledger: list[Spend] = []
    actions = []
    for outcome in CRASHES:
        decision = decided(outcome, ledger)
        ledger += [Spend(budget=budget, at=BASE) for budget in decision.spends]
        actions.append(decision.action)
    assert actions == [A.REQUEUE, A.REQUEUE, A.FAIL]


def test_crashes_are_requeued_with_back_off() -> None:
    assert [decided(O.CRASHED, spends(B.CRASH, n)).delay for n in range(2)] == [1.0, 2.0]


# --------------------------------------------------------------------------------------------------------------------
# Retry, session, lost, runs, outage
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", RETRIES)
@pytest.mark.parametrize(
    ("earlier", "action", "delay"),
    [(0, A.REQUEUE, 1.0), (1, A.REQUEUE, 2.0), (2, A.REQUEUE, 4.0), (3, A.FAIL, 0.0), (4, A.FAIL, 0.0)],
)
def test_three_retries_with_doubling_delays(outcome: Outcome, earlier: int, action: PolicyAction, delay: float) -> None:
    """R-TERM-11: 2^n s with n from 0, at most 3."""
    decision = decided(outcome, spends(B.RETRY, earlier))
    assert (decision.action, decision.delay) == (action, delay)
    assert decision.failure == (None if action is A.REQUEUE else "retries_spent")


@pytest.mark.parametrize(("n", "seconds"), [(0, 1.0), (7, 128.0), (8, 256.0), (9, 300.0), (40, 300.0), (5000, 300.0)])
def test_the_back_off_is_capped(n: int, seconds: float) -> None:
    """R-TERM-11: cap 5 m, and no overflow however long the row."""
    limits = RetryLimits(retry=10_000, runs=10_000)
    assert decided(O.TIMEOUT, spends(B.RETRY, n), limits=limits).delay == seconds
    assert backoff(n, 300.0, 0.0) == seconds


@pytest.mark.parametrize("n", range(12))
def test_jitter_spreads_the_back_off_upwards_and_stays_under_the_cap(n: int) -> None:
    """R-TERM-11: with jitter; a fleet that fell together must not come back together."""
    plain, spread = backoff(n, 300.0, 0.0), backoff(n, 300.0, 0.999)
    assert plain <= spread <= 300.0
    assert spread > plain or plain == 300.0


@pytest.mark.parametrize(("earlier", "delay"), [(0, 0.05), (1, 0.1), (2, 0.2)])
def test_the_first_retry_sets_the_pace(earlier: int, delay: float) -> None:
    """R-TERM-11: `retry.base` scales the doubling, for retries alone."""
    limits = RetryLimits(retry_base=0.05)
    assert decided(O.TIMEOUT, spends(B.RETRY, earlier), limits=limits).delay == pytest.approx(delay)
    assert decided(O.CRASHED, limits=limits).delay == 1.0
    assert backoff(40, 300.0, 0.0, 0.05) == 300.0


def test_retries_do_not_expire() -> None:
    """R-TERM-11: the retry budget is no window; a day later it is as spent as before."""
    assert decided(O.TIMEOUT, spends(B.RETRY, 3), later(24 * HOUR)).action is A.FAIL


def test_a_lost_session_is_replaced_once() -> None:
    """R-RES-09: a new session with a hand-over, once."""
    once = decided(O.SESSION_LOST)
    twice = decided(O.SESSION_LOST, spends(B.SESSION, 1))
    assert (once.action, once.keeps_session) == (A.REQUEUE, False)
    assert (twice.action, twice.failure) == (A.FAIL, "session_lost")


@pytest.mark.parametrize(
    ("earlier", "action", "delay"),
    [
        (0, A.REQUEUE, 0.0),
        (1, A.REQUEUE, 1.0),
        (2, A.REQUEUE, 2.0),
        (4, A.REQUEUE, 8.0),
        (5, A.FAIL, 0.0),
        (6, A.FAIL, 0.0),
    ],
)
def test_five_losses_without_progress(earlier: int, action: PolicyAction, delay: float) -> None:
    """The host died under it five times: each is forgiven, the sixth fails it and alerts."""
    decision = decided(O.LOST, spends(B.LOST, earlier))
    assert (decision.action, decision.delay) == (action, delay)
    assert (decision.failure, decision.alert) == ((None, False) if action is A.REQUEUE else ("lost_too_often", True))


def test_only_a_run_that_ended_by_itself_is_progress() -> None:
    """A run's own ending forgives the losses before it; waiting for a provider or a resume does not."""
    five = spends(B.LOST, 5)
    assert decided(O.LOST, five + spends(B.RUNS, 1)).action is A.REQUEUE
    assert decided(O.LOST, five + spends(B.RUNS, 1) + spends(B.LOST, 4)).action is A.REQUEUE
    assert decided(O.LOST, five + spends(B.RUNS, 1) + five).action is A.FAIL
    assert decided(O.LOST, five + spends(B.OUTAGE, 3) + spends(B.RESUME, 1)).action is A.FAIL
    assert decided(O.LOST, spends(B.LOST, 3) + spends(B.OUTAGE, 1) + spends(B.LOST, 2)).action is A.FAIL


@pytest.mark.parametrize("outcome", COUNTED_AND_GOING_ON)
@pytest.mark.parametrize(("earlier", "goes_on"), [(10, True), (11, False), (12, False)])
def test_the_twelfth_run_is_the_last(outcome: Outcome, earlier: int, goes_on: bool) -> None:
    """12 runs per task, so that budgets cannot multiply: run 11 may lead to a twelfth, run 12 to nothing."""
    decision = decided(outcome, spends(B.RUNS, earlier))
    if goes_on:
        assert decision.action in (A.REQUEUE, A.PAUSE)
    else:
        assert (decision.action, decision.failure) == (A.FAIL, "runs_spent")


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - set(COUNTED_AND_GOING_ON)))
def test_the_runs_budget_changes_nothing_else(outcome: Outcome) -> None:
    """Lost and waiting runs are not counted; what ends or waits for a person anyway needs no stopping."""
    assert decided(outcome, spends(B.RUNS, 50)).action is decided(outcome).action


@pytest.mark.parametrize("outcome", OUTAGES)
@pytest.mark.parametrize(
    ("waited", "action"),
    [
        (0.0, A.REQUEUE),
        (900.0, A.REQUEUE),
        (6 * HOUR - 0.001, A.REQUEUE),
        (6 * HOUR, A.PAUSE),
        (9 * HOUR, A.PAUSE),
    ],
)
def test_an_outage_is_waited_out_for_six_hours(outcome: Outcome, waited: float, action: PolicyAction) -> None:
    """R-TERM-11: up to 6 h behind the breaker; then paused with an alert, never failed."""
    decision = decided(outcome, spends(B.OUTAGE, 1), later(waited))
    assert decision.action is action
    assert decision.spends == (B.OUTAGE,)
    if action is A.PAUSE:
        assert (decision.pause, decision.alert, decision.waits_for_operator) == (P.OUTAGE, True, True)
        assert decision.failure is None


def test_the_outage_is_measured_from_its_first_failure() -> None:
    ledger = [Spend(budget=B.OUTAGE, at=later(seconds)) for seconds in (0.0, 3 * HOUR, 5 * HOUR)]
    assert decided(O.NETWORK, ledger, later(6 * HOUR - 1)).action is A.REQUEUE
    assert decided(O.NETWORK, ledger, later(6 * HOUR)).action is A.PAUSE


def test_a_provider_that_is_down_is_asked_less_and_less_often() -> None:
    """R-TERM-11: the waiting starts well above a retry's and ends at the cap."""
    delays = [decided(O.OVERLOADED, spends(B.OUTAGE, n)).delay for n in range(7)]
    assert delays == [16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]


@pytest.mark.parametrize("between", [B.RUNS, B.RESUME])
def test_a_run_or_a_resume_ends_the_outage(between: Budget) -> None:
    """A later outage is a new one: the provider answered in between, or an operator said continue."""
    ledger = [*spends(B.OUTAGE, 3), Spend(budget=between, at=later(HOUR))]
    assert decided(O.OVERLOADED, ledger, later(10 * HOUR)).action is A.REQUEUE
    ledger += spends(B.OUTAGE, 1, later(10 * HOUR))
    assert decided(O.OVERLOADED, ledger, later(16 * HOUR - 1)).action is A.REQUEUE
    assert decided(O.OVERLOADED, ledger, later(16 * HOUR)).action is A.PAUSE


def test_a_reboot_does_not_end_the_outage() -> None:
    """Budgets hold across restarts: wall time counts on, across boots."""
    ledger = spends(B.OUTAGE, 1)
    before = Instant(wall=BASE.wall + 6 * HOUR - 1, boottime=60.0, boot_id="boot-1")
    after = Instant(wall=BASE.wall + 6 * HOUR, boottime=61.0, boot_id="boot-1")
    assert decided(O.NETWORK, ledger, before).action is A.REQUEUE
    assert decided(O.NETWORK, ledger, after).action is A.PAUSE


# --------------------------------------------------------------------------------------------------------------------
# Pauses and resumes
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [O.RATE_LIMITED, O.USAGE_LIMITED])
@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_a_limit_pauses_until_its_reset(outcome: Outcome, jitter: float) -> None:
    """R-RES-01, R-RES-08: not before the reset, and with jitter; a reset that has passed means now."""
    hour_ahead = decide(ended(outcome, BASE.wall + HOUR), (), RetryLimits(), BASE, jitter)
    assert hour_ahead.resume_after == pytest.approx(BASE.wall + HOUR + jitter)
    passed = decide(ended(outcome, BASE.wall - HOUR), (), RetryLimits(), BASE, jitter)
    assert passed.resume_after == pytest.approx(BASE.wall + jitter)
    unknown = decide(ended(outcome), (), RetryLimits(default_hold=100.0), BASE, jitter)
    assert unknown.resume_after is not None
    assert BASE.wall + 100 <= unknown.resume_after <= BASE.wall + 110


@pytest.mark.parametrize("outcome", [O.RATE_LIMITED, O.USAGE_LIMITED])
def test_a_limit_that_comes_again_after_a_resume_holds_longer_each_time(outcome: Outcome) -> None:
    """R-RES-08: else "try again in a second", said all the time, would spend every resume within a few of them."""
    holds = []
    for resumes in range(6):
        ledger = [Spend(budget=Budget.RESUME, at=BASE)] * resumes
        decision = decide(ended(outcome, BASE.wall + 1), ledger, RetryLimits(default_hold=300.0), BASE)
        assert decision.parking is not None
        assert decision.parking.until == decision.resume_after
        holds.append((decision.resume_after or 0.0) - BASE.wall)
    assert holds == [1, 30, 60, 120, 240, 300]
    told = decide(ended(outcome, BASE.wall + HOUR), ledger, RetryLimits(default_hold=300.0), BASE)
    assert told.resume_after == BASE.wall + HOUR


def test_a_session_that_is_of_no_use_is_not_kept_for_a_retry() -> None:
    lost = decide(ended(O.SESSION_LOST), [Spend(budget=Budget.SESSION, at=BASE)], RetryLimits(), BASE)
    assert (lost.action, lost.keeps_session) == (PolicyAction.FAIL, False)


def test_a_full_context_is_resumed_at_once_in_a_new_session() -> None:
    """R-RES-01: the clock has nothing to do with it; a reset time, if the agent names one, is ignored."""
    decision = decide(ended(O.CONTEXT_LIMIT, BASE.wall + HOUR), (), RetryLimits(), BASE, 0.9)
    assert (decision.resume_after, decision.keeps_session) == (BASE.wall, False)
    assert not decision.waits_for_operator


@pytest.mark.parametrize(
    ("attempts", "maximum", "allowed"),
    [(0, 3, True), (1, 3, True), (2, 3, True), (3, 3, False), (4, 3, False), (0, 1, True), (0, 0, False)],
)
def test_the_resume_limit(attempts: int, maximum: int, allowed: bool) -> None:
    """R-RES-03: refused when attempts + 1 > max; 0 allows none."""
    decision = decide_resume(attempts, maximum, "t1")
    assert (decision.allowed, decision.attempt) == (allowed, attempts + 1)


@pytest.mark.parametrize(("attempts", "maximum", "shown"), [(3, 3, "(4/3)"), (0, 0, "(1/0)"), (5, 5, "(6/5)")])
def test_a_refused_resume_says_what_happened_and_what_to_do(attempts: int, maximum: int, shown: str) -> None:
    """R-RES-04: the number, what happened, and three remedies, the last with its command."""
    message = decide_resume(attempts, maximum, "t1").message
    assert f"Maximum resume attempts exceeded {shown}" in message
    assert ("kept pausing" in message) == (attempts > 0)
    assert "smaller tasks" in message
    assert "resume.max_attempts" in message
    assert message.endswith("`holdfast events t1`"), "`why` prints it, and adds the full stop"


def test_an_allowed_resume_is_numbered() -> None:
    """R-RES-07."""
    assert decide_resume(1, 3, "t1").message == "resume 2 of 3"


@settings(deadline=None)
@given(attempts=st.integers(0, 100), maximum=st.integers(0, 100))
def test_resumes_end_and_are_never_refused_too_early(attempts: int, maximum: int) -> None:
    """R-RES-03: exactly `maximum` resumes are allowed."""
    decision = decide_resume(attempts, maximum, "t1")
    assert decision.allowed is (attempts < maximum)
    assert decision.attempt == attempts + 1


# --------------------------------------------------------------------------------------------------------------------
# Nothing loops: a task's whole life under a hostile agent and a hostile clock
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Step:
    """One run of a scripted life: how it ended, and what the clocks did meanwhile."""

    outcome: Outcome
    lasted: float = 0.0
    reboot: bool = False
    wall_error: float = 0.0  # how wrong the wall clock is after this step
    resets_in: float | None = None
    jitter: float = 0.0


@dataclass
class World:
    """True time, and what a machine that reboots and mis-sets its clock makes of it."""

    true: float = 0.0
    booted: float = 0.0
    boots: int = 0
    wall_error: float = 0.0

    def now(self) -> Instant:
        return Instant(
            wall=BASE.wall + self.true + self.wall_error,
            boottime=self.true - self.booted,
            boot_id=f"boot-{self.boots}",
        )

    def play(self, step: Step) -> None:
        self.true += step.lasted
        self.wall_error = step.wall_error
        if step.reboot:
            self.boots += 1
            self.booted = self.true

    def wait(self, seconds: float) -> None:
        self.true += seconds

    def wait_until(self, wall: float) -> None:
        self.true += max(0.0, wall - self.now().wall)


@dataclass
class Life:
    """What a supervisor with a durable ledger does with one task, without the supervisor."""

    limits: RetryLimits
    max_resumes: int = 3
    world: World = field(default_factory=World)
    ledger: list[Spend] = field(default_factory=list)
    resumes: int = 0
    automatic: int = 0  # runs after which Holdfast itself decided what follows
    ending: str | None = None

    def live(self, steps: Iterable[Step], bound: int) -> Life:
        for step in steps:
            if self.ending is not None:
                break
            self.automatic += step.outcome is not O.STOPPED  # a stop is an operator's `down`
            assert self.automatic <= bound, f"still going on after {bound} runs"
            self.world.play(step)
            self._settle(step)
        return self

    def _settle(self, step: Step) -> None:
        now = self.world.now()
        resets_at = None if step.resets_in is None else now.wall + step.resets_in
        before = list(self.ledger)
        decision = decide(ended(step.outcome, resets_at), self.ledger, self.limits, now, step.jitter)
        assert self.ledger == before, "deciding must not change the ledger"
        self._spend(decision.spends, now)
        if decision.action in (A.COMPLETE, A.FAIL, A.CANCEL):
            self.ending = decision.failure or str(decision.action)
        elif decision.waits_for_operator:
            self.ending = "operator"
        elif decision.action is A.REQUEUE:
            self.world.wait(decision.delay)
        else:
            assert decision.resume_after is not None
            self.world.wait_until(decision.resume_after)
            self._resume()

    def _resume(self) -> None:
        answer = decide_resume(self.resumes, self.max_resumes, "t1")
        self.resumes = answer.attempt
        if answer.allowed:
            self._spend((B.RESUME,), self.world.now())
        else:
            self.ending = f"{answer.attempt}/{self.max_resumes}"

    def _spend(self, budgets: Iterable[Budget], now: Instant) -> None:
        self.ledger.extend(Spend(budget=budget, at=now) for budget in budgets)


def most_runs(limits: RetryLimits) -> int:
    """The longest life without outages: counted runs and losses, each up to its own limit, and one last ending."""
    return (limits.runs - 1) + max_losses(limits) + 1


def most_runs_with_outages(limits: RetryLimits, resumes: int) -> int:
    """Outages beside them, afresh after each resume: not so many for each of the others."""
    return most_runs(limits) + (resumes + 1) * max_outages(limits)


# Small, so that a loop that should not be is found in seconds; the defaults have their own tests below.
small_limits = st.builds(
    RetryLimits,
    runs=st.integers(1, 3),
    crash=st.integers(1, 4),
    crash_window=st.sampled_from([0.0, 10.0, 600.0]),
    retry=st.integers(0, 4),
    lost=st.integers(0, 2),
    outage=st.sampled_from([0.0, 100.0, 600.0]),
    session=st.integers(0, 2),
    backoff_cap=st.sampled_from([60.0, 300.0]),
)
all_limits = st.just(RetryLimits()) | small_limits
seconds = st.floats(0, 1e6, allow_nan=False)
jitters = st.floats(0, 1, exclude_max=True)


def scripts(outcomes: Sequence[Outcome], wall_errors: st.SearchStrategy[float]) -> st.SearchStrategy[list[Step]]:
    """Short patterns of one to three outcomes, to be repeated for ever: what loops, loops in a pattern."""
    few = st.lists(st.sampled_from(outcomes), min_size=1, max_size=3, unique=True)
    return few.flatmap(lambda chosen: st.lists(steps_ending_in(chosen, wall_errors), min_size=1, max_size=8))


def steps_ending_in(outcomes: Sequence[Outcome], wall_errors: st.SearchStrategy[float]) -> st.SearchStrategy[Step]:
    return st.builds(
        Step,
        outcome=st.sampled_from(outcomes),
        lasted=st.just(0.0) | seconds,
        reboot=st.booleans(),
        wall_error=wall_errors,
        resets_in=st.none() | st.floats(-1e6, 1e6),
        jitter=jitters,
    )


GOING_ON = (*COUNTED_AND_GOING_ON, *OUTAGES, O.LOST, O.STOPPED)
"""Outcomes that can loop at all: a pattern with any other in it ends there."""


def forever(pattern: list[Step], bound: int) -> Iterable[Step]:
    """Long enough to break any bound; a task that is only ever stopped by an operator waits for one all along."""
    only_stopped = all(step.outcome is O.STOPPED for step in pattern)
    return pattern if only_stopped else islice(cycle(pattern), (bound + 1) * len(pattern))


def check_ending(life: Life, pattern: list[Step]) -> None:
    assert life.ending is not None or {step.outcome for step in pattern} == {O.STOPPED}


@settings(max_examples=300, deadline=None)
@given(
    pattern=scripts([outcome for outcome in GOING_ON if outcome not in OUTAGES], st.floats(-1e9, 1e9)),
    limits=all_limits,
    resumes=st.integers(0, 5),
)
def test_every_life_ends_whatever_the_clocks_do(pattern: list[Step], limits: RetryLimits, resumes: int) -> None:
    """R-RES-12, promise 4: any outcomes, any clock jumps and reboots: terminal or waiting within the bound."""
    bound = most_runs(limits)
    check_ending(Life(limits=limits, max_resumes=resumes).live(forever(pattern, bound), bound), pattern)


@settings(max_examples=300, deadline=None)
@given(
    pattern=scripts(GOING_ON, st.floats(-1e9, 1e9)),
    limits=small_limits,
    resumes=st.integers(0, 5),
)
def test_every_life_with_outages_ends(pattern: list[Step], limits: RetryLimits, resumes: int) -> None:
    """R-RES-12, R-TERM-11: the outage budget is time, and a number where no clock can be believed."""
    bound = most_runs_with_outages(limits, resumes)
    check_ending(Life(limits=limits, max_resumes=resumes).live(forever(pattern, bound), bound), pattern)


@settings(max_examples=200, deadline=None)
@given(pattern=scripts(list(Outcome), st.floats(-1e9, 1e9)), limits=small_limits)
def test_any_sequence_of_outcomes_ends(pattern: list[Step], limits: RetryLimits) -> None:
    """Promise 4, the endings that need no budget included."""
    bound = most_runs_with_outages(limits, 3)
    check_ending(Life(limits=limits).live(forever(pattern, bound), bound), pattern)


ONE_OF_EACH_KIND = (
    O.CRASHED,
    O.TIMEOUT,
    O.NETWORK,
    O.RATE_LIMITED,
    O.CONTEXT_LIMIT,
    O.SESSION_LOST,
    O.LOST,
    O.STOPPED,
)


@pytest.mark.parametrize("lasted", [0.0, 601.0], ids=["at once", "outside the crash window"])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_every_short_pattern_ends_with_the_default_limits(length: int, lasted: float) -> None:
    """R-RES-12, promise 4: not a sample but all patterns of up to four endings, each repeated for ever."""
    bound = most_runs_with_outages(RetryLimits(), 3)
    for outcomes in product(ONE_OF_EACH_KIND, repeat=length):
        pattern = [Step(outcome=outcome, lasted=lasted) for outcome in outcomes]
        check_ending(Life(limits=RetryLimits()).live(forever(pattern, bound), bound), pattern)


def test_an_outage_ends_although_no_clock_ever_moves() -> None:
    """Promise 4: rebooted after every try, with the wall clock set back each time, no time passes: tries count."""
    steps = [Step(outcome=O.NETWORK, reboot=True, wall_error=-1e6 * n) for n in range(1000)]
    bound = most_runs_with_outages(RetryLimits(), 0)
    assert Life(limits=RetryLimits()).live(steps, bound).ending == "operator"


def test_an_outage_ends_although_the_clock_was_set_back_at_a_reboot() -> None:
    """Promise 4, budgets hold across clock jumps: one wrong date before one reboot must not switch the limit off."""
    one_reboot = [Step(outcome=O.NETWORK, wall_error=365 * 24 * HOUR), Step(outcome=O.NETWORK, reboot=True)]
    life = Life(limits=RetryLimits()).live([*one_reboot, *[Step(outcome=O.NETWORK)] * 500], 200)
    assert life.ending == "operator"


@pytest.mark.parametrize(
    ("pattern", "runs", "ending"),
    [
        ([O.RATE_LIMITED], 4, "4/3"),  # an agent that always pauses
        ([O.CONTEXT_LIMIT], 4, "4/3"),  # a context window that fills at once
        ([O.OUT_OF_MEMORY], 3, "crash_loop"),  # a resource that runs out at one point
        ([O.TIMEOUT], 4, "retries_spent"),
        ([O.SESSION_LOST], 2, "session_lost"),
        ([O.LOST], 6, "lost_too_often"),
        ([O.OVERLOADED, O.LOST], 12, "lost_too_often"),
        ([O.TIMEOUT, O.CONTEXT_LIMIT, O.RATE_LIMITED], 6, "4/3"),
        ([O.STOPPED, O.CRASHED], 3, "crash_loop"),  # `down` and `up` forgive nothing
    ],
)
def test_loop_shapes_end_within_their_budgets(pattern: list[Outcome], runs: int, ending: str) -> None:
    """R-RES-12: the loop shapes, with the exact number of runs that each one gets."""
    life = Life(limits=RetryLimits()).live(cycle([Step(outcome=outcome) for outcome in pattern]), 100)
    assert (life.automatic, life.ending) == (runs, ending)


def test_a_persistent_api_failure_is_handed_to_an_operator_after_six_hours() -> None:
    """R-RES-12, R-TERM-11: not earlier, not much later, and without failing the task."""
    life = Life(limits=RetryLimits()).live(cycle([Step(outcome=O.OVERLOADED)]), 200)
    assert life.ending == "operator"
    assert 6 * HOUR <= life.world.true <= 6 * HOUR + RetryLimits().backoff_cap
    assert {entry.budget for entry in life.ledger} == {B.OUTAGE}


def test_a_quarter_of_an_hour_without_the_provider_fails_nobody() -> None:
    """R-TERM-11: a 15-minute outage must not fail a fleet, and spends no budget of the task."""
    life = Life(limits=RetryLimits())
    while life.world.true < 900:
        life.live([Step(outcome=O.NETWORK)], 100)
        assert life.ending is None
    life.live([Step(outcome=O.COMPLETED)], 100)
    assert life.ending == "complete"
    assert {entry.budget for entry in life.ledger} == {B.OUTAGE, B.RUNS}


def test_budgets_cannot_multiply() -> None:
    """12 runs per task, and as many losses: the longest life that can be had without outages, and it is reached."""
    worst = [*[Step(outcome=O.LOST)] * 4, Step(outcome=O.RATE_LIMITED, lasted=601.0)]
    assert most_runs(RetryLimits()) == 24
    life = Life(limits=RetryLimits()).live(cycle(worst), 24)
    assert (life.automatic, life.ending) == (16, "lost_too_often")
    crashes = [Step(outcome=O.CRASHED, lasted=601.0)] * 11
    life = Life(limits=RetryLimits(lost=12)).live([*crashes, *[Step(outcome=O.LOST)] * 20], 24)
    assert (life.automatic, life.ending) == (24, "lost_too_often")


@pytest.mark.parametrize("broken", [*CRASHES, *RETRIES, O.SESSION_LOST])
def test_a_crash_gives_nothing_back(broken: Outcome) -> None:
    """Promise 4: it is paid as a run too, but proves neither that the provider answered nor that the host lived."""
    paid = [Spend(budget=budget, at=BASE) for budget in POLICY[broken].spends]
    assert decided(O.LOST, [*spends(B.LOST, 5), *paid]).failure == "lost_too_often"
    ledger = [*spends(B.OUTAGE, 1), *(Spend(budget=entry.budget, at=later(6 * HOUR)) for entry in paid)]
    assert decided(O.OVERLOADED, ledger, later(7 * HOUR)).pause is P.OUTAGE


def test_an_outage_between_crashes_is_one_outage() -> None:
    """Overloaded, crashed, overloaded, crashed …: the waiting adds up, and what followed a crash is no waiting."""
    ledger = [
        Spend(budget=budget, at=later(hours * HOUR))
        for hours, budget in [(0, B.OUTAGE), (2, B.CRASH), (2, B.RUNS), (5, B.OUTAGE), (7, B.CRASH), (7, B.RUNS)]
    ]
    assert outage_seconds(ledger, later(20 * HOUR)) == 4 * HOUR
    ledger += spends(B.OUTAGE, 1, later(20 * HOUR))
    assert decided(O.NETWORK, ledger, later(22 * HOUR - 1)).action is A.REQUEUE
    assert decided(O.NETWORK, ledger, later(22 * HOUR)).pause is P.OUTAGE


# --------------------------------------------------------------------------------------------------------------------
# Properties of single decisions, over any ledger
# --------------------------------------------------------------------------------------------------------------------

instants = st.builds(
    Instant, wall=st.floats(0, 4e9), boottime=st.floats(0, 1e8), boot_id=st.sampled_from(["boot-0", "boot-1"])
)
ledgers = st.lists(st.builds(Spend, budget=st.sampled_from(Budget), at=instants), max_size=30)
verdicts = st.builds(
    ended, st.sampled_from(Outcome), st.none() | st.floats(0, 5e9, allow_nan=False, allow_infinity=False)
)


@settings(max_examples=200, deadline=None)
@given(verdict=verdicts, ledger=ledgers, limits=all_limits, now=instants, jitter=jitters)
def test_decisions_are_sane(
    verdict: Verdict, ledger: list[Spend], limits: RetryLimits, now: Instant, jitter: float
) -> None:
    """R-TERM-11: no negative delay, none above the cap; R-RES-01: no resume in the past; nothing silent."""
    decision = decide(verdict, ledger, limits, now, jitter)
    assert 0.0 <= decision.delay <= limits.backoff_cap
    assert decision.delay == 0.0 or decision.action is A.REQUEUE
    assert decision.resume_after is None or decision.resume_after >= now.wall
    assert (decision.pause is not None) is (decision.action is A.PAUSE)
    assert decision.resume_after is None or decision.action is A.PAUSE
    assert (decision.failure is not None) is (decision.action is A.FAIL)
    assert verdict.reason in decision.reason


@settings(max_examples=200, deadline=None)
@given(verdict=verdicts, ledger=ledgers, limits=all_limits, now=instants, jitter=jitters)
def test_whatever_goes_on_by_itself_has_paid(
    verdict: Verdict, ledger: list[Spend], limits: RetryLimits, now: Instant, jitter: float
) -> None:
    """Promise 4: every continuation but an operator's own `down` or pause adds to the ledger; deciding takes nothing
    away."""
    before = list(ledger)
    decision = decide(verdict, ledger, limits, now, jitter)
    assert ledger == before
    goes_on = decision.action in (A.REQUEUE, A.PAUSE) and not decision.waits_for_operator
    if goes_on and verdict.outcome not in (O.STOPPED, O.PAUSED):  # `pause --for` is paid by the resume
        assert decision.spends
    after = [*ledger, *(Spend(budget=budget, at=now) for budget in decision.spends)]
    assert all(spent(after, budget) - spent(before, budget) in (0, 1) for budget in Budget)
    assert set(decision.spends) == set(POLICY[verdict.outcome].spends), "an ending costs the same when it is the last"


@settings(max_examples=200, deadline=None)
@given(
    case=st.sampled_from(
        [
            *((outcome, B.RETRY, 3) for outcome in RETRIES),
            (O.SESSION_LOST, B.SESSION, 1),
            *((outcome, B.RUNS, 11) for outcome in COUNTED_AND_GOING_ON),
        ]
    ),
    before=ledgers,
    between=ledgers,
    after=ledgers,
    now=instants,
)
def test_what_is_spent_stays_spent(
    case: tuple[Outcome, Budget, int],
    before: list[Spend],
    between: list[Spend],
    after: list[Spend],
    now: Instant,
) -> None:
    """Promise 4: once retries, runs or the session are gone, no other entry and no clock brings them back."""
    outcome, budget, limit = case
    ledger = [*before, *spends(budget, limit - 1), *between, *spends(budget, 1), *after]
    assert decided(outcome, ledger, now).action is A.FAIL


@pytest.mark.parametrize("pause", [PauseReason.AUTH, PauseReason.BILLING, PauseReason.APPROVAL, PauseReason.OPERATOR])
def test_fixing_an_account_or_approving_spends_no_resume(pause: PauseReason) -> None:
    """DESIGN: only limits spend resumes; even a task whose resumes are spent may continue after a person acted."""
    decision = decide_resume(3, 3, "t1", pause)
    assert (decision.allowed, decision.attempt) == (True, 3)
    assert {str(one) for one in FREE_RESUME_PAUSES} == FREE_RESUMES, "`why` knows the same ones"


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), float("-inf"), BASE.wall + 33 * 86400, 1e300])
def test_a_reset_time_that_is_no_time_counts_as_unknown(nonsense: float) -> None:
    """Neither does one that is months away: a task would wait in silence for something that nobody meant."""
    decision = decide(ended(Outcome.RATE_LIMITED, nonsense), (), RetryLimits(), BASE, 0.0)
    assert decision.resume_after == BASE.wall + RetryLimits().default_hold


@pytest.mark.parametrize("years", [-10, +10])
def test_a_clock_that_is_set_between_a_decision_and_its_record_moves_what_was_decided(years: int) -> None:
    """R-RES-08: decided by a clock that was ten years ahead, recorded by the right one: it waits a moment, not ten
    years; nor is it due before its time."""
    decided = Instant(wall=2_000_000_000.0, boottime=50.0, boot_id="b")
    decision = decide(Verdict(outcome=Outcome.USAGE_LIMITED, reason="x"), (), RetryLimits(), decided)
    assert decision.resume_after is not None
    assert decision.parking is not None
    assert decision.parking.until is not None
    jump = years * 365 * 86400.0
    recorded = Instant(wall=decided.wall + jump + 2.0, boottime=52.0, boot_id="b")
    moved = rebase_times(decision, decided, recorded)
    assert moved.resume_after == pytest.approx(decision.resume_after + jump)
    assert moved.parking is not None
    assert moved.parking.until == pytest.approx(decision.parking.until + jump)
    slow = Instant(wall=decided.wall + 30.0, boottime=decided.boottime + 31.0, boot_id="b")
    assert rebase_times(decision, decided, slow) is decision
