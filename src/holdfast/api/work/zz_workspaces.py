"""Workspaces as people handle them: listed with their sizes, kept for longer, let go."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from holdfast.api.commands import who
from holdfast.api.queries import Queries, Row
from holdfast.api.work.work import size_of
from holdfast.base import clock
from holdfast.base.errors import Conflict
from holdfast.core.states import TASK_TERMINAL, WorkspaceState
from holdfast.store import doorbell
from holdfast.store.open import open_store


def listing(queries: Queries, *, everything: bool) -> list[Row]:
    """One row per workspace; `size` is None where there is nothing of ours on disk."""
    rows = queries.workspaces(everything=everything)
    for row in rows:
        is_ours = row["strategy"] != "none" and row["state"] in ("ready", "preserved")
        row["size"] = size_of(row["path"]) if is_ours and os.path.isdir(row["path"]) else None
    return rows


def preserved(queries: Queries) -> list[Row]:
    """What `clean --all-preserved` would drop."""
    ended = {str(state) for state in TASK_TERMINAL}
    rows = queries.workspaces()
    return [
        row
        for row in rows
        if row["state"] == "preserved" and row["disposition"] != "salvage" and row["task_state"] in ended
    ]


def clean(home: str, task_ids: Sequence[str]) -> None:
    """Let go of preserved workspaces, all or none; their work is salvaged first."""

    def dispose(tx: Any) -> None:
        for task_id in task_ids:
            task = tx.tasks.get(task_id)
            if task.state not in TASK_TERMINAL:
                raise Conflict(f"Task {task_id} is {task.state} and needs its workspace. Nothing was changed.")
            preserved = [one for one in tx.workspaces.all_current(task_id) if one.state is WorkspaceState.PRESERVED]
            if not preserved:
                raise Conflict(
                    f"Task {task_id} has no preserved workspace. `holdfast workspaces` lists what there is. "
                    "Nothing was changed."
                )
            for workspace in preserved:
                tx.workspaces.dispose(workspace, "salvage", f"dropped by {who()} (operator)", clock.now())

    open_store(home, create=False).write(dispose)
    doorbell.ring(home)


def keep(home: str, task_id: str, ttl: float) -> Row:
    """Keep a workspace for `ttl` seconds (`inf`: until it is dropped), from now or from its task's end on."""
    store = open_store(home, create=False)
    kept = store.write(lambda tx: tx.keeps.keep(task_id, ttl, who(), clock.now()))
    doorbell.ring(home)
    return {
        "task": task_id,
        "path": None if kept is None else kept.path,
        "state": None if kept is None else str(kept.state),
        "expires_at": None if kept is None else kept.expires_at,
    }
