"""The decision about a task when one of its stages has ended. Pure.

`next_stage.follow` chooses the next stage. This module turns that choice into a `Decision`, as the policy makes one for
a task without stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.base.dataclass import dataclass
from holdfast.core.model import PauseReason, Task
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.core.runs.retry_budgets import Budget, RetryLimits, Spend, spent
from holdfast.core.workflows.next_stage import NextStep, StageEnd, StageStep, decide_next_step, is_workflow_over
from holdfast.core.workflows.result import GateResult, StageResult
from holdfast.core.workflows.workflow import Ruling, stage_of

OF_THE_TASK = frozenset({"runs_spent", "crash_loop", "lost_too_often", "resume_disabled"})
"""Failures that end the task, whatever `on_failure` of its stage is: the task's own budgets are spent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageOutcome:
    """The end of a stage. `cut_short`: its gate did not finish, so only the gate is left to run."""

    result: StageResult | None = None
    cut_short: str = ""  # the run whose gate is still to be asked: a stop ended it, or its command could not be run
    gate_not_run: GateResult | None = None  # the gate whose command could not be run


def advance(
    task: Task,
    decision: Decision,
    stage: StageOutcome | None,
    verdict: Verdict,
    ledger: Sequence[Spend],
    limits: RetryLimits,
    stage_spent: str = "",
) -> tuple[Decision, NextStep | None]:
    """Return the decision about the task, and the next step of its workflow, when its stage has ended. `stage_spent`:
    the used-up budget of the stage.

    The policy's decision stands while the stage continues: after a crash, a limit, or an operator's pause.
    """
    if is_workflow_over(task.spec.stages, task.progress):
        return replace(decision, spends=()), None  # nothing ran: a person approved the last stage
    if stage is not None and stage.gate_not_run is not None and decision.action is PolicyAction.COMPLETE:
        return _wait_for_gate(stage.gate_not_run), None
    if stage is None or stage.result is None or decision.action not in (PolicyAction.COMPLETE, PolicyAction.FAIL):
        return decision, None
    failure = decision.failure or str(verdict.outcome)
    following = decide_next_step(
        task.spec.stages,
        task.progress,
        StageEnd(
            completed=decision.action is PolicyAction.COMPLETE,
            reason=verdict.reason if failure == str(verdict.outcome) else decision.reason,
            failure=failure,
            text=stage.result.text,
            gate=stage.result.gate,
            ruling=Ruling(stage.result.ruling) if stage.result.ruling else None,
            is_final=failure in OF_THE_TASK,
            # the tries of a task without a workflow are for its gate alone
            may_try=verdict.outcome is Outcome.COMPLETED
            or (verdict.outcome is Outcome.FAILED and bool(task.spec.workflow)),
            spent="" if failure == Outcome.OVER_BUDGET else stage_spent,
            runs_left=spent(ledger, Budget.RUNS) + 1 < limits.runs,
        ),
    )
    decided = _decided(task, decision, following)
    if decided.stage is not None and gives_resumes_back(limits, following):
        decided = replace(decided, stage={**decided.stage, "gives_resumes_back": True})
    return decided, following


def fail_if_stage_spent(
    decision: Decision, stage: StageOutcome | None, task: Task, verdict: Verdict, stage_spent: str
) -> Decision:
    """Turn a continuation of a stage into its failure if the stage's budget is used up. The stage's `on_failure`
    decides what follows."""
    at = None if is_workflow_over(task.spec.stages, task.progress) else stage_of(task.spec.stages, task.progress)
    if at is None or not at.budget or stage is None or stage.result is None:
        return decision
    is_cut_short = verdict.outcome is Outcome.OVER_BUDGET
    if not is_cut_short and not (stage_spent and decision.action is PolicyAction.REQUEUE):
        return decision
    what = f"its budget is spent ({stage_spent})" if stage_spent else verdict.reason
    return replace(
        decision,
        action=PolicyAction.FAIL,
        reason=what if is_cut_short else f"{what}; last: {decision.reason}",
        failure=str(Outcome.OVER_BUDGET),
        pause=None,
        resume_after=None,
        delay=0.0,
    )


def _wait_for_gate(gate: GateResult) -> Decision:
    """Pause a task whose gate could not be run: more tries of the agent cannot change that. A resume runs the gate
    again."""
    reason = f"the gate could not be run: `{gate.command}` {gate.how}"
    return Decision(action=PolicyAction.PAUSE, reason=reason, pause=PauseReason.GATE, alert=True)


def _decided(task: Task, decision: Decision, following: NextStep) -> Decision:
    stages, progress = task.spec.stages, following.progress
    spends = (Budget.STAGE,) if following.failure is None else (Budget.RUNS,)
    if following.step is StageStep.FAIL:
        if decision.action is PolicyAction.FAIL and decision.failure == following.failure:
            return replace(decision, reason=following.reason)
        return Decision(action=PolicyAction.FAIL, reason=following.reason, failure=following.failure, spends=spends)
    if following.step is StageStep.COMPLETE:
        return Decision(action=PolicyAction.COMPLETE, reason=following.reason, spends=spends)
    at = stages[progress.stage]
    told = {
        "step": str(following.step),
        "stage": progress.stage,
        "name": at.name,
        "try": progress.tries + 1,
        "turn": turn_of(task, progress.stage, progress.turns) - 1,
        "from": stages[task.progress.stage].name,
        "passed": following.passed,
        "failure": following.failure,
    }
    waits = following.step is StageStep.WAIT
    return Decision(
        action=PolicyAction.PAUSE if waits else PolicyAction.REQUEUE,
        reason=following.reason,
        pause=PauseReason.APPROVAL if waits else None,
        spends=spends,
        keeps_session=following.keeps_session,
        stage=told,
    )


def turn_of(task: Task, index: int, turns: Mapping[str, int]) -> int:
    """Return the number of the present turn of stage `index`: 1 plus the times that the task was sent back to the
    stage, or by it."""
    name = task.spec.stages[index].name
    return 1 + sum(turns.get(stage.name, 0) for stage in task.spec.stages if name in (stage.name, stage.back_to))


def gives_resumes_back(limits: RetryLimits, following: NextStep) -> bool:
    """True if a passed stage gives the resumes back that were spent before it (R-RES-05)."""
    return limits.reset_on_progress and following.passed
