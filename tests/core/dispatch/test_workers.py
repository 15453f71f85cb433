"""Workers: what a crash does to one, as a table; and that no history of crashes, clocks and restarts makes it loop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.base.instant import Instant
from holdfast.core.dispatch.workers import (
    WORKER_MOVES,
    CrashDecision,
    WorkerRecord,
    WorkerState,
    count_crashes_in_window,
    decide_after_run,
    is_bench_over,
)
from holdfast.core.runs.crashes import CRASHES as ALL_CRASHES
from holdfast.core.runs.crashes import CrashReaction
from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.retry_budgets import RetryLimits

NOW = Instant(wall=1_700_000_000.0, boottime=50_000.0, boot_id="boot-1")
READY, STOPPED, BENCHED, RETIRED = WorkerState
CRASHES = (Outcome.CRASHED, Outcome.EXTERNAL_KILL, Outcome.OUT_OF_MEMORY)


def ago(seconds: float) -> Instant:
    return NOW._replace(wall=NOW.wall - seconds, boottime=NOW.boottime - seconds)


def worker(state: WorkerState = READY) -> WorkerRecord:
    return WorkerRecord(name="web", state=state, reason="it is new", since=0.0)


def decided(
    ages: tuple[float, ...] = (),
    outcome: Outcome = Outcome.CRASHED,
    state: WorkerState = READY,
    *,
    restart: bool = True,
    limits: RetryLimits | None = None,
    is_paid: bool = True,
) -> CrashDecision:
    earlier = [ago(age) for age in ages]
    return decide_after_run(outcome, worker(state), earlier, restart, limits or RetryLimits(), NOW, is_paid=is_paid)


@pytest.mark.parametrize(
    ("ages", "answer", "state", "crashes"),
    [
        ((), CrashReaction.RESTART, READY, 1),
        ((1.0,), CrashReaction.RESTART, READY, 2),
        ((2.0, 1.0), CrashReaction.NOTIFY, BENCHED, 3),
        ((599.999, 1.0), CrashReaction.NOTIFY, BENCHED, 3),
        ((600.0, 1.0), CrashReaction.RESTART, READY, 2),  # exactly at the edge is outside
        ((3.0, 2.0, 1.0), CrashReaction.NOTIFY, BENCHED, 4),
    ],
)
def test_crashes_one_and_two_restart_the_third_benches(
    ages: tuple[float, ...], answer: CrashReaction, state: WorkerState, crashes: int
) -> None:
    """R-CRASH-04: sliding, the configured value, the boundary outside; per worker."""
    for outcome in CRASHES:
        decision = decided(ages, outcome)
        assert (decision.answer, decision.state, decision.crashes, decision.counts) == (answer, state, crashes, True)
        assert "600" in decision.reason
    assert decided((59.0,), limits=RetryLimits(crash=2, crash_window=60.0)).state is BENCHED
    assert decided((60.0,), limits=RetryLimits(crash=2, crash_window=60.0)).state is READY


def test_a_worker_restarts_only_when_asked_unless_the_settings_say_otherwise() -> None:
    """R-CRASH-05: `crash.auto_restart = false`: notify only, from the first crash on."""
    decision = decided(restart=False)
    assert (decision.answer, decision.state, decision.counts) == (CrashReaction.NOTIFY, STOPPED, True)
    assert "only when asked" in decision.reason


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome not in CRASHES])
def test_nothing_else_is_a_crash(outcome: Outcome) -> None:
    """R-CRASH-01: an intended stop, a limit and a non-zero exit are not."""
    decision = decided((2.0, 1.0), outcome, restart=False)
    assert (decision.answer, decision.state, decision.counts) == (CrashReaction.IGNORE, READY, False)
    assert str(outcome) in decision.reason


@pytest.mark.parametrize("state", [STOPPED, BENCHED, RETIRED])
def test_what_was_handled_already_is_only_noted(state: WorkerState) -> None:
    """R-CRASH-05: ignore; and the crash of a worker that was asked to stop still counts."""
    for restart in (True, False):
        decision = decided((2.0, 1.0), state=state, restart=restart)
        assert (decision.answer, decision.state, decision.counts) == (CrashReaction.IGNORE, state, True)


def test_a_mass_death_spends_nothing() -> None:
    """R-CRASH-07, for workers: neither counted nor stopped."""
    for restart in (True, False):
        decision = decided((2.0, 1.0), restart=restart, is_paid=False)
        assert (decision.answer, decision.state, decision.counts) == (CrashReaction.IGNORE, READY, False)


def test_the_crashes_are_those_of_the_policy() -> None:
    assert frozenset(CRASHES) == ALL_CRASHES
    assert set(WORKER_MOVES) == set(WorkerState)
    assert all(state not in moves for state, moves in WORKER_MOVES.items())


@pytest.mark.parametrize(
    ("last", "over"),
    [
        (ago(599.9), False),
        (ago(600.0), True),
        (ago(1.0)._replace(wall=NOW.wall + 1e9), False),  # the wall clock does not matter within a boot
        (Instant(wall=NOW.wall - 599.0, boottime=9e9, boot_id="boot-0"), False),
        (Instant(wall=NOW.wall - 600.0, boottime=9e9, boot_id="boot-0"), True),
        (Instant(wall=NOW.wall + 30.0, boottime=9e9, boot_id="boot-0"), False),
        (Instant(wall=NOW.wall + 3e8, boottime=9e9, boot_id="boot-0"), True),  # set back by ten years: it never came
    ],
)
def test_a_quiet_window_ends_the_bench(last: Instant, over: bool) -> None:
    """R-CRASH-04: a quiet window clears a worker, whatever the clocks do."""
    assert is_bench_over([ago(5000.0), last], 600.0, NOW) is over
    assert is_bench_over([], 600.0, NOW)


steps = st.lists(
    st.tuples(
        st.sampled_from(["crash", "end", "wait", "boot", "restart", "stop", "start"]),
        st.floats(0.0, 700.0),
        st.sampled_from([0.0, -3.2e8, 3.2e8, 3600.0]),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps=steps, restart=st.booleans(), most=st.integers(1, 4))
def test_whatever_happens_a_worker_goes_on_only_so_often(
    steps: list[tuple[str, float, float]], restart: bool, most: int
) -> None:
    """Promise 4: between two words of an operator, no window holds more crashes than the limit; moves are legal."""
    limits = RetryLimits(crash=most)
    state, now, boots, seconds = READY, NOW, 1, 0.0
    crashes: list[Instant] = []
    crashed_at: list[float] = []  # by a clock that nobody sets
    for what, pause, jump in steps:
        seconds += pause
        now = now._replace(wall=max(1.0, now.wall + pause + jump), boottime=now.boottime + pause)
        before = state
        if what == "boot":
            boots += 1
            now = Instant(wall=now.wall, boottime=1.0, boot_id=f"boot-{boots}")
            crashed_at = []  # across boots only the wall clock is left, and that one jumps here
        elif what in ("restart", "start") and state in (STOPPED, BENCHED):
            state, crashes, crashed_at = READY, [], []
        elif what == "stop" and state is not STOPPED:
            state = STOPPED
        elif what in ("crash", "end") and state is READY:
            outcome = Outcome.CRASHED if what == "crash" else Outcome.COMPLETED
            decision = decide_after_run(outcome, worker(state), crashes, restart, limits, now)
            state = decision.state
            if decision.counts:
                crashes.append(now)
                crashed_at.append(seconds)
                assert decision.crashes == count_crashes_in_window(crashes, limits.crash_window, now)
        if state is BENCHED and is_bench_over(crashes, limits.crash_window, now):
            state = READY
        assert state is before or state in WORKER_MOVES[before]
        assert len([at for at in crashed_at if seconds - at < limits.crash_window]) <= most
        if not restart and crashed_at and crashed_at[-1] == seconds and what == "crash":
            assert state is STOPPED
