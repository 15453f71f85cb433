"""Workflows that a task may have here, and the mistakes in them, as rows for interfaces."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast import config
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import NotFound, UsageError
from holdfast.config.report import report_settings
from holdfast.intake.new_task import NewTask
from holdfast.intake.workflow import known_workflows, no_such_workflow, resolve_stages

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import AgentChoiceRow, WorkflowRow
    from holdfast.api.tasks.models import JsonObject
    from holdfast.core.workflows.draft import AgentChoice, StageDraft, WorkflowDraft


@dataclass(frozen=True, kw_only=True, slots=True)
class Workflows:
    rows: tuple[WorkflowRow, ...]  # the built-in ones first
    problems: tuple[config.SettingProblem, ...]
    warnings: tuple[str, ...]


def list_workflows(home: str, repo: str | None) -> Workflows:
    """Return all workflows as a task in `repo` would have them. None: as the user's own file has them.

    Mistakes are part of the result.
    """
    found = report_settings(repo, home)
    known = known_workflows(found.config)
    misfits = {name: _find_mistakes(draft, found.config, repo or "/") for name, draft in known.items()}
    return Workflows(
        rows=tuple(_row(draft, misfits[name]) for name, draft in known.items()),
        problems=(*found.problems, *(problem for each in misfits.values() for problem in each)),
        warnings=found.warnings,
    )


def find_workflow(found: Workflows, name: str) -> WorkflowRow:
    row = next((row for row in found.rows if row["name"] == name), None)
    if row is None:
        raise NotFound(no_such_workflow(name, [str(each["name"]) for each in found.rows]))
    return row


def _find_mistakes(draft: WorkflowDraft, settings: config.Config, repo: str) -> list[config.SettingProblem]:
    """Return mistakes that exist only together with the settings in effect here, such as an unknown account."""
    problems = []
    for number, stage in enumerate(draft.stages):
        if not _names_agent(stage, settings):
            continue  # the task has to name the agent
        try:
            resolve_stages(draft, NewTask(prompt="-", directory=repo), settings, only=number)
        except UsageError as error:
            place, _, line = draft.place.rpartition(":")
            text = str(error).removesuffix(" Nothing was queued.")
            problems.append(config.SettingProblem(place or draft.origin, int(line) if line.isdigit() else None, text))
    return problems


def _names_agent(stage: StageDraft, settings: config.Config) -> bool:
    choices = [member.chosen for member in stage.members] or [stage.chosen]
    return all(
        choice.command
        or choice.scenario
        or (choice.agent or stage.chosen.agent or settings["agent"]) not in ("", "command", "scripted")
        for choice in choices
    )


def _row(draft: WorkflowDraft, problems: list[config.SettingProblem]) -> WorkflowRow:
    return {
        "name": draft.name,
        "origin": draft.origin,
        "place": draft.place or None,
        "about": draft.about,
        "prompt": draft.prompt,
        "wants_prompt": draft.wants_prompt,
        "wants_range": draft.wants_range,
        "preserve_on_failure": draft.preserve_on_failure,
        "keep_workspace": draft.keep_workspace,
        "stages": [_stage(stage) for stage in draft.stages],
        "problems": [str(problem) for problem in problems],
    }


def _stage(stage: StageDraft) -> JsonObject:
    plain = asdict(stage)
    plain["gate"] = plain.pop("has_set_gate") or stage.gate or None
    plain["on_failure"] = str(stage.on_failure)
    plain["members"] = [{"name": each.name, **_chosen(each.chosen), "prompt": each.prompt} for each in stage.members]
    del plain["chosen"]
    return {"name": plain.pop("name"), **_chosen(stage.chosen), **plain}


def _chosen(chosen: AgentChoice) -> AgentChoiceRow:
    agent = chosen.agent or ("command" if chosen.command else "scripted" if chosen.scenario else None)
    return {
        "agent": agent,
        "model": chosen.model or None,
        "permission": chosen.permission or None,
        "account": chosen.account or None,
        "command": list(chosen.command) or None,
        "scenario": [dict(step) for step in chosen.scenario] or None,
    }
