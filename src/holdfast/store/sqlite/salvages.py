"""Salvaged work that is dropped: marked first, with its event. The row is deleted when its commit is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict, NotFound
from holdfast.base.instant import Instant
from holdfast.core.model import Event
from holdfast.core.states import TASK_TERMINAL
from holdfast.store.port.workspaces import DroppedSalvage
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.events import SqliteEvents


class SqliteSalvages:
    """The SQLite adapter of `Salvages`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "salvages")
        self._events = events

    def expire(self, before: float, limit: int, now: Instant) -> int:
        found = self._sql.rows("expired", before=before, limit=limit)
        for row in found:
            self._drop(row, "it was kept for as long as `salvage.keep` requires", now)
        return len(found)

    def drop(self, ids: Sequence[str], by: str, now: Instant) -> None:
        for salvage_id in ids:
            row = self._sql.row("get", id=salvage_id)
            if row is None:
                raise NotFound(f"Salvage {salvage_id} is gone already. Nothing was changed.")
            if row["task_state"] not in {str(state) for state in TASK_TERMINAL}:
                raise Conflict(
                    f"Task {row['task_id']} is {row['task_state']} and may continue with salvage {salvage_id}. "
                    "Nothing was changed."
                )
            self._drop(row, f"dropped by {by}", now)

    def _drop(self, row: dict[str, Any], reason: str, now: Instant) -> None:
        self._sql.change("drop", id=row["id"], reason=reason)
        faults.tx("salvage.drop")
        self._events.emit(
            Event(
                kind="salvage.dropped",
                component="retention",
                task_id=row["task_id"],
                message=f"Salvage {row['id']} ({row['files']} file(s) of task {row['task_id']}) is dropped: {reason}.",
                reason=reason,
                data={"salvage": row["id"], "commit": row["commit_id"], "ref": row["ref"], "files": row["files"]},
            ),
            now,
        )

    def dropped(self) -> Sequence[DroppedSalvage]:
        return [
            DroppedSalvage(id=row["id"], repo_id=row["repo_id"], ref=row["ref"], commit=row["commit_id"])
            for row in self._sql.rows("dropped")
        ]

    def forget(self, gone: Sequence[DroppedSalvage]) -> None:
        for one in gone:
            self._sql.change("forget", id=one.id, commit=one.commit)
        faults.tx("salvage.forget")
