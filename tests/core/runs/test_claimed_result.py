"""What a claimed result means, next to what happened to the process (R-TERM-12)."""

from __future__ import annotations

import signal
from itertools import product

import pytest

from holdfast.base.instant import Instant
from holdfast.core.model import Claim, ReportKind, StopWhy
from holdfast.core.runs.claimed_result import judge_run
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict, classify

AT = Instant(wall=1.0, boottime=1.0, boot_id="b")
COMPLETE = Claim(kind=ReportKind.COMPLETE, message="all good", at=AT)
FAIL = Claim(kind=ReportKind.FAIL, message="no compiler", at=AT)
COMPLETED, FAILED = Outcome.COMPLETED, Outcome.FAILED
TERM, KILL, SEGV = signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV


def said(outcome: Outcome) -> Verdict:
    return Verdict(outcome=outcome, reason=f"agent said {outcome}", resets_at=5e9, session_id="s-1", error_tail="oops")


def end_of(cause: Cause, how: int | None) -> ProcessEnd:
    """`how`: an exit code, or a signal as a negative number; None where there is neither."""
    if how is None:
        return ProcessEnd(cause=cause)
    return ProcessEnd(cause=cause, code=how if how >= 0 else None, signal=-how if how < 0 else None)


# claim, cause, code or signal, why we stopped it, the adapter's word -> outcome
TABLE = [
    # It ended by itself: the claim is evidence, also where the adapter found none; a bad exit code spoils it.
    (COMPLETE, Cause.EXITED, 0, None, COMPLETED, COMPLETED),
    (COMPLETE, Cause.EXITED, 0, None, FAILED, COMPLETED),
    (COMPLETE, Cause.EXITED, 3, None, FAILED, FAILED),
    (COMPLETE, Cause.EXITED, 3, None, COMPLETED, FAILED),
    (COMPLETE, Cause.EXITED, -SEGV, None, FAILED, Outcome.CRASHED),
    (COMPLETE, Cause.EXITED, -KILL, None, FAILED, Outcome.EXTERNAL_KILL),
    (FAIL, Cause.EXITED, 0, None, COMPLETED, FAILED),
    (FAIL, Cause.EXITED, 3, None, FAILED, FAILED),
    (FAIL, Cause.EXITED, -SEGV, None, FAILED, FAILED),
    (FAIL, Cause.EXITED, -KILL, None, FAILED, FAILED),
    # We ended it because it did not exit.
    (COMPLETE, Cause.STOPPED, -KILL, StopWhy.CLAIMED, FAILED, COMPLETED),
    (COMPLETE, Cause.STOPPED, 143, StopWhy.CLAIMED, FAILED, COMPLETED),
    (COMPLETE, Cause.STOPPED, 0, StopWhy.CLAIMED, COMPLETED, COMPLETED),
    (FAIL, Cause.STOPPED, -TERM, StopWhy.CLAIMED, COMPLETED, FAILED),
    # ... but it was quicker.
    (COMPLETE, Cause.EXITED, 0, StopWhy.CLAIMED, FAILED, COMPLETED),
    (COMPLETE, Cause.EXITED, 3, StopWhy.CLAIMED, FAILED, FAILED),
    (COMPLETE, Cause.EXITED, -KILL, StopWhy.CLAIMED, FAILED, COMPLETED),
    # We went, or nobody of us was there: claimed work is not done again.
    (COMPLETE, Cause.STOPPED, -TERM, StopWhy.DOWN, FAILED, COMPLETED),
    (FAIL, Cause.STOPPED, -TERM, StopWhy.DOWN, FAILED, FAILED),
    (COMPLETE, Cause.STOPPED, -TERM, StopWhy.PAUSE, FAILED, COMPLETED),
    (COMPLETE, Cause.ORPHANED, -TERM, None, FAILED, COMPLETED),
    (FAIL, Cause.ORPHANED, -TERM, None, FAILED, FAILED),
    (COMPLETE, Cause.TIMEOUT, -TERM, None, FAILED, COMPLETED),
    (FAIL, Cause.TIMEOUT, -TERM, None, FAILED, FAILED),
    # A stranger told the keeper to stop.
    (COMPLETE, Cause.STOPPED, -TERM, None, FAILED, Outcome.EXTERNAL_KILL),
    # The adapter knows more.
    (COMPLETE, Cause.EXITED, 0, None, Outcome.USAGE_LIMITED, Outcome.USAGE_LIMITED),
    (COMPLETE, Cause.STOPPED, -TERM, StopWhy.CLAIMED, Outcome.AUTH, Outcome.AUTH),
    (FAIL, Cause.EXITED, 1, None, Outcome.RATE_LIMITED, Outcome.RATE_LIMITED),
]  # fmt: skip


@pytest.mark.parametrize(("claim", "cause", "how", "stop", "adapter", "expected"), TABLE)
def test_table(claim: Claim, cause: Cause, how: int, stop: StopWhy | None, adapter: Outcome, expected: Outcome) -> None:
    verdict = judge_run(end_of(cause, how), stop, said(adapter), "evidence", claim)
    assert verdict.outcome is expected
    assert verdict.session_id == "s-1"
    assert verdict.error_tail == "oops"


@pytest.mark.parametrize("claim", [COMPLETE, FAIL], ids=["complete", "fail"])
def test_all_else_goes_before_a_claim(claim: Claim) -> None:
    """Cancel, health, limits of the run, a lost keeper, no proof: the same verdict as without a claim."""
    causes = set(Cause) - {Cause.EXITED, Cause.STOPPED, Cause.ORPHANED, Cause.TIMEOUT}
    stops = [StopWhy.CANCEL, StopWhy.STUCK, StopWhy.LOOPING, StopWhy.STARTUP, StopWhy.MEMORY]
    cases = [(end_of(cause, how), stop) for cause, how, stop in product(causes, (0, -KILL), (None, *StopWhy))]
    cases += [(end_of(cause, -TERM), stop) for cause, stop in product((Cause.STOPPED, Cause.EXITED), stops)]
    cases += [(end_of(Cause.EXITED, 0), StopWhy.CANCEL), (end_of(Cause.ORPHANED, -TERM), StopWhy.CANCEL)]
    for end, stop in cases:
        assert judge_run(end, stop, said(FAILED), "evidence", claim) == classify(end, stop, said(FAILED), "evidence")


def test_without_a_claim_nothing_changes() -> None:
    for cause, how, stop, adapter in product(Cause, (None, 0, 3, -KILL), (None, *StopWhy), Outcome):
        end = end_of(cause, how)
        assert judge_run(end, stop, said(adapter), "why", None) == classify(end, stop, said(adapter), "why")


@pytest.mark.parametrize(
    ("claim", "cause", "how", "stop", "words"),
    [
        (COMPLETE, Cause.EXITED, 0, None, "the agent reported that it is complete: all good"),
        (COMPLETE, Cause.EXITED, 3, None, "it claimed to be complete, but exited with code 3"),
        (COMPLETE, Cause.EXITED, -SEGV, None, "crashed with signal 11, after it had claimed to be complete"),
        (COMPLETE, Cause.STOPPED, -KILL, StopWhy.CLAIMED, "its processes were ended because it did not exit"),
        (FAIL, Cause.EXITED, 0, None, "the agent reported that it failed: no compiler"),
    ],
)
def test_the_reason_says_it(claim: Claim, cause: Cause, how: int, stop: StopWhy | None, words: str) -> None:
    assert words in judge_run(end_of(cause, how), stop, said(FAILED), None, claim).reason
