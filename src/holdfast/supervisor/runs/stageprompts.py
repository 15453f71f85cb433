"""What the agent of a stage is told: its template, with what is known when it is launched. Text is put in as it is;
what an agent answered is never read as a template (core/workflows/template.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.base.errors import LaunchError
from holdfast.core.model import Task
from holdfast.core.workflows.result import GateResult, Result
from holdfast.core.workflows.template import TemplateError, parse, render
from holdfast.core.workflows.workflow import Member, stage_of
from holdfast.supervisor.context import Context
from holdfast.supervisor.runs.stages import turn_of

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
