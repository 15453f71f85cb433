"""The step after the end of a stage: another try, the next stage, back to an earlier one, an approval, or the task's
end. Pure.

No loop here can last for ever: every step that is taken without a person makes `remaining_steps` smaller. Crashes,
timeouts and limits do not end a stage. core/runs/policy.py continues the stage, paid from retry budgets. When those are
spent, the stage has failed.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.core.workflows.result import GateResult, StageResult
from holdfast.core.workflows.workflow import WORK, OnFailure, Progress, Ruling, Stage, Stages, enter_stage, index_of

MOST_FEEDBACK = 16 * 1024  # characters of feedback for the next run: the end of the text, where the conclusion is
NO_VERDICT = "no_verdict"
GATE_FAILED = "gate_failed"
TURNS_SPENT = "turns_spent"
RUNS_SPENT = "runs_spent"
ONLY_STAGE = "the work"
VERDICT_WANTED = "End your answer with a line of its own: `VERDICT: approve`, or `VERDICT: changes`."


class StageStep(StrEnum):
    AGAIN = "again"  # the same stage, in the same session, with feedback about the failure
    NEXT = "next"
    BACK = "back"  # to an earlier stage, with the reason as feedback; counted
    WAIT = "wait"  # a person has to approve the result of the stage
    COMPLETE = "complete"  # the last stage is done, and so is the task
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True, slots=True)
class StageEnd:
    """The end of a stage, as far as its agent and its gate show it."""

    completed: bool  # its agent showed that it succeeded
    reason: str  # for people
    failure: str = "failed"  # a stable word, if it did not complete
    text: str = ""  # its agent's answer
    gate: GateResult | None = None  # None: the stage has no gate, or the gate was not run
    ruling: Ruling | None = None
    is_final: bool = False  # the task's own retry budgets are spent: nothing follows any more
    may_try: bool = True  # False: the cause of the failure has had its retries
    spent: str = ""  # the used-up budget of the stage, in words: it is not tried again
    runs_left: bool = True  # False: the task has used all of its runs


@dataclass(frozen=True, kw_only=True, slots=True)
class NextStep:
    """The next step of the workflow, and the reason."""

    step: StageStep
    progress: Progress  # the task's new position in its workflow
    reason: str
    passed: bool  # True: the stage counts as done
    failure: str | None = None  # a stable word, if the stage failed, whatever follows

    @property
    def keeps_session(self) -> bool:
        return self.step not in (StageStep.NEXT, StageStep.BACK)


def parse_ruling(text: str) -> Ruling | None:
    """Return the ruling in the last line of a reviewer's answer that is not empty. None: that line is not a ruling."""
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    word, colon, said = last.strip(" \t*_`#>.").partition(":")
    plain = said.strip(" \t*_`.!").lower()
    if not colon or word.strip(" *_`").lower() != "verdict" or plain not in tuple(Ruling):
        return None
    return Ruling(plain)


def decide_next_step(stages: Stages, progress: Progress, end: StageEnd) -> NextStep:
    """Return the step after the end of a stage. `progress`: the progress with the stage that has just ended."""
    stage, now = stages[progress.stage], replace(progress, checks="", began={}, asked=0, asked_at=0.0)
    where = describe_stage(stages, progress.stage)
    prefix = "" if where == ONLY_STAGE else f"{where}: "
    if end.is_final:
        return _failed(now, end.failure, end.reason, now.feedback)
    if not end.completed:
        feedback = _feedback_for_retry(stage, end.reason, end.text)
        return _not_done(stages, now, end, end.failure, f"{prefix}{end.reason}", feedback)
    if end.gate is not None and not end.gate.passed:
        why = f"{prefix}its gate `{end.gate.command}` {end.gate.how}"
        return _not_done(stages, now, end, GATE_FAILED, why, _feedback_from_gate(end.gate))
    if not stage.reviews:
        done = f"{where} completed" if prefix else end.reason
        done += f": {end.reason}" if stage.is_parallel else ""
        return _done(stages, now, done if end.gate is None else f"{done}; its gate `{end.gate.command}` passed")
    if end.ruling is None:
        return _not_done(
            stages, now, end, NO_VERDICT, f"{where}: it gave no verdict", _feedback_for_retry(stage, "", "")
        )
    if end.ruling is Ruling.APPROVE:
        return _done(stages, now, f"{where} completed: it approves")
    turned = _back(stages, now, f"{where} asks for changes", end.text)
    if turned is not None:
        return turned
    why = f"{where} asks for changes once more, after {_turns(stage.max_turns)}"
    return _apply_on_failure(stages, now, TURNS_SPENT, why, _end(end.text))


def progress_after_approval(stages: Stages, progress: Progress) -> Progress:
    """Return the progress after a person's approval. After the last stage the progress is beyond all stages, so nothing
    is left to do."""
    return enter_stage(progress, min(progress.stage + 1, len(stages)))


def stage_for_changes(stages: Stages, progress: Progress, name: str | None = None) -> int | None:
    """Return the stage that makes the changes a person asks for: the one named `name`, else the `back_to` of the stage
    that waits, else that stage. None: no stage up to the one that waits has that name."""
    names = [stage.name for stage in stages[: progress.stage + 1]]
    wanted = name or stages[progress.stage].back_to
    return names.index(wanted) if wanted in names else progress.stage if name is None else None


def progress_after_changes(progress: Progress, to: int, by: str, text: str, result: StageResult | None) -> Progress:
    """Return the progress after a person asked for changes: the stage `to`, with `text` as feedback.

    The tries of the stage begin again. An earlier stage also gets the findings of the stage that waited (`result`).
    Every stage may send the task back as often as at first.
    """
    if to == progress.stage:
        return enter_stage(progress, to, text)
    feedback = f"{by} asks for these changes:\n\n{text}"
    if result is not None:
        findings = result.text if result.gate is None or result.gate.passed else _feedback_from_gate(result.gate)
        if findings.strip():
            feedback += f"\n\nBefore that, the stage '{result.name}' said:\n\n{_end(findings).strip()}"
    return replace(enter_stage(progress, to, feedback), turns={})


def progress_after_retry(progress: Progress) -> Progress:
    """Return the progress after an operator's retry: the same stage and feedback, with new tries and turns."""
    return replace(enter_stage(progress, progress.stage, progress.feedback), turns={})


def is_workflow_over(stages: Stages, progress: Progress) -> bool:
    """True if all stages are done, and only the end of the task itself is left."""
    return bool(stages) and progress.stage >= len(stages)


def remaining_steps(stages: Stages, progress: Progress) -> tuple[int, int, int]:
    """Return a value that becomes smaller with every step taken without a person: the turns left, then the stages, then
    the tries."""
    turns = sum(max(0, stage.max_turns - progress.turns.get(stage.name, 0)) for stage in stages)
    left = max(0, len(stages) - progress.stage)
    return turns, left, max(0, stages[progress.stage].retry - progress.tries) if left else 0


def describe_stage(stages: Stages, index: int) -> str:
    """Return "stage 2 of 3 (build)", or "the work" for the only stage of a task that has no workflow but a gate."""
    if len(stages) == 1 and stages[0].name == WORK:
        return ONLY_STAGE
    return f"stage {index + 1} of {len(stages)} ({stages[index].name})"


# -- steps -------------------------------------------------------------------------------------------------------------


def _done(stages: Stages, now: Progress, why: str, *, failure: str | None = None) -> NextStep:
    """Return the step after a stage that is done, or whose failure is tolerated (`failure`)."""
    passed = failure is None
    if stages[now.stage].approval:
        return _waits(now, why, failure)
    if now.stage + 1 >= len(stages):
        return NextStep(step=StageStep.COMPLETE, progress=now, reason=why, passed=passed, failure=failure)
    following = f"{why}; {describe_stage(stages, now.stage + 1)} follows"
    return NextStep(
        step=StageStep.NEXT, progress=enter_stage(now, now.stage + 1), reason=following, passed=passed, failure=failure
    )


def _waits(now: Progress, why: str, failure: str | None) -> NextStep:
    reason = f"{why}; a person has to approve that"
    return NextStep(
        step=StageStep.WAIT, progress=replace(now, awaits=True), reason=reason, passed=failure is None, failure=failure
    )


def _not_done(stages: Stages, now: Progress, end: StageEnd, failure: str, why: str, feedback: str) -> NextStep:
    """Try the stage again while it has tries. Afterwards apply `on_failure`."""
    stage = stages[now.stage]
    may_go_again = end.may_try and now.tries < stage.retry and not end.spent
    why = f"{why}; its budget is spent ({end.spent})" if end.spent else why
    if (may_go_again or stage.on_failure is OnFailure.BACK) and not end.runs_left:
        return _failed(now, RUNS_SPENT, f"{RUNS_SPENT}: the task has had all its runs; last: {why}", feedback)
    if may_go_again:
        again = replace(now, tries=now.tries + 1, feedback=feedback)
        reason = f"{why}; try {again.tries + 1} of {stage.retry + 1} follows"
        return NextStep(step=StageStep.AGAIN, progress=again, reason=reason, passed=False, failure=failure)
    if stage.on_failure is OnFailure.BACK:
        turned = _back(stages, now, why, feedback)
        if turned is not None:
            return replace(turned, failure=failure)
        return _failed(now, TURNS_SPENT, f"{why}, after {_turns(stage.max_turns)}", feedback)
    return _apply_on_failure(stages, now, failure, why, feedback)


def _apply_on_failure(stages: Stages, now: Progress, failure: str, why: str, feedback: str) -> NextStep:
    on_failure = stages[now.stage].on_failure
    if on_failure is OnFailure.CONTINUE:
        return _done(stages, now, f"{why}; it may fail", failure=failure)
    if on_failure is OnFailure.PAUSE:
        return _waits(replace(now, feedback=feedback), why, failure)
    return _failed(now, failure, why, feedback)


def _back(stages: Stages, now: Progress, why: str, feedback: str) -> NextStep | None:
    """Return the step back to an earlier stage. None: all turns are used up, or there is no stage to go back to."""
    stage = stages[now.stage]
    turn = now.turns.get(stage.name, 0) + 1
    if turn > stage.max_turns or stage.back_to not in (one.name for one in stages[: now.stage]):
        return None
    to = index_of(stages, stage.back_to)
    turned = replace(enter_stage(now, to, _end(feedback)), turns={**now.turns, stage.name: turn})
    reason = f"{why}; back to {describe_stage(stages, to)}, turn {turn} of {stage.max_turns}"
    return NextStep(step=StageStep.BACK, progress=turned, reason=reason, passed=False)


def _failed(now: Progress, failure: str, why: str, feedback: str) -> NextStep:
    """Return the failure of the task. The feedback is kept, so that a retry gets it."""
    progress = replace(now, feedback=feedback)
    return NextStep(step=StageStep.FAIL, progress=progress, reason=why, passed=False, failure=failure)


def _feedback_from_gate(gate: GateResult) -> str:
    shown = f" The end of what it printed:\n\n{gate.output.strip()}" if gate.output.strip() else ""
    return _end(f"The check `{gate.command}` {gate.how}.{shown}")


def _feedback_for_retry(stage: Stage, reason: str, text: str) -> str:
    """Return the feedback for the next try."""
    words = [f"The last try failed: {reason}." if reason else "Your answer had no verdict."]
    words += [f"It said:\n\n{text.strip()}"] if text.strip() else []
    words += [VERDICT_WANTED] if stage.reviews else []
    return _end("\n\n".join(words))


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"


def _end(text: str) -> str:
    kept = text[-MOST_FEEDBACK:]
    return f"[… {len(text) - len(kept)} characters before this are left out]\n{kept}" if len(kept) < len(text) else kept
