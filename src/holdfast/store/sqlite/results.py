"""The SQLite side of store/port/resulting.py."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from holdfast.base import faults
from holdfast.base.stored_json import understood
from holdfast.core.workflows.result import GateResult, Result
from holdfast.store.port.grip import Grip
from holdfast.store.sqlite.engine.statements import Cursor, Row
from holdfast.store.sqlite.fence import require_owner
from holdfast.store.sqlite.rows import decode, encode_words


class SqliteResults:
    def __init__(self, connection: apsw.Connection) -> None:
        self._sql = Cursor(connection, "results")
        self._tasks = Cursor(connection, "tasks")

    def record(self, grip: Grip, result: Result) -> Result:
        if not faults.skips("fence"):
            require_owner(self._tasks, grip)
        gate = result.gate
        changed = self._sql.change(
            "record",
            task_id=grip.task_id,
            stage=result.stage,
            stage_name=result.name,
            visit=result.visit,
            attempt=result.attempt,
            member=result.member,
            run_id=result.run_id,
            agent=result.agent,
            outcome=result.outcome,
            reason=result.reason,
            ruling=result.ruling,
            passed=int(result.passed),
            text=result.text,
            files=encode_words(list(result.files)),
            commit_id=result.commit,
            gate=None
            if gate is None
            else encode_words({"command": gate.command, "passed": gate.passed, "how": gate.how, "output": gate.output}),
            started_at=result.started_at,
            ended_at=result.ended_at,
        )
        faults.tx("result.record")
        row = self._sql.row("last", task_id=grip.task_id) if changed else self._sql.row("of_run", run_id=result.run_id)
        assert row is not None  # just written, or in the way of writing it
        return _result(row)

    def of_task(self, task_id: str) -> Sequence[Result]:
        return [_result(row) for row in self._sql.rows("of_task", task_id=task_id)]


@understood
def _result(row: Row) -> Result:
    return Result(
        number=row["number"],
        stage=row["stage"],
        name=row["name"],
        visit=row["visit"],
        attempt=row["attempt"],
        member=row["member"],
        run_id=row["run_id"],
        agent=row["agent"],
        outcome=row["outcome"],
        reason=row["reason"],
        ruling=row["ruling"],
        passed=bool(row["passed"]),
        text=row["text"],
        files=tuple(decode(row["files"])),
        commit=row["commit_id"],
        gate=None if row["gate"] is None else GateResult(**decode(row["gate"])),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )
