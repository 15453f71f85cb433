"""Deletion of old history, a bounded piece per transaction. Each piece is chosen in the transaction that deletes it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict
from holdfast.base.instant import Instant
from holdfast.core.model import Event, Repo
from holdfast.store.port.history import EventWindow, OldTask, RepoRecords
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.events import SqliteEvents

_OF_A_TASK = (
    "deaths",
    "events",
    "going_back",
    "checkpoints",
    "spends",
    "requests",
    "alerts",
    "needs",
    "links",
    "worker_crashes",
    "results",
    "messages",
    "runs",
    "workspaces",
)  # in an order that the foreign keys allow
_SMALL = ("drop_requests", "drop_alerts", "drop_hosts", "drop_usage")


class SqliteOldRecords:
    """The SQLite adapter of `OldRecords`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "retention")
        self._events = events

    def drop_events(self, after: int, before: float, limit: int) -> EventWindow:
        row = self._sql.row("window", after=after, limit=limit)
        if row is None or row["last"] is None or row["oldest"] >= before:
            return EventWindow(last=None, dropped=0)
        dropped = self._sql.change("drop_events", after=after, last=row["last"], before=before)
        if dropped:
            faults.tx("history.events")
        return EventWindow(last=int(row["last"]), dropped=dropped)

    def filter_finished_runs(self, run_ids: Sequence[str], before: float) -> Sequence[str]:
        return [str(row["id"]) for row in self._sql.rows("finished_runs", ids=json.dumps(list(run_ids)), before=before)]

    def find_old_tasks(self, below: int, before: float, limit: int) -> tuple[Sequence[OldTask], int | None]:
        lowest = self._sql.value("lowest", below=below, limit=limit)
        found = [
            OldTask(
                id=str(row["id"]),
                seq=int(row["seq"]),
                runs=tuple(str(run["id"]) for run in self._sql.rows("runs_of", id=row["id"])),
            )
            for row in self._sql.rows("forgettable", below=below, before=before, limit=limit)
        ]
        return found, None if lowest is None else int(lowest)

    def forget_task(self, task: OldTask, before: float) -> bool:
        """Delete the task if it may still be forgotten. The task is checked again, because an operator may have retried
        it since it was found."""
        found = self._sql.rows("forgettable", below=task.seq + 1, before=before, limit=1)
        if [row["id"] for row in found] != [task.id]:
            return False
        self._forget_task(task.id)
        faults.tx("history.task")
        return True

    def records_of_repo(self, repo_id: str) -> RepoRecords:
        return RepoRecords(
            runs=tuple(str(row["id"]) for row in self._sql.rows("runs_of_repo", repo=repo_id)),
            workspaces=tuple(str(row["id"]) for row in self._sql.rows("workspaces_of_repo", repo=repo_id)),
        )

    def refuse_unfinished(self, repo: Repo) -> None:
        waiting = self._sql.row("waiting_for_repo", repo=repo.id)
        if waiting is not None:
            raise Conflict(f"Task {waiting['id']} is unfinished and needs {repo.path}. Cancel it first.")

    def forget_repo(self, repo: Repo, now: Instant) -> None:
        self.refuse_unfinished(repo)
        self._sql.change("loosen_children_of_repo", repo=repo.id)
        self._sql.change("loosen_needs_of_repo", repo=repo.id)
        tasks = self._sql.rows("tasks_of_repo", repo=repo.id)
        self._sql.change("forget_salvages_of_repo", repo=repo.id)
        for row in tasks:
            self._sql.change("forget_crashes_of", id=row["id"])
            self._forget_task(str(row["id"]))
        self._sql.change("forget_links_of_repo", repo=repo.id)
        self._sql.change("forget_tracker_of_repo", repo=repo.id)
        self._sql.change("forget_intake_of_repo", repo=repo.id)
        for table in ("schedules", "occurrences", "spans"):
            self._sql.change(f"forget_{table}_of_repo", path=repo.path)
        self._sql.change("forget_repo", repo=repo.id)
        faults.tx("history.repo")
        self._events.emit(
            Event(
                kind="repo.forgotten",
                component="upkeep",
                message=f"The repository {repo.path} was forgotten with {len(tasks)} finished task(s).",
                data={"path": repo.path, "tasks": len(tasks)},
            ),
            now,
        )

    def _forget_task(self, task_id: str) -> None:
        self._sql.change("total_runs_of", id=task_id)
        for what in _OF_A_TASK:
            self._sql.change(f"forget_{what}_of", id=task_id)
        self._sql.change("forget_task", id=task_id)

    def drop_small_records(self, before: float, limit: int) -> int:
        dropped = sum(self._sql.change(name, before=before, limit=limit) for name in _SMALL)
        if dropped:
            faults.tx("history.small")
        return dropped
