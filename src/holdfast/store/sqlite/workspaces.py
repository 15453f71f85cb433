"""The workspaces facet: the ledger of workspaces, the repositories, and what was salvaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict, NotFound, StillCleaning
from holdfast.base.ids import new_id
from holdfast.base.instant import Instant
from holdfast.base.stored_json import stored_data_errors
from holdfast.core.model import Event, Level, Repo, TaskSpec, Workspace
from holdfast.core.runs.preserve import Disposition, resolve_disposition
from holdfast.core.states import TaskState, WorkspaceState, is_legal_move
from holdfast.store.port.transaction import Ownership, Salvaged
from holdfast.store.port.values import unsaved_alert
from holdfast.store.port.workspaces import workspace_from_row
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.engine.fence import conflict_on_duplicate, not_owner, require_owner
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.events import SqliteEvents

_EVENT_OF = {
    WorkspaceState.READY: "workspace.created",
    WorkspaceState.PRESERVED: "workspace.preserved",
    WorkspaceState.TRASHED: "workspace.trashed",
    WorkspaceState.GONE: "workspace.gone",
}


class SqliteWorkspaces:
    """The SQLite adapter of `Workspaces`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "workspaces")
        self._tasks = Statements(connection, "tasks")
        self._events = events

    # -- repos ---------------------------------------------------------------------------------------------------

    def register_repo(self, path: str, common_dir: str, now: Instant) -> Repo:
        self._sql.change("add_repo", id=new_id(8), path=path, common_dir=common_dir, now=now.wall)
        faults.tx("repo.register")
        row = self._sql.row("repo_by_path", path=path)
        assert row is not None  # just written, in this transaction
        return rows.repo_from_row(row)

    def move_repo(self, old: str, path: str, common_dir: str) -> Repo:
        """Record that the repository known at `old` is now at `path`. Everything that belongs to the repository moves
        with it."""
        with conflict_on_duplicate(f"The repository {path} is known already; its tasks and those of {old} stay apart."):
            self._sql.change("forget_unused_repo", path=path)  # `holdfast init` was run in the new place first
            if self._sql.change("move_repo", old=old, path=path, common_dir=common_dir) == 0:
                raise NotFound(f"No repository is known at {old}. `holdfast doctor` lists those that are.")
        self._sql.change("move_words", old=old, path=path)
        faults.tx("repo.move")
        row = self._sql.row("repo_by_path", path=path)
        assert row is not None  # just written, in this transaction
        return rows.repo_from_row(row)

    def repo(self, repo_id: str) -> Repo:
        row = self._sql.row("repo", id=repo_id)
        if row is None:
            raise NotFound(f"The store has no repository {repo_id}: it may be damaged. `holdfast doctor` checks it.")
        return rows.repo_from_row(row)

    def repos(self) -> Sequence[Repo]:
        return [rows.repo_from_row(row) for row in self._sql.rows("repos")]

    # -- ledger --------------------------------------------------------------------------------------------------

    def intend(self, ownership: Ownership, workspace: Workspace, now: Instant) -> None:
        self._require_owner(ownership, workspace)
        self._record_intent(workspace, now)

    def _record_intent(self, workspace: Workspace, now: Instant) -> None:
        with conflict_on_duplicate(f"Task {workspace.task_id} has a workspace already; a second one is refused."):
            self._sql.change(
                "intend",
                id=workspace.id,
                task_id=workspace.task_id,
                repo_id=workspace.repo_id,
                strategy=str(workspace.strategy),
                path=workspace.path,
                branch=workspace.branch,
                base_commit=workspace.base_commit,
                member=workspace.member,
                now=now.wall,
            )
        faults.tx("workspace.intend")

    def get(self, workspace_id: str) -> Workspace:
        row = self._sql.row("get", id=workspace_id)
        if row is None:
            raise NotFound(f"Workspace not found: {workspace_id}")
        return workspace_from_row(row)

    def current(self, task_id: str, member: str = "") -> Workspace | None:
        row = self._sql.row("current", task_id=task_id, member=member)
        return workspace_from_row(row) if row else None

    def all_current(self, task_id: str) -> Sequence[Workspace]:
        return [workspace_from_row(row) for row in self._sql.rows("all_current", task_id=task_id)]

    def branches_of(self, task_id: str, member: str) -> Sequence[str | None]:
        return [row["branch"] for row in self._sql.rows("branches_of", task_id=task_id, member=member)]

    def not_gone(self) -> Sequence[Workspace]:
        return [workspace_from_row(row) for row in self._sql.rows("open")]

    def to_clean(self, now: Instant) -> Sequence[Workspace]:
        return [workspace_from_row(row) for row in self._sql.rows("to_clean", now=now.wall)]

    def next_retry_time(self, now: Instant) -> float | None:
        value = self._sql.value("next_retry", now=now.wall)
        return None if value is None else float(value)

    def make_cleanups_due(self) -> None:
        self._sql.change("retry_at_once")
        faults.tx("workspace.retry_at_once")

    def move(
        self,
        workspace: Workspace,
        state: WorkspaceState,
        reason: str,
        now: Instant,
        details: Mapping[str, object] | None = None,
    ) -> Workspace:
        if not is_legal_move(workspace.state, state):
            raise Conflict(f"A workspace cannot go from {workspace.state} to {state}.")
        changed = self._sql.change(
            "move",
            id=workspace.id,
            state=str(state),
            expected=str(workspace.state),
            reason=reason,
            now=now.wall,
        )
        if changed == 0:
            raise Conflict(f"Workspace {workspace.id} is no longer {workspace.state}.")
        faults.tx("workspace.move")
        self._events.emit(
            Event(
                kind=_EVENT_OF[state],
                component="workspace-cleanup" if state is not WorkspaceState.READY else "workspaces",
                task_id=workspace.task_id,
                message=f"Workspace {workspace.path} is {state}: {reason}.",
                reason=reason,
                data={
                    "workspace": workspace.id,
                    "strategy": str(workspace.strategy),
                    "path": workspace.path,
                    "branch": workspace.branch,
                    **(details or {}),
                },
            ),
            now,
        )
        if state is WorkspaceState.GONE:  # an alert may be open that its work could not be saved
            self._events.close_alert(unsaved_alert(workspace.id), "its workspace: it was removed", now)
        return self.get(workspace.id)

    def take_in(self, workspace: Workspace, reason: str, now: Instant) -> Workspace:
        if self._sql.row("get", id=workspace.id) is not None:
            workspace = replace(workspace, id=new_id())
        self._record_intent(workspace, now)
        return self.move(workspace, WorkspaceState.READY, reason, now)

    def ready(self, ownership: Ownership, workspace: Workspace, reason: str, now: Instant) -> Workspace:
        self._require_owner(ownership, workspace)
        self._tasks.change("fresh_start_made", id=ownership.task_id)
        faults.tx("workspace.ready")
        return self.move(workspace, WorkspaceState.READY, reason, now)

    def record_container(self, ownership: Ownership, workspace: Workspace, container: str) -> None:
        self._require_owner(ownership, workspace)
        self._sql.change("enclosed", id=workspace.id, container=container)
        faults.tx("workspace.enclosed")

    def _require_owner(self, ownership: Ownership, workspace: Workspace) -> None:
        require_owner(self._tasks, ownership)
        if workspace.task_id != ownership.task_id:
            raise not_owner(ownership)

    def dispose(self, workspace: Workspace, disposition: str, reason: str, now: Instant) -> None:
        self._sql.change("dispose", id=workspace.id, disposition=disposition, reason=reason, now=now.wall)
        faults.tx("workspace.dispose")

    def dispose_of_task(self, task_id: str, disposition: Disposition, now: Instant) -> None:
        """Record what is to happen to a finished task's workspaces. The clean-up service carries it out."""
        word = "preserve" if disposition.preserve else "clean"
        if self._sql.change(
            "dispose_of_task", task_id=task_id, disposition=word, reason=str(disposition), now=now.wall
        ):
            faults.tx("workspace.dispose_of_task")

    def dispose_waiting_task(self, spec: TaskSpec, ending: TaskState, now: Instant) -> None:
        """Decide what happens to the workspaces of a task that ended while it waited. Its work is not saved yet, so
        the clean-up salvages it first."""
        disposition = resolve_disposition(spec, ending)
        word = "preserve" if disposition.preserve else "salvage"
        for workspace in self.all_current(spec.id):
            self.dispose(workspace, word, str(disposition), now)

    def refuse_while_cleaning(self, task_id: str) -> None:
        """Raise Conflict while a workspace of the task's last attempt is still being removed. A retry needs that path
        and branch free, and the work saved."""
        for workspace in self.all_current(task_id):
            if workspace.state is WorkspaceState.PRESERVED and workspace.disposition != "salvage":
                continue
            raise StillCleaning(
                f"The workspace of task {task_id} is still being removed ({workspace.path}). "
                "Try again in a moment; a supervisor must be running: `holdfast up`."
            )

    def record_cleanup_failure(self, workspace: Workspace, why: str, retry_at: float, now: Instant) -> int:
        failures = int(self._sql.value("cleanup_failed", id=workspace.id, reason=why, retry_at=retry_at, now=now.wall))
        faults.tx("workspace.cleanup_failed")
        self._events.emit(
            Event(
                kind="workspace.cleanup-failed",
                level=Level.WARNING,
                component="workspace-cleanup",
                task_id=workspace.task_id,
                message=f"Workspace {workspace.path} was not removed: {why or 'unknown error'}. It is tried again.",
                reason=why or "unknown error",
                data={"workspace": workspace.id, "failures": failures, "retry_at": retry_at},
            ),
            now,
        )
        return failures

    # -- salvage -------------------------------------------------------------------------------------------------

    def record_salvage(self, workspace: Workspace, salvaged: Salvaged, now: Instant) -> None:
        self._sql.change(
            "add_salvage",
            id=salvaged.id,
            task_id=workspace.task_id,
            repo_id=workspace.repo_id,
            workspace_id=workspace.id,
            ref=salvaged.ref,
            commit_id=salvaged.commit,
            base=salvaged.base,
            files=salvaged.files,
            reason=salvaged.reason,
            partial=int(salvaged.partial),
            details=rows.encode_redacted(dict(salvaged.details)),
            now=now.wall,
        )
        faults.tx("workspace.salvaged")
        self._events.emit(
            Event(
                kind="workspace.salvaged",
                component="workspace-cleanup",
                task_id=workspace.task_id,
                message=(
                    f"Saved {salvaged.files} changed file(s) of task {workspace.task_id}; "
                    f"get them back with `holdfast salvage restore {workspace.task_id} --branch NAME`."
                ),
                reason=salvaged.reason,
                data={"commit": salvaged.commit, "ref": salvaged.ref, "files": salvaged.files},
            ),
            now,
        )

    @stored_data_errors
    def last_salvage(self, task_id: str) -> Salvaged | None:
        row = self._sql.row("last_salvage", task_id=task_id)
        if row is None:
            return None
        return Salvaged(
            id=row["id"],
            ref=row["ref"],
            commit=row["commit_id"],
            base=row["base"],
            files=row["files"],
            reason=row["reason"],
            partial=bool(row["partial"]),
            details=rows.decode(row["details"]),
        )
