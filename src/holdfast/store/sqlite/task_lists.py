"""Task lists in the store: each key of a repository becomes a task once. The SQLite side of `TaskListKeys`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw

from holdfast.base import faults
from holdfast.base.instant import Instant
from holdfast.core.tasks.task_lists import KnownTaskKey
from holdfast.store.sqlite.engine.fence import conflict_on_duplicate
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.rows import encode


class SqliteTaskListKeys:
    """The SQLite adapter of `TaskListKeys`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._sql = Statements(connection, "task_lists")

    def known(self, repo_id: str, keys: Sequence[str]) -> Mapping[str, KnownTaskKey]:
        rows = self._sql.rows("known", repo_id=repo_id, keys=encode(list(keys)))
        return {str(row["key"]): KnownTaskKey(task_id=str(row["task_id"]), state=row["state"]) for row in rows}

    def take(self, repo_id: str, key: str, task_id: str, now: Instant) -> None:
        with conflict_on_duplicate(f"The key {key} was taken in before; nothing was added."):
            self._sql.change("take", repo_id=repo_id, key=key, task_id=task_id, now=now.wall)
        faults.tx("intake.take")
