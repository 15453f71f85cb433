"""Rows to model values and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdfast.core.model import (
    Instant,
    PauseReason,
    Repo,
    Request,
    RequestKind,
    Run,
    StopWhy,
    Strategy,
    Task,
    TaskSpec,
    Workspace,
)
from holdfast.core.policy import Budget, Spend
from holdfast.core.states import RunState, TaskState, WorkspaceState

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


def settings_of(spec: TaskSpec) -> str:
    """The part of a task's specification that no query looks into."""
    return json.dumps({name: getattr(spec, name) for name in _IN_SETTINGS}, separators=(",", ":"))


def task(row: Row, needs: Sequence[str] = ()) -> Task:
    spec = TaskSpec(
        id=row["id"],
        repo_id=row["repo_id"],
        prompt=row["prompt"],
        agent=row["agent"],
        base_ref=row["base_ref"],
        strategy=Strategy(row["strategy"]),
        priority=row["priority"],
        parent_id=row["parent_id"],
        not_before=row["not_before"],
        needs=tuple(needs),
        **json.loads(row["settings"]),
    )
    return Task(
        spec=spec,
        state=TaskState(row["state"]),
        fence=row["fence"],
        owner=row["owner"],
        generation=row["generation"],
        base_commit=row["base_commit"],
        branch=row["branch"],
        resume_attempts=row["resume_attempts"],
        pause_reason=PauseReason(row["pause_reason"]) if row["pause_reason"] else None,
        session_id=row["session_id"],
        fresh=bool(row["fresh"]),
    )


def run(row: Row) -> Run:
    return Run(
        id=row["id"],
        task_id=row["task_id"],
        number=row["number"],
        state=RunState(row["state"]),
        stop_why=StopWhy(row["stop_why"]) if row["stop_why"] else None,
        outcome=row["outcome"],
        reason=row["reason"],
    )


def workspace(row: Row) -> Workspace:
    return Workspace(
        id=row["id"],
        task_id=row["task_id"],
        repo_id=row["repo_id"],
        strategy=Strategy(row["strategy"]),
        path=row["path"],
        branch=row["branch"],
        base_commit=row["base_commit"],
        state=WorkspaceState(row["state"]),
        disposition=row["disposition"],
        failures=row["failures"],
        reason=row["reason"],
    )


def repo(row: Row) -> Repo:
    return Repo(id=row["id"], path=row["path"], common_dir=row["common_dir"])


def request(row: Row) -> Request:
    return Request(
        id=row["id"],
        kind=RequestKind(row["kind"]),
        task_id=row["task_id"],
        by=row["by"],
        at=row["at"],
        why=row["why"],
        data=json.loads(row["data"]),
    )


def spend(row: Row) -> Spend:
    return Spend(
        budget=Budget(row["budget"]),
        at=Instant(wall=row["wall"], boottime=row["boottime"], boot_id=row["boot_id"]),
    )
