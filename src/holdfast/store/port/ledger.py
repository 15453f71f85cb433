"""What the store says about everything that a look at the disk has found: read through views, so that a supervisor and
a command that only looks get the same answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.base.stored_json import understood
from holdfast.core.cleanup.observed import Holding, KnownTask, Ledger, Scene
from holdfast.core.model import Strategy, Workspace
from holdfast.core.states import TaskState, WorkspaceState

View = Callable[..., list[dict[str, Any]]]


@understood
def read_ledger(view: View, scene: Scene) -> Ledger:
    """After the look: whoever finished something in between has said so here by now."""
    known = view("sweep_tasks", ids=json.dumps(sorted(scene.tasks())))
    return Ledger(
        holdings=tuple(
            Holding(workspace=workspace_of(row), task_state=TaskState(row["task_state"]))
            for row in view("sweep_holdings")
        ),
        tasks={
            row["id"]: KnownTask(state=TaskState(row["state"]), branch=row["branch"], base_commit=row["base_commit"])
            for row in known
        },
        open_runs=frozenset(row["id"] for row in view("sweep_runs")),
    )


def fates(view: View, workspaces: Iterable[str]) -> list[dict[str, Any]]:
    """What has become of them: id, state, failures, reason, path."""
    return view("sweep_fates", ids=json.dumps(sorted(workspaces)))


@understood
def workspace_of(row: dict[str, Any]) -> Workspace:
    """A row of `workspaces`, whoever read it."""
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
        expires_at=row["expires_at"],
        container=row["container"],
        member=row["member"],
    )
