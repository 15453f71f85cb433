"""What the members of a parallel stage come to (R-CRON-05)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.base.instant import Instant
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.workflows.parallel_stage import (
    Gathering,
    MemberEnd,
    count_outcomes,
    gathering_from_progress,
    gathering_to_json,
    is_result,
    join_answers,
    judge_stage,
    member_timeout,
    missing_members,
    results_that_count,
    time_left,
)
from holdfast.core.workflows.result import StageResult
from holdfast.core.workflows.workflow import Member, Progress, Stage

NAMES = ("a", "b", "c", "d", "e")


def stage(least: int = 1, size: int = 5) -> Stage:
    members = tuple(Member(name=name, agent="scripted") for name in NAMES[:size])
    return Stage(name="review", agent="scripted", members=members, least=least, timeout=60.0)


def ends(*outcomes: Outcome, resets: tuple[float | None, ...] = ()) -> list[MemberEnd]:
    times = (*resets, *(None for _ in outcomes))
    return [
        MemberEnd(name=name, outcome=outcome, reason=f"why {name}", resets_at=reset, text=f"text {name}")
        for name, outcome, reset in zip(NAMES, outcomes, times, strict=False)
    ]


DONE, BAD, LATE, CRASH = Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMEOUT, Outcome.CRASHED
LIMIT, RATE, AUTH, BUSY = Outcome.USAGE_LIMITED, Outcome.RATE_LIMITED, Outcome.AUTH, Outcome.OVERLOADED


@pytest.mark.parametrize(
    ("least", "outcomes", "expected", "words"),
    [
        (1, (DONE, DONE, DONE, DONE, DONE), Outcome.COMPLETED, "5 of 5 completed"),
        (1, (DONE, LATE, LATE, CRASH, BAD), Outcome.COMPLETED, "1 of 5 completed: 2 timeout, 1 crashed, 1 failed"),
        (2, (DONE, LATE, LATE, CRASH, BAD), Outcome.FAILED, "1 of 5 completed: 2 timeout, 1 crashed, 1 failed"),
        (9, (DONE, DONE, DONE, DONE, DONE), Outcome.COMPLETED, "5 of 5 completed"),
        (1, (BAD, BAD, BAD, BAD, BAD), Outcome.FAILED, "0 of 5 completed: 5 failed"),
        (1, (LIMIT, LIMIT, RATE, LIMIT, LIMIT), LIMIT, "0 of 5 completed: 4 usage_limited, 1 rate_limited"),
        (2, (DONE, LIMIT, LIMIT, LIMIT, LIMIT), LIMIT, "1 of 5 completed: 4 usage_limited"),
        (1, (LIMIT, LIMIT, RATE, LIMIT, BAD), Outcome.FAILED, "0 of 5 completed"),
        (1, (AUTH, LIMIT, LIMIT, LIMIT, LIMIT), AUTH, "0 of 5 completed: 4 usage_limited, 1 auth"),
        (1, (BUSY, BUSY, Outcome.NETWORK, BUSY, BUSY), BUSY, "0 of 5 completed: 4 overloaded, 1 network"),
    ],
)
def test_the_members_come_to(least: int, outcomes: tuple[Outcome, ...], expected: Outcome, words: str) -> None:
    verdict = judge_stage(stage(least), ends(*outcomes))
    assert verdict.outcome is expected
    assert verdict.reason.startswith(words)


def test_a_limit_of_all_is_waited_for_until_the_earliest_end() -> None:
    verdict = judge_stage(stage(), ends(LIMIT, LIMIT, LIMIT, LIMIT, LIMIT, resets=(None, 300.0, 200.0, 400.0)))
    assert (verdict.outcome, verdict.resets_at) == (LIMIT, 200.0)


def test_who_was_lost_goes_again_whatever_the_others_did() -> None:
    verdict = judge_stage(stage(), ends(DONE, DONE, DONE), lost=["d", "e"])
    assert verdict.outcome is Outcome.LOST
    assert "2 of 5 members (d, e) were lost" in verdict.reason


def test_members_are_counted_by_outcome() -> None:
    assert list(count_outcomes(ends(BAD, LATE, LATE, DONE)).items()) == [
        ("completed", 1),
        ("timeout", 2),
        ("failed", 1),
    ]


def test_answers_are_joined_below_their_names() -> None:
    text = join_answers([*ends(DONE, LATE), MemberEnd(name="x", outcome=DONE)])
    assert text == "## a\n\ntext a\n\n## b (timeout: why b)\n\ntext b\n\n## x\n\n(it said nothing)"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_is_cut_short_is_no_result(outcome: Outcome) -> None:
    """It is run again when the task continues: what an operator, a `down` or the loss of a keeper ended."""
    counts = outcome not in (Outcome.STOPPED, Outcome.PAUSED, Outcome.CANCELLED, Outcome.LOST)
    assert is_result(Verdict(outcome=outcome, reason="so")) is counts


NOW = Instant(wall=1000.0, boottime=50.0, boot_id="boot")


def result(member: str, outcome: Outcome, number: int, visit: int = 1, attempt: int = 1) -> StageResult:
    passed = outcome is DONE
    return StageResult(
        stage=0,
        name="review",
        visit=visit,
        attempt=attempt,
        member=member,
        outcome=outcome,
        passed=passed,
        number=number,
    )


def test_whose_result_stands_is_not_run_again() -> None:
    """After a crash, a `down` or a pause: whoever has a result in this visit. After a limit: not who only met that. In
    another try: only who completed. In another visit: nobody."""
    gathering = Gathering(at=NOW, after=3)
    results = [result("a", DONE, 1), result("b", BAD, 2), result("c", LIMIT, 3), result("d", LIMIT, 4)]
    now = Progress(visit=1)
    assert sorted(results_that_count(stage(), results, now, gathering)) == ["a", "b", "d"]
    assert [
        member.name for member in missing_members(stage(), results_that_count(stage(), results, now, gathering))
    ] == ["c", "e"]
    again = Gathering(at=NOW, after=4)
    assert sorted(results_that_count(stage(), results, Progress(visit=1, tries=1), again)) == ["a"]
    assert results_that_count(stage(), results, Progress(visit=2), again) == {}
    missed = replace(result("", BAD, 5), passed=False)
    assert sorted(results_that_count(stage(), [*results, missed], Progress(visit=1, tries=1), again)) == ["a"], (
        "too few of them"
    )
    refused = replace(result("", DONE, 5), passed=False)
    anew = [*results, refused, result("a", DONE, 6, attempt=2)]
    assert results_that_count(stage(), anew[:-1], Progress(visit=1, tries=1), again) == {}, (
        "its gate failed: all go again"
    )
    assert sorted(results_that_count(stage(), anew, Progress(visit=1, tries=1), again)) == ["a"]


def test_the_deadline_is_durable_and_follows_no_wall_clock() -> None:
    kept = Progress(began=gathering_to_json(Gathering(at=NOW, after=7)))
    later = Instant(wall=-5e9, boottime=50.0 + 65.0, boot_id="boot")
    found = gathering_from_progress(kept, later)
    assert found == Gathering(at=NOW, after=7)
    assert time_left(stage(), found, later, 10.0) == 60.0 + 10.0 - 65.0
    assert member_timeout(stage(), found, NOW) == 60.0
    assert member_timeout(stage(), found, later) == 1.0
    assert gathering_from_progress(kept, Instant(wall=1e9, boottime=1.0, boot_id="another")) is None
    assert gathering_from_progress(Progress(), NOW) is None
