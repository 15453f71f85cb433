"""Task lists in the store: each key of a repository becomes a task once. The SQLite side of `Intake`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw

from holdfast.base import faults
from holdfast.base.instant import Instant
from holdfast.core.tasks.task_lists import Known
from holdfast.store.sqlite.engine.statements import Cursor
from holdfast.store.sqlite.fence import refusing_duplicates
from holdfast.store.sqlite.rows import encode


class SqliteIntake:
    """The SQLite adapter of `Intake`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._sql = Cursor(connection, "intake")

    def known(self, repo_id: str, keys: Sequence[str]) -> Mapping[str, Known]:
        rows = self._sql.rows("known", repo_id=repo_id, keys=encode(list(keys)))
        return {str(row["key"]): Known(task_id=str(row["task_id"]), state=row["state"]) for row in rows}

    def take(self, repo_id: str, key: str, task_id: str, now: Instant) -> None:
        with refusing_duplicates(f"The key {key} was taken in before; nothing was added."):
            self._sql.change("take", repo_id=repo_id, key=key, task_id=task_id, now=now.wall)
        faults.tx("intake.take")
