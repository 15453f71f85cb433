"""The end of a stage: its answer, gate and ruling are collected after the proven end of its agent and before the
settlement.

The answer is read from the run's directory and the gate is run here. So the next supervisor collects both again after a
crash. core/workflows/next_stage.py decides what follows, and only the settlement makes that decision durable.

A gate may therefore run a second time. Its beginning is durable and counted: a gate that kills its supervisor, or takes
all memory, must not do so for ever.

Prompts of stages are rendered here too. Values are inserted into the template as they are. An agent's answer is never
parsed as a template (core/workflows/template.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from holdfast.base.errors import LaunchError
from holdfast.base.text import one_line
from holdfast.core.agents.final_answer import make_storable
from holdfast.core.model import Event, Task, Workspace
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.core.tasks.messages import NO_MESSAGES, Turn
from holdfast.core.workflows.advance import StageOutcome, gives_resumes_back, turn_of
from holdfast.core.workflows.next_stage import NextStep, StageStep, is_workflow_over, parse_ruling
from holdfast.core.workflows.result import MOST_TEXT, GateResult, StageResult
from holdfast.core.workflows.template import TemplateError, parse, render
from holdfast.core.workflows.workflow import Member, Stage, stage_of
from holdfast.store.port.transaction import Ownership, Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.runs.result import collect_result
from holdfast.supervisor.runs.stop_request import StopRequest, StopRequested, verdict_stopped_before
from holdfast.supervisor.workspaces.prepare import ensure_workspace
from holdfast.supervisor.workspaces.setup import command_runner, commands_environment

MOST_GATE_STARTS = 5  # as often as a run may be lost


async def run_gate(
    context: Context, task: Task, ownership: Ownership, stage: Stage, workspace: Workspace | None
) -> GateResult:
    """Run the gate of a stage in the task's workspace. The gate is ended at once when the calling asyncio task is
    cancelled."""
    if workspace is None or context.ports.workspace_setup is None:
        how = "could not be run: there is no workspace"
        return GateResult(command=one_line(stage.gate, 200), passed=False, how=how)
    begun = task.progress.asked
    if begun >= MOST_GATE_STARTS:
        how = f"was started {begun} times and never finished: each time the supervisor died"
        return GateResult(command=one_line(stage.gate, 200), passed=False, how=how)
    await context.writer.write(lambda tx: _record_gate_start(context, tx, ownership, stage, begun + 1))
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    env = commands_environment(context, task, repo, workspace) | {"HOLDFAST_STAGE": stage.name}
    try:
        runner = await command_runner(context, task, workspace)
        return await context.ports.workspace_setup.gate(
            workspace, gate_kind(task, stage), stage.gate, env, stage.gate_timeout, runner
        )
    except LaunchError as error:
        return GateResult(command=one_line(stage.gate, 200), passed=False, how=f"could not be run: {error}")


def _record_gate_start(context: Context, tx: Transaction, ownership: Ownership, stage: Stage, begun: int) -> None:
    """Record and count the beginning of a gate once per claim or adoption. Further tries within one claim are not
    counted, because trouble of the machine caused them."""
    progress = tx.tasks.get(ownership.task_id).progress
    if progress.asked == begun:
        return
    now, command = context.clock(), one_line(stage.gate, 200)
    tx.stages.keep(ownership, replace(progress, asked=begun, asked_at=now.wall), now)
    tx.events.emit(
        Event(
            kind="gate.started",
            task_id=ownership.task_id,
            message=f"Task {ownership.task_id} is checked by its gate `{command}`.",
            data={"command": command, "stage": stage.name},
        ),
        now,
    )


def gate_kind(task: Task, stage: Stage) -> str:
    """Return the name of the gate's log. It is different each time that the gate is run."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", stage.name)[:40]
    return f"gate-{plain}-{task.progress.visit}-{task.progress.tries + 1}"


_NOT_STAGE_ENDS = frozenset({Outcome.CANCELLED, Outcome.PAUSED, Outcome.STOPPED, Outcome.LOST})


async def find_earlier_end(
    context: Context, task: Task, ownership: Ownership, stop_request: StopRequest
) -> Verdict | None:
    """Return the verdict of a stage whose agent is not run again. None: the stage's agent has to be run, or is running.

    An agent is not run again in two cases: a person approved the last stage, or a stop cut the stage's gate short.
    """
    progress, has_all = task.progress, is_workflow_over(task.spec.stages, task.progress)
    if not progress.checks and not has_all:
        return None
    try:
        stop_request.raise_if_stopped()
        await stop_request.run_cancellable(
            ensure_workspace(context, task, ownership)
        )  # a cancel may have removed it before a retry
    except StopRequested as stopped:
        return await verdict_stopped_before(context, task, stopped.why, "its end" if has_all else "its gate was asked")
    except LaunchError as error:
        return Verdict(outcome=Outcome.LAUNCH_ERROR, reason=str(error))
    if has_all:
        return Verdict(outcome=Outcome.COMPLETED, reason="all stages are done, and the last one was approved")
    return await context.writer.write(lambda tx: tx.runs.verdict(progress.checks))


async def finish_stage(
    context: Context,
    task: Task,
    ownership: Ownership,
    run_id: str | None,
    verdict: Verdict,
    stop_request: StopRequest,
    answer: str = "",
) -> tuple[Verdict, StageOutcome | None]:
    """Return the verdict and the outcome of the stage.

    A stop (cancel, pause, `down`) ends the gate at once. Then the stop is the verdict for now, and only the gate is
    left to do later.
    """
    stage = stage_of(task.spec.stages, task.progress)
    if stage is None or is_workflow_over(task.spec.stages, task.progress) or verdict.outcome in _NOT_STAGE_ENDS:
        return verdict, None
    try:
        if stage.gate and verdict.outcome is Outcome.COMPLETED:
            stop_request.raise_if_stopped()
        return verdict, await stop_request.run_cancellable(
            collect_stage_outcome(context, task, ownership, run_id, verdict, answer)
        )
    except StopRequested as stopped:
        if verdict.outcome is not Outcome.COMPLETED:
            return verdict, await collect_stage_outcome(
                context, task, ownership, run_id, verdict, answer
            )  # nothing in it takes long
        asked = await verdict_stopped_before(context, task, stopped.why, "its gate had passed")
        cut_short = StageOutcome(cut_short=task.progress.checks or run_id or "")
        return replace(verdict, outcome=asked.outcome, reason=asked.reason, resets_at=asked.resets_at), cut_short


async def collect_stage_outcome(
    context: Context, task: Task, ownership: Ownership, run_id: str | None, verdict: Verdict, answer: str = ""
) -> StageOutcome:
    """Collect the outcome of a stage. The gate is ended at once when the calling asyncio task is cancelled.

    `run_id`: the run that has ended. `answer`: the joined answers of the members of a parallel stage.
    """
    stage = task.spec.stages[task.progress.stage]
    run_id = task.progress.checks or run_id
    workspace = await context.writer.write(lambda tx: tx.workspaces.current(task.id))
    result = await collect_result(context, task, None if stage.is_parallel else run_id, verdict, workspace=workspace)
    if stage.is_parallel:
        result = replace(result, text=make_storable(answer)[-MOST_TEXT:])
    if verdict.outcome is not Outcome.COMPLETED:
        return StageOutcome(result=result)
    if stage.gate:
        gate = await run_gate(context, task, ownership, stage, workspace)
        if not gate.was_run:
            return StageOutcome(cut_short=run_id or "", gate_not_run=replace(gate, how=make_storable(gate.how)))
        result = replace(result, gate=gate)
    if stage.reviews:
        result = replace(result, ruling=str(parse_ruling(result.text) or ""))
    return StageOutcome(result=result)


def record_stage_move(
    context: Context,
    tx: Transaction,
    task: Task,
    ownership: Ownership,
    decision: Decision,
    ended: StageOutcome | None,
    following: NextStep | None,
) -> None:
    """Record the result of the stage and move the task to the next stage. Call this before `tx.tasks.settle`, in the
    same transaction."""
    now = context.clock()
    if ended is not None and (ended.cut_short or ended.gate_not_run is not None):
        tx.stages.keep(ownership, replace(task.progress, checks=ended.cut_short, asked=0, asked_at=0.0), now)
    if ended is None or ended.result is None or following is None:
        return
    if following.step is StageStep.FAIL and decision.action is not PolicyAction.FAIL:
        return  # the crash was part of a mass death, which costs the task nothing
    tx.results.record(ownership, replace(ended.result, passed=following.passed))
    tx.stages.move(ownership, following, now, resets_resumes=gives_resumes_back(context.limits, following))


FEEDBACK = "This is not the first try. Findings about the previous try:\n\n{feedback}\n\nFix them."


def reply_with_feedback(task: Task, turn: Turn) -> str:
    """Return the prompt of a run that continues in its session with a message. Empty: the run does not begin with a
    message."""
    feedback = task.progress.feedback
    return f"{turn.reply}\n\n{FEEDBACK.format(feedback=feedback)}" if turn.reply and feedback else turn.reply


async def task_with_stage_prompt(
    context: Context, task: Task, member: Member | None = None, turn: Turn = NO_MESSAGES
) -> Task:
    """Return the task with the prompt of its stage, or of a member of that stage. `turn`: the messages to the task."""
    stage = stage_of(task.spec.stages, task.progress)
    task = replace(task, spec=replace(task.spec, prompt=turn.full_prompt(task.spec.prompt)))
    if stage is None:
        return task
    results = await context.writer.write(lambda tx: tx.results.of_task(task.id))
    try:
        template = parse((member.prompt if member is not None else "") or stage.prompt)
    # It was valid when the task was added: Holdfast was replaced by another version since.
    except TemplateError as error:
        raise LaunchError(f"The prompt of stage '{stage.name}' cannot be read: {error}.") from error
    values = template_values(task, results) | {"member": "" if member is None else member.name}
    text, feedback = render(template, values), task.progress.feedback
    if turn.new and "task.prompt" not in template.names:
        text = Turn(new=turn.new).full_prompt(text)
    if feedback and "feedback" not in template.names:
        text = f"{text}\n\n{FEEDBACK.format(feedback=feedback)}"
    return replace(task, spec=replace(task.spec, prompt=text))


def template_values(task: Task, results: Sequence[StageResult]) -> dict[str, str]:
    """Return the value of every variable that a template may name."""
    spec, progress = task.spec, task.progress
    base = spec.range_base or task.base_commit or ""
    values = {
        "task.id": task.id,
        "task.prompt": spec.prompt,
        "task.base": base,
        "task.ref": spec.base_ref,
        "task.range": f"{base}..{task.base_commit or spec.base_ref}",
        "task.branch": task.branch or "",
        "turn": str(turn_of(task, progress.stage, progress.turns)),
        "feedback": progress.feedback,
        "schedule.name": spec.schedule,
        "schedule.fire_time": spec.fire_time,
        **{f"task.labels.{key}": value for key, value in spec.labels.items()},
    }
    for name in {result.name for result in results}:
        values |= _values_of_stage(name, [result for result in results if result.name == name])
    return values


def _values_of_stage(name: str, results: Sequence[StageResult]) -> dict[str, str]:
    """Return the variables of one stage, from the last try of its last visit. Each member of the stage has its own
    variables."""
    last = [one for one in results if one.visit == results[-1].visit]
    members = {one.member: one for one in last if one.member}.values()
    whole = next((one for one in reversed(last) if not one.member), last[-1])
    answers = "\n\n".join(f"## {one.member} ({one.outcome})\n\n{one.text.strip()}" for one in members)
    return {
        f"stages.{name}.text": answers or whole.text,
        f"stages.{name}.outcome": whole.outcome,
        f"stages.{name}.ruling": whole.ruling,
        f"stages.{name}.gate": "" if whole.gate is None else _describe_gate(whole.gate),
        f"stages.{name}.files": "\n".join(whole.files),
        f"stages.{name}.members": answers,
    }


def _describe_gate(gate: GateResult) -> str:
    return f"`{gate.command}` {gate.how}.\n{gate.output}".strip()
