"""Preserved workspaces: why they stay, until when, and who pinned them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict
from holdfast.base.instant import Instant
from holdfast.base.units import show_duration
from holdfast.core.model import Event, Task, Workspace
from holdfast.core.runs.preserve import RETRY_TIER, Disposition
from holdfast.core.states import TASK_TERMINAL, TaskState, WorkspaceState, is_legal_move
from holdfast.store.port.workspaces import workspace_from_row
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.workspaces import SqliteWorkspaces

COMPONENT = "workspace-cleanup"


class SqlitePreservedWorkspaces:
    """The SQLite adapter of `PreservedWorkspaces`. `get`: the function that reads a task."""

    def __init__(
        self,
        connection: apsw.Connection,
        events: SqliteEvents,
        workspaces: SqliteWorkspaces,
        get: Callable[[str], Task],
    ) -> None:
        self._sql = Statements(connection, "workspaces")
        self._tasks = Statements(connection, "tasks")
        self._events = events
        self._workspaces = workspaces
        self._get = get

    def preserve(
        self, workspace: Workspace, decided: Disposition, ending: TaskState, ttl: float, now: Instant
    ) -> Workspace:
        if not is_legal_move(workspace.state, WorkspaceState.PRESERVED):
            raise Conflict(f"A workspace cannot go from {workspace.state} to {WorkspaceState.PRESERVED}.")
        expires_at = None if decided.tier in ("safety", RETRY_TIER) or ttl == math.inf else now.wall + ttl
        changed = self._sql.change(
            "preserve",
            id=workspace.id,
            expected=str(workspace.state),
            reason=str(decided),
            expires_at=expires_at,
            now=now.wall,
        )
        if changed == 0:
            raise Conflict(f"Workspace {workspace.id} is no longer {workspace.state}.")
        faults.tx("workspace.preserve")
        self._tell(
            "workspace.preserved",
            workspace,
            f"{_preserved_message(workspace, decided, ending)}; open it with `holdfast shell {workspace.task_id}`, "
            f"drop it with `holdfast workspaces clean {workspace.task_id}`"
            + ("." if expires_at is None else f"; it is salvaged and removed in {show_duration(ttl)}."),
            decided.reason,
            now,
            tier=decided.tier,
            expires_at=expires_at,
        )
        return self._workspaces.get(workspace.id)

    def stays(self, workspace: Workspace, why: str, now: Instant) -> None:
        self._sql.change("stays", id=workspace.id, reason=f"{why} (safety)", now=now.wall)
        faults.tx("workspace.stays")

    def save_later(self, workspace: Workspace, why: str, retry_at: float, now: Instant) -> None:
        self._sql.change("save_later", id=workspace.id, reason=f"{why} ({RETRY_TIER})", retry_at=retry_at, now=now.wall)
        faults.tx("workspace.save_later")

    def keep(self, task_id: str, ttl: float, by: str, now: Instant) -> Workspace | None:
        task = self._get(task_id)
        if task.state not in TASK_TERMINAL:
            rules = replace(task.spec.workspace, preserve_ttl=ttl)
            spec = replace(task.spec, keep_workspace=True, workspace=rules)
            self._tasks.change("set_settings", id=task_id, settings=rows.encode_settings(spec))
            faults.tx("task.keep")
            self._emit_pinned(task_id, None, ttl, by, now)
            return self._workspaces.current(task_id)
        there = self._workspaces.all_current(task_id)  # the task's own first, then those of members
        if not there:
            raise Conflict(
                f"Task {task_id} has no workspace any more; `holdfast why {task_id}` shows where its work is."
            )
        expires_at = None if ttl == math.inf else now.wall + ttl
        how = {"expires_at": expires_at, "reason": f"kept by {by} (operator)", "now": now.wall}
        kept = [workspace for workspace in there if self._sql.change("keep", id=workspace.id, **how)]
        if kept:
            faults.tx("workspace.keep")
            self._emit_pinned(task_id, kept[0], ttl, by, now)
            return self._workspaces.get(kept[0].id)
        raise Conflict(
            f"The workspace of task {task_id} is being removed right now; its work is saved. After that, `holdfast "
            f"retry {task_id}` makes a new workspace with the saved work."
        )

    def expired(self, now: Instant, shown: Callable[[float], float]) -> Sequence[Workspace]:
        rows = self._sql.rows("expired", now=now.wall)
        return [workspace_from_row(row) for row in rows if row["expires_at"] <= shown(row["updated_at"])]

    def restart_expiry_timers(self, now: Instant) -> None:
        self._sql.change("expire_from_now", now=now.wall)
        faults.tx("workspace.expire_from_now")

    def expire(self, workspace: Workspace, now: Instant) -> bool:
        reason = "it was preserved for as long as its task's `workspace.preserve_ttl` says, or `holdfast keep` did"
        if self._sql.change("expire", id=workspace.id, reason=f"{reason} (expiry)", now=now.wall) == 0:
            return False  # the workspace was kept, retried or dropped since
        faults.tx("workspace.expire")
        self._tell(
            "workspace.expired",
            workspace,
            f"The preserved workspace {workspace.path} of task {workspace.task_id} has expired: its work is saved, "
            "then it is removed.",
            reason,
            now,
            expires_at=workspace.expires_at,
        )
        return True

    def next_expiry(self) -> float | None:
        value = self._sql.value("next_expiry")
        return None if value is None else float(value)

    def postpone(self, workspace: Workspace, why: str, retry_at: float, now: Instant, *, tell: bool) -> None:
        self._sql.change("postpone", id=workspace.id, retry_at=retry_at)
        faults.tx("workspace.postpone")
        if tell:
            self._tell(
                "workspace.in-use",
                workspace,
                f"The workspace {workspace.path} of task {workspace.task_id} is not removed yet, because it is used "
                f"by {why}. It is removed when that is over.",
                why,
                now,
            )

    def freed(self, task_id: str) -> None:
        self._sql.change("freed", task_id=task_id)
        faults.tx("workspace.freed")

    def running_subtasks(self, task_id: str) -> Sequence[str]:
        return [str(row["id"]) for row in self._sql.rows("running_subtasks", task_id=task_id)]

    def _emit_pinned(self, task_id: str, workspace: Workspace | None, ttl: float, by: str, now: Instant) -> None:
        how_long = "until somebody drops it" if ttl == math.inf else f"for {show_duration(ttl)}"
        since = "from its end on" if workspace is None else "from now on"
        self._events.emit(
            Event(
                kind="workspace.pinned",
                component=COMPONENT,
                task_id=task_id,
                message=f"The workspace of task {task_id} is kept {how_long}, {since}; asked for by {by}.",
                reason=f"kept by {by}",
                data={"ttl": None if ttl == math.inf else ttl},
            ),
            now,
        )

    def _tell(self, kind: str, workspace: Workspace, message: str, reason: str, now: Instant, **data: object) -> None:
        self._events.emit(
            Event(
                kind=kind,
                component=COMPONENT,
                task_id=workspace.task_id,
                message=message,
                reason=reason,
                data={
                    "workspace": workspace.id,
                    "strategy": str(workspace.strategy),
                    "container": workspace.container,
                    "path": workspace.path,
                    "branch": workspace.branch,
                    **data,
                },
            ),
            now,
        )


def _preserved_message(workspace: Workspace, decided: Disposition, ending: TaskState) -> str:
    """Return the sentence that R-CLEAN-04 prescribes, word for word."""
    container = f", container {workspace.container[:12]}" if workspace.container else ""
    return (
        f"Preserving workspace of {ending} task {workspace.task_id}: strategy {workspace.strategy}{container}, "
        f"path {workspace.path}, because {decided.reason} (decided by: {decided.tier})"
    )
