"""The end of a stage: its answer, its gate and its ruling, between the proven end of its agent and the settlement.

What is gathered here is read from the run's directory and asked of the gate, so a supervisor that dies in between
gathers it again. What follows is decided by core/workflows/next_stage.py, and is durable only with the settlement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from holdfast.base.errors import LaunchError
from holdfast.base.text import one_line
from holdfast.core.agents.final_answer import storable
from holdfast.core.model import Task, Workspace
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Action, Decision
from holdfast.core.workflows.advance import StageOutcome, gives_resumes_back, turn_of
from holdfast.core.workflows.next_stage import Following, Step, is_over, ruling_of
from holdfast.core.workflows.result import MOST_TEXT, GateResult, Result
from holdfast.core.workflows.template import TemplateError, parse, render
from holdfast.core.workflows.workflow import Member, Stage, stage_of
from holdfast.store.port.transaction import Grip, Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.runs.result import result_of
from holdfast.supervisor.runs.stop_request import Stopped, Wish, stopped_before
from holdfast.supervisor.workspaces.prepare import ensure_workspace
from holdfast.supervisor.workspaces.setup import commands_environment

MOST_BEGINNINGS = 5  # as often as a run may be lost


async def ask_gate(context: Context, task: Task, grip: Grip, stage: Stage, workspace: Workspace | None) -> GateResult:
    """Ended at once when its caller is cancelled."""
    if workspace is None or context.ports.furnishing is None:
        how = "could not be run: there is no workspace"
        return GateResult(command=one_line(stage.gate, 200), passed=False, how=how)
    begun = task.progress.asked
    if begun >= MOST_BEGINNINGS:
        how = f"was begun {begun} times and never came to its end: each time the supervisor died"
        return GateResult(command=one_line(stage.gate, 200), passed=False, how=how)
    await context.writer.write(lambda tx: _count(context, tx, grip, begun + 1))
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    env = commands_environment(context, task, repo, workspace) | {"HOLDFAST_STAGE": stage.name}
    return await context.ports.furnishing.gate(workspace, gate_kind(task, stage), stage.gate, env, stage.gate_timeout)


def _count(context: Context, tx: Transaction, grip: Grip, begun: int) -> None:
    """Once per claim or adoption, however often it is tried again within one: that is the machine's trouble."""
    progress = tx.tasks.get(grip.task_id).progress
    if progress.asked != begun:
        tx.staging.keep(grip, replace(progress, asked=begun), context.clock())


def gate_kind(task: Task, stage: Stage) -> str:
    """For the name of its log: one for every time that it is asked."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", stage.name)[:40]
    return f"gate-{plain}-{task.progress.visit}-{task.progress.tries + 1}"


_NOT_ITS_END = frozenset({Outcome.CANCELLED, Outcome.PAUSED, Outcome.STOPPED, Outcome.LOST})


async def ended_before(context: Context, task: Task, grip: Grip, wish: Wish) -> Verdict | None:
    """How a stage ended whose agent is not to run again: a person approved the last one, or its gate was cut short.
    None: there is an agent to run, or one that runs."""
    progress, has_all = task.progress, is_over(task.spec.stages, task.progress)
    if not progress.checks and not has_all:
        return None
    try:
        wish.heed()
        await wish.interrupts(ensure_workspace(context, task, grip))  # a cancel may have put it away before a retry
    except Stopped as stopped:
        return await stopped_before(context, task, stopped.why, "its end" if has_all else "its gate was asked")
    except LaunchError as error:
        return Verdict(outcome=Outcome.LAUNCH_ERROR, reason=str(error))
    if has_all:
        return Verdict(outcome=Outcome.COMPLETED, reason="all its stages are done, and the last one was approved")
    return await context.writer.write(lambda tx: tx.runs.verdict(progress.checks))


async def stage_ended(
    context: Context, task: Task, grip: Grip, run_id: str | None, verdict: Verdict, wish: Wish, answer: str = ""
) -> tuple[Verdict, StageOutcome | None]:
    """What the stage came to. A stop (a cancel, a pause, `down`) ends its gate at once: then that is how it ends for
    now, and only the gate is left to do afterwards."""
    stage = stage_of(task.spec.stages, task.progress)
    if stage is None or is_over(task.spec.stages, task.progress) or verdict.outcome in _NOT_ITS_END:
        return verdict, None
    try:
        if stage.gate and verdict.outcome is Outcome.COMPLETED:
            wish.heed()
        return verdict, await wish.interrupts(gather(context, task, grip, run_id, verdict, answer))
    except Stopped as stopped:
        if verdict.outcome is not Outcome.COMPLETED:
            return verdict, await gather(context, task, grip, run_id, verdict, answer)  # nothing in it takes long
        asked = await stopped_before(context, task, stopped.why, "its gate had passed")
        cut_short = StageOutcome(cut_short=task.progress.checks or run_id or "")
        return replace(verdict, outcome=asked.outcome, reason=asked.reason, resets_at=asked.resets_at), cut_short


async def gather(
    context: Context, task: Task, grip: Grip, run_id: str | None, verdict: Verdict, answer: str = ""
) -> StageOutcome:
    """Of the run that has ended; `answer`: of the members of a parallel stage. Ended at once when its caller is
    cancelled, the gate with it."""
    stage = task.spec.stages[task.progress.stage]
    run_id = task.progress.checks or run_id
    workspace = await context.writer.write(lambda tx: tx.workspaces.current(task.id))
    result = await result_of(context, task, None if stage.is_parallel else run_id, verdict, workspace=workspace)
    if stage.is_parallel:
        result = replace(result, text=storable(answer)[-MOST_TEXT:])
    if verdict.outcome is not Outcome.COMPLETED:
        return StageOutcome(result=result)
    if stage.gate:
        result = replace(result, gate=await ask_gate(context, task, grip, stage, workspace))
    if stage.reviews:
        result = replace(result, ruling=str(ruling_of(result.text) or ""))
    return StageOutcome(result=result)


def move(
    context: Context,
    tx: Transaction,
    task: Task,
    grip: Grip,
    decision: Decision,
    ended: StageOutcome | None,
    following: Following | None,
) -> None:
    """In the transaction of the settlement, and before it."""
    now = context.clock()
    if ended is not None and ended.cut_short:
        tx.staging.keep(grip, replace(task.progress, checks=ended.cut_short, asked=0), now)
    if ended is None or ended.result is None or following is None:
        return
    if following.step is Step.FAIL and decision.action is not Action.FAIL:
        return  # it was one of many deaths, and is spared
    tx.results.record(grip, replace(ended.result, passed=following.passed))
    tx.staging.move(grip, following, now, resets_resumes=gives_resumes_back(context.limits, following))


FEEDBACK = "This is not the first try. What was found out about the one before:\n\n{feedback}\n\nMend that."


async def prompted(context: Context, task: Task, member: Member | None = None) -> Task:
    """The task as its agent is to see it: with the prompt of its stage, or of a member of it."""
    stage = stage_of(task.spec.stages, task.progress)
    if stage is None:
        return task
    results = await context.writer.write(lambda tx: tx.results.of_task(task.id))
    try:
        template = parse((member.prompt if member is not None else "") or stage.prompt)
    except TemplateError as error:  # it was one when the task was added: Holdfast is another since
        raise LaunchError(f"The prompt of stage '{stage.name}' cannot be read: {error}.") from error
    values = values_of(task, results) | {"member": "" if member is None else member.name}
    text, feedback = render(template, values), task.progress.feedback
    if feedback and "feedback" not in template.names:
        text = f"{text}\n\n{FEEDBACK.format(feedback=feedback)}"
    return replace(task, spec=replace(task.spec, prompt=text))


def values_of(task: Task, results: Sequence[Result]) -> dict[str, str]:
    """Of every variable that a template may name."""
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
        values |= _of_stage(name, [result for result in results if result.name == name])
    return values


def _of_stage(name: str, results: Sequence[Result]) -> dict[str, str]:
    """Its last visit: of the stage, and of each of its members, the last try."""
    last = [one for one in results if one.visit == results[-1].visit]
    members = {one.member: one for one in last if one.member}.values()
    whole = next((one for one in reversed(last) if not one.member), last[-1])
    answers = "\n\n".join(f"## {one.member} ({one.outcome})\n\n{one.text.strip()}" for one in members)
    return {
        f"stages.{name}.text": answers or whole.text,
        f"stages.{name}.outcome": whole.outcome,
        f"stages.{name}.ruling": whole.ruling,
        f"stages.{name}.gate": "" if whole.gate is None else _gate(whole.gate),
        f"stages.{name}.files": "\n".join(whole.files),
        f"stages.{name}.members": answers,
    }


def _gate(gate: GateResult) -> str:
    return f"`{gate.command}` {gate.how}.\n{gate.output}".strip()
