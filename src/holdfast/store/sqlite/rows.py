"""Conversion of rows to model values and back."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from holdfast.base.instant import Instant
from holdfast.base.stored_json import load_stored_json, stored_data_errors
from holdfast.core.model import (
    Claim,
    PauseReason,
    Repo,
    ReportKind,
    ReportPosition,
    Request,
    RequestKind,
    Run,
    StopWhy,
    Strategy,
    Task,
    TaskSpec,
)
from holdfast.core.runs.outcome import RefusedCalls, RunUsage
from holdfast.core.runs.retry_budgets import Budget, Spend
from holdfast.core.states import RunState, TaskState
from holdfast.core.task_settings import (
    DEFAULT_BUDGET,
    DEFAULT_CONTAINER,
    DEFAULT_HEALTH,
    DEFAULT_LIMITS,
    DEFAULT_SALVAGE,
    DEFAULT_SUBTASKS,
    DEFAULT_WORKSPACE,
    non_default_fields,
    rules_from,
)
from holdfast.core.workflows.workflow import START, Progress, progress_from, progress_to_json, stage_from, stage_to_json
from holdfast.secrets.redact import redact_text, redact_values

Row = dict[str, Any]

_IN_SETTINGS = (
    "agent_options",
    "directory_copy",
    "labels",
    "timeout",
    "grace",
    "orphan_grace",
    "max_resumes",
    "preserve_on_failure",
    "preserve_strategy_default",
    "preserve_global_default",
    "cleanup_on_complete",
    "keep_workspace",
    "commit_leftovers",
    "environment",
)


_RULES: dict[str, Any] = {  # fields of a specification that hold rules: only values other than the default are stored
    "health": DEFAULT_HEALTH,
    "limits": DEFAULT_LIMITS,
    "workspace": DEFAULT_WORKSPACE,
    "salvage": DEFAULT_SALVAGE,
    "container": DEFAULT_CONTAINER,
    "budget": DEFAULT_BUDGET,
    "subtasks": DEFAULT_SUBTASKS,
}

_OF_USAGE = ("input", "output", "cached", "reasoning", "turns", "model")
MOST_SHARED = 4096  # characters. Longer settings (for example a scenario) are hardly ever those of another task
_settings = attrgetter(*_IN_SETTINGS)
_STRATEGIES = {str(strategy): strategy for strategy in Strategy}  # a dict lookup is six times as fast as the call
_STATES = {str(state): state for state in TaskState}

encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes a new encoder at every call
decode = json.JSONDecoder().decode


def encode_redacted(value: Any) -> str:
    """Return a record of what happened as JSON, with secrets redacted. Use it for all text that agents and tools
    contribute to."""
    return encode(redact_values(value))


def encode_settings(spec: TaskSpec) -> str:
    """Return the part of a task's specification that queries do not read, except labels while something is held
    back."""
    kept = dict(zip(_IN_SETTINGS, _settings(spec), strict=True))
    for name, default in _RULES.items():
        rules = getattr(spec, name)
        if rules is not default and (different := non_default_fields(rules, default)):
            kept[name] = different
    if spec.provider:
        kept["provider"] = spec.provider
    if spec.adaptive_floor is not None:
        kept["adaptive_floor"] = spec.adaptive_floor
    if spec.base_from_parent:
        kept["base_from_parent"] = True
    if spec.stages:
        kept |= {"workflow": spec.workflow, "stages": [stage_to_json(stage) for stage in spec.stages]}
    if spec.range_base is not None:
        kept["range_base"] = spec.range_base
    if spec.schedule:
        kept |= {"schedule": spec.schedule, "fire_time": spec.fire_time}
    return encode(kept)


@lru_cache(maxsize=64)
def _settings_from(text: str) -> dict[str, Any]:
    """Return parsed settings. Tasks of one fleet mostly have the same ones. Read only: all callers share the value."""
    return _read_settings(text)


def _read_settings(text: str) -> dict[str, Any]:
    settings: dict[str, Any] = decode(text)
    for name, default in _RULES.items():
        if name in settings:
            settings[name] = rules_from(type(default), settings[name])
    if "stages" in settings:
        settings["stages"] = tuple(stage_from(stage) for stage in settings["stages"])
    return settings


@stored_data_errors
def task_from_row(row: tuple[Any, ...]) -> Task:
    """Return a task from the columns that queries/tasks.sql calls `task_columns`, in their order."""
    (
        task_id,
        repo_id,
        prompt,
        agent,
        base_ref,
        strategy,
        priority,
        parent_id,
        not_before,
        settings,
        state,
        fence,
        owner,
        generation,
        base_commit,
        branch,
        resume_attempts,
        pause_reason,
        session_id,
        account,
        fresh,
        forced,
        worker,
        progress,
        needs,
    ) = row
    spec = TaskSpec(
        id=task_id,
        repo_id=repo_id,
        prompt=prompt,
        agent=agent,
        base_ref=base_ref,
        strategy=_STRATEGIES[strategy],
        priority=priority,
        parent_id=parent_id,
        not_before=not_before,
        needs=() if needs == "[]" else tuple(sorted(decode(needs))),
        **(_settings_from(settings) if len(settings) < MOST_SHARED else _read_settings(settings)),
    )
    return Task(
        spec=spec,
        state=_STATES[state],
        fence=fence,
        owner=owner,
        generation=generation,
        base_commit=base_commit,
        branch=branch,
        resume_attempts=resume_attempts,
        pause_reason=PauseReason(pause_reason) if pause_reason else None,
        session_id=session_id,
        account=account,
        fresh=bool(fresh),
        forced=bool(forced),
        worker=worker,
        progress=START if progress is None else progress_from(decode(progress)),
    )


def encode_progress(progress: Progress) -> str | None:
    """Return the column `progress`. Only the feedback for the next run is redacted, because it is free text. The
    task needs the rest (stages by name) unchanged."""
    return (
        None
        if progress == START
        else encode(progress_to_json(replace(progress, feedback=redact_text(progress.feedback))))
    )


def named_account(spec: TaskSpec) -> str | None:
    """Return the account that a task names."""
    named = spec.agent_options.get("account")
    return named if isinstance(named, str) and named else None


def new_task(spec: TaskSpec) -> Task:
    """Return a task as it is right after it was added, with the schema's defaults."""
    return Task(
        spec=spec,
        state=TaskState.QUEUED,
        fence=0,
        owner=None,
        generation=0,
        base_commit=None,
        branch=None,
        resume_attempts=0,
        pause_reason=None,
        session_id=None,
        account=named_account(spec),
        fresh=False,
    )


def encode_usage(usage: RunUsage | None) -> str | None:
    """Return the column `usage`, without the cost, which has its own column."""
    if usage is None:
        return None
    return encode({name: getattr(usage, name) for name in _OF_USAGE if getattr(usage, name)})


@stored_data_errors
def usage(text: str | None, cost_usd: float | None) -> RunUsage | None:
    return None if text is None else RunUsage(**decode(text), cost_usd=cost_usd)


def encode_refused(refused: RefusedCalls | None) -> str | None:
    return None if refused is None else encode_redacted({"count": refused.count, "first": list(refused.first)})


@stored_data_errors
def refused(text: str | None) -> RefusedCalls | None:
    kept = None if text is None else decode(text)
    return None if kept is None else RefusedCalls(count=kept["count"], first=tuple(kept["first"]))


@stored_data_errors
def run_from_row(row: Row) -> Run:
    return Run(
        id=row["id"],
        task_id=row["task_id"],
        number=row["number"],
        state=RunState(row["state"]),
        stop_why=StopWhy(row["stop_why"]) if row["stop_why"] else None,
        stop_reason=row["stop_reason"],
        timeout=row["timeout"],
        account=row["account"],
        outcome=row["outcome"],
        reason=row["reason"],
        claim=_claim(row["claim"]),
        heard=_heard(row["reports"]),
        stage=row["stage"],
        member=row["member"],
    )


def _claim(text: str | None) -> Claim | None:
    if text is None:
        return None
    kept = decode(text)
    at = Instant(wall=kept["at"], boottime=kept["boottime"], boot_id=kept["boot_id"])
    return Claim(kind=ReportKind(kept["kind"]), message=kept["message"], at=at)


def _heard(text: str | None) -> ReportPosition:
    if text is None:
        return ReportPosition()
    kept = decode(text)
    return ReportPosition(offset=kept["offset"], refused=kept["refused"], contradicted=kept["contradicted"])


def repo_from_row(row: Row) -> Repo:
    return Repo(id=row["id"], path=row["path"], common_dir=row["common_dir"])


@stored_data_errors
def request_from_row(row: Row) -> Request:
    return Request(
        id=row["id"],
        kind=RequestKind(row["kind"]),
        task_id=row["task_id"],
        by=row["by"],
        at=row["at"],
        why=row["why"],
        data=load_stored_json(row["data"], shape=dict),
    )


@stored_data_errors
def spend_from_row(row: Row) -> Spend:
    return Spend(
        budget=Budget(row["budget"]),
        at=Instant(wall=row["wall"], boottime=row["boottime"], boot_id=row["boot_id"]),
    )
