"""The effect of a result that an agent claimed (`holdfast agent complete` or `fail`).

A claim is the agent's own statement. It counts if the process tree ended by itself. It also counts if Holdfast ended
the tree for one of three reasons: the agent did not exit after its claim, the supervisor stopped, or the time was up
meanwhile.

An operator's cancel, a health verdict of ours and a missing proof of the end come first, as in `classify`. An adapter
that saw a limit has better evidence than a claim.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.model import Claim, ReportKind, StopWhy
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict, classify

# Stops that are no judgement of the agent's work: the agent had claimed its result before.
_NEUTRAL_STOPS = frozenset(
    {StopWhy.CLAIMED, StopWhy.DOWN, StopWhy.PAUSE, StopWhy.WORKER, StopWhy.BUDGET, StopWhy.DEADLINE}
)
_WHY_ENDED = {
    StopWhy.DOWN: "the supervisor was told to stop",
    StopWhy.PAUSE: "an operator paused it",
    StopWhy.BUDGET: "its budget was spent",
}
# the keeper ended the run, as we would have after the grace period
_ENDED_BY_KEEPER = frozenset({Cause.ORPHANED, Cause.TIMEOUT})
_COMPLETE = "the agent reported that it is complete"
# every other outcome from an adapter is evidence of its own
_PLAIN_OUTCOMES = frozenset({Outcome.COMPLETED, Outcome.FAILED})


def judge_run(
    end: ProcessEnd,
    stop_why: StopWhy | None,
    from_agent: Verdict,
    stop_reason: str | None = None,
    claim: Claim | None = None,
) -> Verdict:
    """Return how a run ended, from the process facts, the agent's output, the stop request and the claimed result."""
    verdict = classify(end, stop_why, from_agent, stop_reason)
    if claim is None or from_agent.outcome not in _PLAIN_OUTCOMES or not _claim_counts(end, stop_why):
        return verdict
    if claim.kind is ReportKind.FAIL:
        return _with_outcome(from_agent, Outcome.FAILED, _quoted("the agent reported that it failed", claim))
    return _judge_complete_claim(end, stop_why, from_agent, claim) or replace(
        verdict, reason=f"{verdict.reason}, after it had claimed to be complete"
    )


def _claim_counts(end: ProcessEnd, stop_why: StopWhy | None) -> bool:
    if end.cause in _ENDED_BY_KEEPER:
        return stop_why in _NEUTRAL_STOPS or stop_why is None  # the keeper ended the run as we would have
    if end.cause not in (Cause.EXITED, Cause.STOPPED):
        return False
    if stop_why is StopWhy.CANCEL:
        return False
    was_asked = end.cause is Cause.STOPPED or end.signal is not None
    return not was_asked or stop_why is None or stop_why in _NEUTRAL_STOPS


def _judge_complete_claim(
    end: ProcessEnd, stop_why: StopWhy | None, from_agent: Verdict, claim: Claim
) -> Verdict | None:
    """Return the verdict on a claim of `complete`. None: after the claim the run crashed, or something other than
    Holdfast killed it."""
    was_asked = end.cause is Cause.STOPPED or end.signal is not None
    if end.cause in _ENDED_BY_KEEPER or (was_asked and stop_why is not None):
        why = "it did not exit" if stop_why is None else _WHY_ENDED.get(stop_why, "it did not exit")
        words = f"{_quoted(_COMPLETE, claim)}; its processes were ended because {why}"
        return _with_outcome(from_agent, Outcome.COMPLETED, words)
    if was_asked:
        return None
    if end.code == 0:
        return _with_outcome(from_agent, Outcome.COMPLETED, _quoted(_COMPLETE, claim))
    return _with_outcome(from_agent, Outcome.FAILED, f"it claimed to be complete, but exited with code {end.code}")


def _quoted(words: str, claim: Claim) -> str:
    return f"{words}: {claim.message}" if claim.message else words


def _with_outcome(verdict: Verdict, outcome: Outcome, reason: str) -> Verdict:
    return replace(verdict, outcome=outcome, reason=reason, resets_at=None)
