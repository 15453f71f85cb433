"""What follows the end of a stage, as a table; and that it always comes to an end (R-RES-09, R-RES-12)."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.workflows.next_stage import (
    StageEnd,
    StageStep,
    decide_next_step,
    is_workflow_over,
    parse_ruling,
    progress_after_approval,
    progress_after_changes,
    progress_after_retry,
    remaining_steps,
    stage_for_changes,
)
from holdfast.core.workflows.result import GateResult, StageResult
from holdfast.core.workflows.workflow import (
    START,
    OnFailure,
    Progress,
    Ruling,
    Stage,
    Stages,
    progress_from,
    progress_to_json,
    stage_from,
    stage_to_json,
)

PLAN = Stage(name="plan", agent="a")
BUILD = Stage(name="build", agent="a", gate="make test", retry=1)
REVIEW = Stage(name="review", agent="a", reviews=True, back_to="build", max_turns=2)
STAGES = (PLAN, BUILD, REVIEW)
CONTINUE, PAUSE, BACK = OnFailure.CONTINUE, OnFailure.PAUSE, OnFailure.BACK

DONE = StageEnd(completed=True, reason="it said so", text="All done.")
FAILED = StageEnd(completed=False, reason="exit code 1", text="I could not.")
RED = replace(DONE, gate=GateResult(command="make test", passed=False, how="exited with 2", output="1 failed"))
GREEN = replace(DONE, gate=GateResult(command="make test", passed=True, how="exited with 0"))
APPROVES = replace(DONE, ruling=Ruling.APPROVE)
CHANGES = replace(DONE, ruling=Ruling.CHANGES, text="Name it better.")


def at(stage: int, **more: object) -> Progress:
    return Progress(stage=stage, **more)  # type: ignore[arg-type]


def _with(index: int, **changes: object) -> Stages:
    return tuple(
        replace(stage, **changes) if place == index else stage  # type: ignore[arg-type]
        for place, stage in enumerate(STAGES)
    )


TABLE = [
    # stages, progress, end → step, stage, tries, failure, word of the reason
    (STAGES, at(0), DONE, StageStep.NEXT, 1, 0, None, "stage 2 of 3 (build) follows"),
    (STAGES, at(0), FAILED, StageStep.FAIL, 0, 0, "failed", "stage 1 of 3 (plan): exit code 1"),
    (STAGES, at(1), RED, StageStep.AGAIN, 1, 1, "gate_failed", "try 2 of 2 follows"),
    (STAGES, at(1), FAILED, StageStep.AGAIN, 1, 1, "failed", "try 2 of 2 follows"),
    (STAGES, at(1, tries=1), RED, StageStep.FAIL, 1, 1, "gate_failed", "`make test` exited with 2"),
    (STAGES, at(1, tries=1), GREEN, StageStep.NEXT, 2, 0, None, "stage 3 of 3 (review) follows"),
    (STAGES, at(1), replace(FAILED, may_try=False, failure="retries_spent"), StageStep.FAIL, 1, 0, "retries_spent", ""),
    (STAGES, at(1), replace(FAILED, runs_left=False), StageStep.FAIL, 1, 0, "runs_spent", "all its runs"),
    (STAGES, at(1), replace(FAILED, is_final=True, failure="crash_loop"), StageStep.FAIL, 1, 0, "crash_loop", ""),
    (STAGES, at(2), DONE, StageStep.FAIL, 2, 0, "no_verdict", "it gave no verdict"),
    (_with(2, retry=1), at(2), DONE, StageStep.AGAIN, 2, 1, "no_verdict", "try 2 of 2"),
    (STAGES, at(2), APPROVES, StageStep.COMPLETE, 2, 0, None, "it approves"),
    (STAGES, at(2), CHANGES, StageStep.BACK, 1, 0, None, "back to stage 2 of 3 (build), turn 1 of 2"),
    (STAGES, at(2, turns={"review": 2}), CHANGES, StageStep.FAIL, 2, 0, "turns_spent", "once more, after 2 turns"),
    (_with(2, on_failure=CONTINUE), at(2, turns={"review": 2}), CHANGES, StageStep.COMPLETE, 2, 0, "turns_spent", ""),
    (_with(2, on_failure=BACK), at(2, turns={"review": 2}), CHANGES, StageStep.FAIL, 2, 0, "turns_spent", ""),
    (_with(2, on_failure=BACK), at(2, turns={"review": 1}), FAILED, StageStep.BACK, 1, 0, "failed", "turn 2 of 2"),
    (_with(2, on_failure=BACK), at(2, turns={"review": 2}), FAILED, StageStep.FAIL, 2, 0, "turns_spent", "2 turns"),
    (_with(2, back_to="gone"), at(2), CHANGES, StageStep.FAIL, 2, 0, "turns_spent", ""),
    (_with(0, on_failure=CONTINUE), at(0), FAILED, StageStep.NEXT, 1, 0, "failed", "it may fail"),
    (_with(0, on_failure=PAUSE), at(0), FAILED, StageStep.WAIT, 0, 0, "failed", "a person has to approve"),
    (_with(0, approval=True), at(0), DONE, StageStep.WAIT, 0, 0, None, "completed; a person has to approve that"),
    (_with(2, approval=True), at(2), APPROVES, StageStep.WAIT, 2, 0, None, "a person has to approve that"),
    (_with(2, gate="x"), at(2), replace(CHANGES, gate=RED.gate), StageStep.FAIL, 2, 0, "gate_failed", "its gate"),
]  # fmt: skip


@pytest.mark.parametrize(("stages", "progress", "end", "step", "stage", "tries", "failure", "words"), TABLE)
def test_what_follows(
    stages: Stages,
    progress: Progress,
    end: StageEnd,
    step: StageStep,
    stage: int,
    tries: int,
    failure: str | None,
    words: str,
) -> None:
    following = decide_next_step(stages, progress, end)
    assert (following.step, following.progress.stage, following.progress.tries) == (step, stage, tries)
    assert following.failure == failure
    assert words in following.reason
    assert following.passed == (failure is None and step is not StageStep.BACK)
    assert following.progress.awaits == (step is StageStep.WAIT)
    assert following.keeps_session == (step not in (StageStep.NEXT, StageStep.BACK))
    assert progress_from(progress_to_json(following.progress)) == following.progress


def test_the_next_run_is_told_what_was_wrong_and_the_next_stage_is_not() -> None:
    assert "`make test` exited with 2" in decide_next_step(STAGES, at(1), RED).progress.feedback
    assert "1 failed" in decide_next_step(STAGES, at(1), RED).progress.feedback
    assert decide_next_step(STAGES, at(2), CHANGES).progress.feedback == "Name it better."
    assert "VERDICT: approve" in decide_next_step(_with(2, retry=1), at(2), DONE).progress.feedback
    assert decide_next_step(STAGES, at(1, tries=1, feedback="old"), GREEN).progress.feedback == ""
    long = replace(RED, gate=GateResult(command="x", passed=False, how="failed", output="y" * 100_000 + "the end"))
    assert decide_next_step(STAGES, at(1), long).progress.feedback.endswith("the end")
    assert len(decide_next_step(STAGES, at(1), long).progress.feedback) < 17_000


def test_a_person_lets_it_go_on_sends_it_back_or_retries() -> None:
    waiting = at(2, awaits=True, tries=1, turns={"review": 2}, feedback="bad", visit=5)
    assert progress_after_approval(STAGES, waiting).stage == 3
    assert is_workflow_over(STAGES, progress_after_approval(STAGES, waiting))
    assert not progress_after_approval(STAGES, waiting).awaits
    again = progress_after_changes(waiting, 2, "ann", "Shorter, please.", None)
    assert (again.stage, again.tries, again.feedback, again.visit, again.awaits) == (2, 0, "Shorter, please.", 6, False)
    again = progress_after_retry(waiting)
    assert (again.stage, again.tries, again.turns, again.feedback, again.visit) == (2, 0, {}, "bad", 6)


def test_the_changes_of_a_person_go_to_the_builder_with_the_findings() -> None:
    """F7: `back_to` gets them, or the stage that the person names; a later stage cannot be named."""
    waiting = at(2, awaits=True, turns={"review": 3}, feedback="an older one")
    to = [stage_for_changes(STAGES, waiting, name) for name in (None, "plan", "review", "nothing")]
    assert to == [1, 0, 2, None]
    assert stage_for_changes(STAGES, at(1), None) == 1, "it has no back_to"
    assert stage_for_changes(STAGES, at(1), "review") is None
    found = StageResult(stage=2, name="review", text="Use a flag." + "x" * 100_000)
    back = progress_after_changes(waiting, 1, "ann", "Name it --as-json.", found)
    assert (back.stage, back.turns, back.awaits) == (1, {}, False)
    assert back.feedback.startswith(
        "ann asks for these changes:\n\nName it --as-json.\n\nBefore that, the stage 'review'"
    )
    assert len(back.feedback) < 17_000
    assert "an older one" not in back.feedback
    red = StageResult(stage=2, name="review", text="all well", gate=RED.gate)
    assert "`make test` exited with 2" in progress_after_changes(waiting, 1, "ann", "Mend it.", red).feedback
    assert progress_after_changes(waiting, 1, "ann", "y" * 50_000, None).feedback.endswith("y" * 50_000), "not cut"


@pytest.mark.parametrize(
    ("text", "ruling"),
    [
        ("Fine.\n\nVERDICT: approve\n\n", Ruling.APPROVE),
        ("**Verdict: Changes.**", Ruling.CHANGES),
        ("`VERDICT: approve`", Ruling.APPROVE),
        ("VERDICT: **changes**", Ruling.CHANGES),
        ("VERDICT: approve\nbut look again", None),
        ("VERDICT: approve, mostly", None),
        ("I would approve", None),
        ("", None),
        ("verdict", None),
    ],
)
def test_a_ruling_is_the_last_line(text: str, ruling: Ruling | None) -> None:
    assert parse_ruling(text) is ruling


stages_of = st.lists(
    st.builds(
        Stage,
        name=st.sampled_from("abcdef"),
        agent=st.just("x"),
        retry=st.integers(0, 3),
        gate=st.sampled_from(["", "g"]),
        on_failure=st.sampled_from(OnFailure),
        approval=st.booleans(),
        reviews=st.booleans(),
        back_to=st.sampled_from(["", *"abcdef"]),
        max_turns=st.integers(0, 3),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda stage: stage.name,
).map(tuple)
ends = st.builds(
    StageEnd,
    completed=st.booleans(),
    reason=st.just("so"),
    text=st.text(max_size=5),
    gate=st.sampled_from([None, RED.gate, GREEN.gate]),
    ruling=st.sampled_from([None, *Ruling]),
    is_final=st.just(False),
    may_try=st.booleans(),
    runs_left=st.sampled_from([True, True, True, False]),
)


@settings(max_examples=int(os.environ.get("HOLDFAST_FUZZ_ENDS", "50")), deadline=None)
@given(stages_of, st.data())
def test_every_step_that_nobody_was_asked_about_brings_it_nearer_to_its_end(
    stages: Stages, data: st.DataObject
) -> None:
    """R-RES-12: whatever agents, gates and reviewers say, it stops within as many steps as its settings allow."""
    progress, visits = START, [-1]
    most = (1 + sum(stage.max_turns for stage in stages)) * sum(stage.retry + 1 for stage in stages)
    for _ in range(most + 1):
        following = decide_next_step(stages, progress, data.draw(ends))
        if following.step in (StageStep.COMPLETE, StageStep.FAIL):
            assert following.step is StageStep.COMPLETE or following.failure
            assert following.reason
            return
        if following.step is StageStep.WAIT:
            after = progress_after_approval(stages, following.progress)
            if is_workflow_over(stages, after):
                return
        else:
            after = following.progress
        assert remaining_steps(stages, after) < remaining_steps(stages, progress)
        assert all(after.turns.get(stage.name, 0) <= stage.max_turns for stage in stages)
        if following.step is not StageStep.AGAIN:
            assert after.visit > max(visits)
            visits.append(after.visit)
        progress = after
    raise AssertionError("it continues and on")


@settings(max_examples=25, deadline=None)
@given(stages_of)
def test_stages_come_back_from_the_store_as_they_were(stages: Stages) -> None:
    assert tuple(stage_from(stage_to_json(stage)) for stage in stages) == stages
