"""How a run ended: the process facts come first, then the agent's own word."""

from __future__ import annotations

import signal
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.model import StopWhy
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict, classify, termination_reason

CRASHES = {Outcome.EXTERNAL_KILL, Outcome.CRASHED, Outcome.OUT_OF_MEMORY}
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ITS_OWN_FAULT = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS)


def said(outcome: Outcome) -> Verdict:
    """What the agent's adapter read from its output."""
    return Verdict(outcome=outcome, reason=f"agent said {outcome}", resets_at=5e9, session_id="s-1", error_tail="oops")


def outcome_of(cause: Cause, stop: StopWhy | None, agent: Outcome, number: int | None = None) -> Outcome:
    return classify(ProcessEnd(cause=cause, signal=number), stop, said(agent)).outcome


# cause, signal, why we stopped it, the agent's word -> outcome
TABLE = [
    # It ended by itself: the agent's own word counts.
    (Cause.EXITED, None, None, Outcome.COMPLETED, Outcome.COMPLETED),
    (Cause.EXITED, None, None, Outcome.FAILED, Outcome.FAILED),
    (Cause.EXITED, None, None, Outcome.RATE_LIMITED, Outcome.RATE_LIMITED),
    (Cause.EXITED, None, None, Outcome.SESSION_LOST, Outcome.SESSION_LOST),
    # ... and continues to count when a stop came too late to matter.
    (Cause.EXITED, None, StopWhy.DOWN, Outcome.COMPLETED, Outcome.COMPLETED),
    # Signals that nobody of ours sent.
    (Cause.EXITED, signal.SIGKILL, None, Outcome.FAILED, Outcome.EXTERNAL_KILL),
    (Cause.EXITED, signal.SIGKILL, None, Outcome.COMPLETED, Outcome.EXTERNAL_KILL),
    (Cause.EXITED, signal.SIGTERM, None, Outcome.FAILED, Outcome.EXTERNAL_KILL),
    (Cause.EXITED, signal.SIGSEGV, None, Outcome.FAILED, Outcome.CRASHED),
    (Cause.EXITED, signal.SIGABRT, None, Outcome.COMPLETED, Outcome.CRASHED),
    # Our kill ladder.
    (Cause.STOPPED, signal.SIGTERM, StopWhy.DOWN, Outcome.FAILED, Outcome.STOPPED),
    (Cause.STOPPED, signal.SIGKILL, StopWhy.DOWN, Outcome.FAILED, Outcome.STOPPED),
    (Cause.STOPPED, None, StopWhy.DOWN, Outcome.COMPLETED, Outcome.STOPPED),
    (Cause.STOPPED, signal.SIGTERM, StopWhy.WORKER, Outcome.FAILED, Outcome.STOPPED),
    (Cause.STOPPED, signal.SIGTERM, StopWhy.DOWN, Outcome.FAILED, Outcome.STOPPED),
    (Cause.STOPPED, signal.SIGTERM, StopWhy.CANCEL, Outcome.FAILED, Outcome.CANCELLED),
    # An operator's pause: whatever ended it meanwhile costs nothing, but what it ended with by itself counts.
    (Cause.STOPPED, signal.SIGTERM, StopWhy.PAUSE, Outcome.FAILED, Outcome.PAUSED),
    (Cause.STOPPED, None, StopWhy.PAUSE, Outcome.COMPLETED, Outcome.PAUSED),
    (Cause.EXITED, signal.SIGKILL, StopWhy.PAUSE, Outcome.FAILED, Outcome.PAUSED),
    (Cause.NEVER_STARTED, None, StopWhy.PAUSE, Outcome.FAILED, Outcome.PAUSED),
    (Cause.ORPHANED, signal.SIGTERM, StopWhy.PAUSE, Outcome.FAILED, Outcome.PAUSED),
    (Cause.KEEPER_DIED, signal.SIGKILL, StopWhy.PAUSE, Outcome.FAILED, Outcome.PAUSED),
    (Cause.TIMEOUT, signal.SIGKILL, StopWhy.PAUSE, Outcome.FAILED, Outcome.PAUSED),
    (Cause.EXITED, None, StopWhy.PAUSE, Outcome.COMPLETED, Outcome.COMPLETED),
    (Cause.EXITED, None, StopWhy.PAUSE, Outcome.RATE_LIMITED, Outcome.RATE_LIMITED),
    (Cause.EXEC_FAILED, None, StopWhy.PAUSE, Outcome.FAILED, Outcome.LAUNCH_ERROR),
    # ... because of what health.py saw.
    (Cause.STOPPED, signal.SIGTERM, StopWhy.STUCK, Outcome.FAILED, Outcome.STUCK),
    (Cause.STOPPED, signal.SIGKILL, StopWhy.LOOPING, Outcome.COMPLETED, Outcome.LOOPING),
    (Cause.STOPPED, signal.SIGTERM, StopWhy.STARTUP, Outcome.FAILED, Outcome.STARTUP_TIMEOUT),
    (Cause.STOPPED, signal.SIGKILL, StopWhy.MEMORY, Outcome.FAILED, Outcome.OUT_OF_MEMORY),
    # It reported its result and did not exit: the result counts.
    (Cause.STOPPED, signal.SIGKILL, StopWhy.CLAIMED, Outcome.COMPLETED, Outcome.COMPLETED),
    (Cause.STOPPED, signal.SIGKILL, StopWhy.CLAIMED, Outcome.FAILED, Outcome.FAILED),
    # It said that it is done, and then nothing any more: done it is.
    (Cause.STOPPED, signal.SIGKILL, StopWhy.STUCK, Outcome.COMPLETED, Outcome.COMPLETED),
    # Its own structured words explain the silence for which we ended it.
    (Cause.STOPPED, signal.SIGKILL, StopWhy.STUCK, Outcome.RATE_LIMITED, Outcome.RATE_LIMITED),
    (Cause.STOPPED, signal.SIGKILL, StopWhy.LOOPING, Outcome.NETWORK, Outcome.NETWORK),
    (Cause.STOPPED, signal.SIGKILL, StopWhy.DOOMED, Outcome.AUTH, Outcome.AUTH),
    (Cause.STOPPED, signal.SIGKILL, StopWhy.DOOMED, Outcome.FAILED, Outcome.FAILED),
    (Cause.STOPPED, signal.SIGKILL, StopWhy.DOOMED, Outcome.COMPLETED, Outcome.STUCK),
    # Its worker was stopped: the task continues elsewhere.
    (Cause.STOPPED, signal.SIGTERM, StopWhy.WORKER, Outcome.FAILED, Outcome.STOPPED),
    # The time of its parallel stage was up.
    (Cause.STOPPED, signal.SIGKILL, StopWhy.DEADLINE, Outcome.FAILED, Outcome.TIMEOUT),
    (Cause.STOPPED, signal.SIGKILL, StopWhy.DEADLINE, Outcome.COMPLETED, Outcome.COMPLETED),
    # Its task's budget is spent; but what was done before the signal is done.
    (Cause.STOPPED, signal.SIGTERM, StopWhy.BUDGET, Outcome.FAILED, Outcome.OVER_BUDGET),
    (Cause.STOPPED, signal.SIGTERM, StopWhy.BUDGET, Outcome.COMPLETED, Outcome.COMPLETED),
    (Cause.EXITED, None, StopWhy.BUDGET, Outcome.COMPLETED, Outcome.COMPLETED),
    # Limits that the kernel or the keeper holds.
    (Cause.OUT_OF_MEMORY, signal.SIGKILL, None, Outcome.FAILED, Outcome.OUT_OF_MEMORY),
    (Cause.OUTPUT_LIMIT, signal.SIGTERM, None, Outcome.COMPLETED, Outcome.OUTPUT_LIMIT),
    (Cause.PROCESS_LIMIT, signal.SIGKILL, None, Outcome.FAILED, Outcome.PROCESS_LIMIT),
    # The keeper was told to stop, but not by us.
    (Cause.STOPPED, signal.SIGTERM, None, Outcome.FAILED, Outcome.EXTERNAL_KILL),
    # The keeper's own decisions and fate.
    (Cause.TIMEOUT, signal.SIGKILL, None, Outcome.FAILED, Outcome.TIMEOUT),
    (Cause.TIMEOUT, signal.SIGTERM, StopWhy.DOWN, Outcome.FAILED, Outcome.TIMEOUT),
    (Cause.ORPHANED, signal.SIGTERM, None, Outcome.FAILED, Outcome.LOST),
    (Cause.KEEPER_DIED, signal.SIGKILL, None, Outcome.FAILED, Outcome.LOST),
    (Cause.ENGINE_LOST, signal.SIGUSR2, None, Outcome.FAILED, Outcome.LOST),
    (Cause.ENGINE_LOST, signal.SIGUSR2, StopWhy.PAUSE, Outcome.FAILED, Outcome.PAUSED),
    (Cause.KEEPER_DIED, None, StopWhy.DOWN, Outcome.FAILED, Outcome.LOST),
    (Cause.NEVER_STARTED, None, None, Outcome.FAILED, Outcome.LOST),
    (Cause.EXEC_FAILED, None, None, Outcome.FAILED, Outcome.LAUNCH_ERROR),
    # Cancelled wins over whatever else was true, but never over missing proof.
    (Cause.EXITED, None, StopWhy.CANCEL, Outcome.COMPLETED, Outcome.CANCELLED),
    (Cause.EXITED, signal.SIGSEGV, StopWhy.CANCEL, Outcome.FAILED, Outcome.CANCELLED),
    (Cause.TIMEOUT, signal.SIGKILL, StopWhy.CANCEL, Outcome.FAILED, Outcome.CANCELLED),
    (Cause.UNPROVEN, None, StopWhy.CANCEL, Outcome.FAILED, Outcome.UNKNOWN),
    (Cause.UNPROVEN, None, None, Outcome.COMPLETED, Outcome.UNKNOWN),
]


@pytest.mark.parametrize(("cause", "number", "stop", "agent", "expected"), TABLE)
def test_table(cause: Cause, number: int | None, stop: StopWhy | None, agent: Outcome, expected: Outcome) -> None:
    """R-CRASH-01, R-TERM-05, R-TERM-08, R-TERM-09: one row per way to end."""
    assert outcome_of(cause, stop, agent, number) is expected


def test_the_table_names_every_cause_and_every_reason_to_stop() -> None:
    assert {row[0] for row in TABLE} == set(Cause)
    assert {row[2] for row in TABLE} == {None, *StopWhy}


def test_unproven_is_unknown_whatever_else_is_true() -> None:
    """Without proof of an empty tree nothing may be requeued, cancelled or released."""
    for stop, agent, number in product((None, *StopWhy), Outcome, (None, 9, 11, 15)):
        assert outcome_of(Cause.UNPROVEN, stop, agent, number) is Outcome.UNKNOWN


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.UNPROVEN])
def test_cancel_wins_once_the_tree_is_proven_empty(cause: Cause) -> None:
    for agent, number in product(Outcome, (None, 9, 11, 15)):
        assert outcome_of(cause, StopWhy.CANCEL, agent, number) is Outcome.CANCELLED


@pytest.mark.parametrize("cause", list(Cause))
def test_a_death_that_we_asked_for_is_never_a_crash(cause: Cause) -> None:
    """R-CRASH-01, R-TERM-08: somebody asked for it (`stopping(why)` is recorded before the signal)."""
    if cause is Cause.OUT_OF_MEMORY:
        return  # the kernel killed it, whatever we asked for at the same time
    for stop, agent, number in product(set(StopWhy) - {StopWhy.MEMORY}, Outcome, (None, 9, 11, 15)):
        if agent not in CRASHES:
            assert outcome_of(cause, stop, agent, number) not in CRASHES


@pytest.mark.parametrize("number", FROM_OUTSIDE)
def test_a_signal_from_outside_is_an_external_kill(number: signal.Signals) -> None:
    """R-TERM-09: kill -9 of an agent, and its gentler kin; the agent's last words do not hide it."""
    for agent in Outcome:
        assert outcome_of(Cause.EXITED, None, agent, number) is Outcome.EXTERNAL_KILL


def test_a_kill_while_the_kernel_ran_out_of_memory_is_told_apart() -> None:
    """R-TERM-14: the OOM killer was at work meanwhile, so SIGKILL is its doing; any other signal is not."""
    seen = ProcessEnd(cause=Cause.EXITED, signal=signal.SIGKILL, oom_kills=1)
    assert classify(seen, None, said(Outcome.FAILED)).outcome is Outcome.OUT_OF_MEMORY
    term = ProcessEnd(cause=Cause.EXITED, signal=signal.SIGTERM, oom_kills=1)
    assert classify(term, None, said(Outcome.FAILED)).outcome is Outcome.EXTERNAL_KILL


@pytest.mark.parametrize("number", ITS_OWN_FAULT)
def test_a_signal_of_its_own_making_is_a_crash(number: signal.Signals) -> None:
    """R-CRASH-01."""
    for agent in Outcome:
        assert outcome_of(Cause.EXITED, None, agent, number) is Outcome.CRASHED


@settings(deadline=None)
@given(number=st.integers(min_value=1, max_value=64), agent=st.sampled_from(Outcome))
def test_any_signal_that_nobody_asked_for_is_a_crash_of_one_kind(number: int, agent: Outcome) -> None:
    """R-CRASH-01: dead, and nobody asked for it. The reason names the signal."""
    verdict = classify(ProcessEnd(cause=Cause.EXITED, signal=number), None, said(agent))
    assert verdict.outcome is (Outcome.EXTERNAL_KILL if number in FROM_OUTSIDE else Outcome.CRASHED)
    assert str(number) in verdict.reason


@pytest.mark.parametrize("agent", Outcome)
@pytest.mark.parametrize("code", [None, 0, 1, 137])
def test_an_exit_of_its_own_leaves_the_agents_word_untouched(agent: Outcome, code: int | None) -> None:
    """An exit code alone proves nothing: the adapter's verdict counts, its reset time included."""
    verdict = said(agent)
    assert classify(ProcessEnd(cause=Cause.EXITED, code=code), None, verdict) == verdict


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (Cause.TIMEOUT, Outcome.TIMEOUT),
        (Cause.ORPHANED, Outcome.LOST),
        (Cause.KEEPER_DIED, Outcome.LOST),
        (Cause.ENGINE_LOST, Outcome.LOST),
        (Cause.NEVER_STARTED, Outcome.LOST),
        (Cause.EXEC_FAILED, Outcome.LAUNCH_ERROR),
    ],
)
def test_what_the_keeper_saw_is_never_read_as_the_agents_doing(cause: Cause, expected: Outcome) -> None:
    """R-TERM-05, R-TERM-10: whatever the output said, and however the leader went down."""
    for agent, number in product(Outcome, (None, 9, 11, 15)):
        assert outcome_of(cause, None, agent, number) is expected


@settings(deadline=None)
@given(
    cause=st.sampled_from(Cause),
    number=st.sampled_from([None, 9, 11, 15]),
    stop=st.sampled_from([None, *StopWhy]),
    agent=st.sampled_from(Outcome),
)
def test_the_session_and_the_error_text_survive_every_ending(
    cause: Cause, number: int | None, stop: StopWhy | None, agent: Outcome
) -> None:
    """R-CRASH-02, R-RES-09: the next run continues the session; the crash record keeps the tail of stderr."""
    verdict = classify(ProcessEnd(cause=cause, signal=number), stop, said(agent))
    assert (verdict.session_id, verdict.error_tail) == ("s-1", "oops")
    assert verdict.reason


@pytest.mark.parametrize("cause", sorted(set(Cause) - {Cause.EXITED, Cause.STOPPED}))
def test_the_keepers_detail_reaches_the_reason(cause: Cause) -> None:
    """R-TERM-15: `why` can only explain what the reason carries."""
    end = ProcessEnd(cause=cause, detail="ENOENT: no such file")
    assert "ENOENT: no such file" in classify(end, None, said(Outcome.FAILED)).reason


def test_our_own_stop_names_its_reason() -> None:
    """R-TERM-08: an intended stop says who asked."""
    for stop in set(StopWhy) - {StopWhy.CANCEL, StopWhy.CLAIMED}:
        assert stop in classify(ProcessEnd(cause=Cause.STOPPED), stop, said(Outcome.FAILED)).reason


def test_the_words_of_agent_terminated() -> None:
    """R-TERM-08: our three verdicts are one word there, and a plain failure is an `error`."""
    words = {outcome: termination_reason(outcome) for outcome in Outcome}
    unhealthy = {outcome for outcome, word in words.items() if word == "health_check_failed"}
    assert unhealthy == {Outcome.STUCK, Outcome.LOOPING, Outcome.STARTUP_TIMEOUT}
    assert words[Outcome.FAILED] == "error"
    assert words[Outcome.EXTERNAL_KILL] == "external_kill"
    assert words[Outcome.TIMEOUT] == "timeout"
