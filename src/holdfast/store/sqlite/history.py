"""Forgetting old history, a bounded piece per transaction; what may go is decided in the transaction it goes in."""

from __future__ import annotations

import json
from collections.abc import Sequence

import apsw

from holdfast import faults
from holdfast.store.port import EventWindow, OldTask
from holdfast.store.sqlite.cursor import Cursor

_OF_A_TASK = ("events", "spends", "requests", "alerts", "needs", "runs", "workspaces")  # in an order that keys allow
_SMALL = ("drop_requests", "drop_alerts", "drop_hosts")


class SqliteHistory:
    def __init__(self, connection: apsw.Connection) -> None:
        self._sql = Cursor(connection, "history")

    def drop_events(self, after: int, before: float, limit: int) -> EventWindow:
        row = self._sql.row("window", after=after, limit=limit)
        if row is None or row["last"] is None or row["oldest"] >= before:
            return EventWindow(last=None, dropped=0)
        dropped = self._sql.change("drop_events", after=after, last=row["last"], before=before)
        if dropped:
            faults.tx("history.events")
        return EventWindow(last=int(row["last"]), dropped=dropped)

    def finished_runs(self, run_ids: Sequence[str], before: float) -> Sequence[str]:
        return [str(row["id"]) for row in self._sql.rows("finished_runs", ids=json.dumps(list(run_ids)), before=before)]

    def forgettable(self, below: int, before: float, limit: int) -> tuple[Sequence[OldTask], int | None]:
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
        """Looked at again: since it was found, somebody may have asked for it to run again."""
        found = self._sql.rows("forgettable", below=task.seq + 1, before=before, limit=1)
        if [row["id"] for row in found] != [task.id]:
            return False
        for what in _OF_A_TASK:
            self._sql.change(f"forget_{what}_of", id=task.id)
        self._sql.change("forget_task", id=task.id)
        faults.tx("history.task")
        return True

    def drop_answered(self, before: float, limit: int) -> int:
        dropped = sum(self._sql.change(name, before=before, limit=limit) for name in _SMALL)
        if dropped:
            faults.tx("history.small")
        return dropped
