"""A parallel stage: the members whose results are missing, the time limit, and the verdict over all members. Pure.

A gathering is one try to collect the members' results. It lasts from its durable beginning until the task is settled,
over any number of crashes. A member with a result in this visit of the stage is not run again. There is one exception.
After the task has waited, a member is run again if its outcome is in WAITED_FOR (a usage limit, for example).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.workflows.result import StageResult
from holdfast.core.workflows.workflow import Member, Progress, Stage

LEAST_TIME = 1.0  # seconds for a member that starts late
WAITED_FOR = (  # outcomes for which a task waits and then tries again: the most informative first
    Outcome.AUTH,
    Outcome.BILLING,
    Outcome.OVER_BUDGET,
    Outcome.USAGE_LIMITED,
    Outcome.RATE_LIMITED,
    Outcome.OVERLOADED,
    Outcome.NETWORK,
)
_CUT_SHORT = frozenset({Outcome.STOPPED, Outcome.PAUSED, Outcome.CANCELLED, Outcome.LOST})


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathering:
    """The beginning of a gathering, and the number of results that the task had before it."""

    at: Instant
    after: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberEnd:
    """The end of a member, as far as the stage is concerned."""

    name: str
    outcome: Outcome
    reason: str = ""
    resets_at: float | None = None
    text: str = ""


def gathering_to_json(gathering: Gathering) -> dict[str, object]:
    at = gathering.at
    return {"wall": at.wall, "boottime": at.boottime, "boot_id": at.boot_id, "after": gathering.after}


def gathering_from_progress(progress: Progress, now: Instant) -> Gathering | None:
    """Return the present gathering. None: there is none, or it began before a reboot. No member survives a reboot, and
    after it no clock shows how long ago the gathering began."""
    began = progress.began
    if not began or began.get("boot_id") != now.boot_id:
        return None
    at = Instant(wall=float(str(began["wall"])), boottime=float(str(began["boottime"])), boot_id=str(began["boot_id"]))
    return Gathering(at=at, after=int(str(began.get("after", 0))))


def time_left(stage: Stage, gathering: Gathering, now: Instant, collect_for: float) -> float:
    """Return the seconds until the remaining members are killed: `collect_for` after the timeout (R-CRON-05)."""
    return stage.timeout + collect_for - now.since(gathering.at)


def member_timeout(stage: Stage, gathering: Gathering, now: Instant) -> float:
    """Return the timeout of a member that starts now. All members are asked to end at the same time."""
    return max(LEAST_TIME, stage.timeout - now.since(gathering.at))


def results_that_count(
    stage: Stage, results: Iterable[StageResult], progress: Progress, gathering: Gathering
) -> dict[str, StageResult]:
    """Return a mapping from each member to its result that counts. A member without a result has to be run."""
    names = {member.name for member in stage.members}
    of_stage = [result for result in results if result.name == stage.name and result.visit == progress.visit]
    # Results of a try that the gate refused do not count any more: all members run again, with feedback.
    refused = [
        one.attempt for one in of_stage if not one.member and one.outcome == Outcome.COMPLETED and not one.passed
    ]
    return {
        result.member: result
        for result in of_stage
        if result.member in names and result.attempt > max(refused, default=0) and _counts(result, progress, gathering)
    }


def _counts(result: StageResult, progress: Progress, gathering: Gathering) -> bool:
    if result.passed or result.number > gathering.after:
        return True
    return result.attempt == progress.tries + 1 and result.outcome not in WAITED_FOR


def missing_members(stage: Stage, done: Mapping[str, StageResult]) -> list[Member]:
    return [member for member in stage.members if member.name not in done]


def is_result(verdict: Verdict) -> bool:
    """True if the member was not cut short: neither stopped by us, nor lost with its keeper or the machine. A member
    that was cut short is run again when the task continues, paid from the same retry budget as a single agent."""
    return verdict.outcome not in _CUT_SHORT


def is_enough(stage: Stage, ends: Iterable[MemberEnd]) -> bool:
    return sum(end.outcome is Outcome.COMPLETED for end in ends) >= min(stage.least, len(stage.members))


def judge_stage(stage: Stage, ends: Sequence[MemberEnd], lost: Sequence[str] = ()) -> Verdict:
    """Return the verdict on the stage. `lost`: members that were lost with their keepers or the machine and have no
    result."""
    if lost:
        reason = f"{len(lost)} of {len(stage.members)} members ({', '.join(lost)}) were lost with their keepers"
        return Verdict(outcome=Outcome.LOST, reason=reason)
    if is_enough(stage, ends):
        return Verdict(outcome=Outcome.COMPLETED, reason=describe_outcomes(stage, ends))
    others = [end for end in ends if end.outcome is not Outcome.COMPLETED]
    if all(end.outcome in WAITED_FOR for end in others):
        return _waits(stage, ends, others)
    tail = next((end.reason for end in others if end.reason), "")
    return Verdict(
        outcome=Outcome.FAILED, reason=describe_outcomes(stage, ends) + (f"; one of them: {tail}" if tail else "")
    )


def _waits(stage: Stage, ends: Sequence[MemberEnd], others: Sequence[MemberEnd]) -> Verdict:
    """Return the verdict that a single agent with the members' trouble would get, with the earliest known reset."""
    outcome = min((end.outcome for end in others), key=WAITED_FOR.index)
    resets = [end.resets_at for end in others if end.outcome is outcome and end.resets_at is not None]
    last = next(end.reason for end in others if end.outcome is outcome)
    words = f"{describe_outcomes(stage, ends)}; {last}" if last else describe_outcomes(stage, ends)
    return Verdict(outcome=outcome, reason=words, resets_at=min(resets, default=None))


def count_outcomes(ends: Iterable[MemberEnd]) -> dict[str, int]:
    """Count the outcomes: `completed` first, then the most frequent."""
    counted = Counter(str(end.outcome) for end in ends)
    ranked = sorted(counted.items(), key=lambda pair: (pair[0] != Outcome.COMPLETED, -pair[1], pair[0]))
    return dict(ranked)


def describe_outcomes(stage: Stage, ends: Sequence[MemberEnd]) -> str:
    """Describe the outcomes: `1 of 5 completed: 2 timeout, 1 crashed, 1 failed`."""
    counted = count_outcomes(ends)
    done = counted.pop(str(Outcome.COMPLETED), 0)
    others = ", ".join(f"{count} {outcome}" for outcome, count in counted.items())
    return f"{done} of {len(stage.members)} completed" + (f": {others}" if others else "")


def join_answers(ends: Iterable[MemberEnd]) -> str:
    """Return all answers, each below its member's name. This is the answer of the stage."""
    parts = []
    for end in ends:
        how = "" if end.outcome is Outcome.COMPLETED else f" ({end.outcome}: {end.reason})"
        parts.append(f"## {end.name}{how}\n\n{end.text.strip() or '(it said nothing)'}")
    return "\n\n".join(parts)
