"""Leases of supervisors, and requests of operators."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import apsw

from holdfast.base import faults
from holdfast.base.errors import LeaseLost, NotFound
from holdfast.base.instant import Instant
from holdfast.core.model import Event, Level, Request, RequestKind
from holdfast.core.tasks.requests import RequestAnswer, RequestResult, StopCause
from holdfast.store.port.transaction import Host
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.events import SqliteEvents


class SqliteHosts:
    """The SQLite adapter of `Hosts`: one lease per supervisor, not per task. Each heartbeat renews the lease with a
    change of one row, however many agents run."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "hosts")
        self._events = events

    def open(self, host: Host, ttl: float, now: Instant) -> Sequence[str]:
        self._sql.change("drop_old_downs", answer=RequestAnswer(RequestResult.SUPERVISOR_GONE).text, now=now.wall)
        lost = self._sql.rows("lose_others", id=host.id, now=now.wall)
        for row in lost:
            self._events.emit(
                Event(
                    kind="host.lost",
                    level=Level.WARNING,
                    message=f"Supervisor {row['id']} (pid {row['pid']}) died; its tasks are taken over.",
                    data={"host": row["id"], "pid": row["pid"]},
                ),
                now,
            )
        self._sql.change(
            "open",
            id=host.id,
            boot_id=host.boot_id,
            pid=host.pid,
            start_ticks=host.start_ticks,
            version=host.version,
            agents=host.agents,
            lease_until=now.boottime + ttl,
            now=now.wall,
        )
        faults.tx("host.open")
        self._events.emit(
            Event(
                kind="host.started",
                message=f"Supervisor {host.id} started (pid {host.pid}, {host.agents} agents at once).",
                data={"host": host.id, "pid": host.pid},
            ),
            now,
        )
        return [str(row["id"]) for row in lost]

    def beat(self, host_id: str, ttl: float, now: Instant) -> None:
        if self._sql.change("beat", id=host_id, lease_until=now.boottime + ttl) == 0:
            raise LeaseLost(f"Supervisor {host_id} was declared lost; it must not act any more.")
        faults.tx("host.beat")

    def require_active(self, host_id: str) -> None:
        if not self._sql.value("is_active", id=host_id):
            raise LeaseLost(f"Supervisor {host_id} was declared lost; it must not act any more.")

    def hold(self, host_id: str, reason: str, data: Mapping[str, object], now: Instant, *, tell: bool) -> None:
        self._sql.change("hold", id=host_id, reason=reason)
        faults.tx("host.hold")
        if tell:
            message = f"Nothing new starts for now: {reason}."
            event = Event(kind="dispatch.held", level=Level.WARNING, message=message, reason=reason, data=data)
            self._events.emit(event, now)

    def release(self, host_id: str, why: str, now: Instant) -> None:
        if self._sql.change("release", id=host_id):
            faults.tx("host.release")
            event = Event(kind="dispatch.released", message=f"New tasks may start again: {why}.", reason=why)
            self._events.emit(event, now)

    def close(self, host_id: str, now: Instant, cause: StopCause = StopCause.DOWN) -> None:
        self.release(host_id, "the supervisor stops", now)
        self._sql.change("close", id=host_id, now=now.wall)
        faults.tx("host.close")
        self._events.emit(
            Event(
                kind="host.stopped",
                message=f"Supervisor {host_id} stopped.",
                reason=str(cause),
                data={"host": host_id, "why": str(cause)},
            ),
            now,
        )


class SqliteRequests:
    """The SQLite adapter of `RequestRows`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._sql = Statements(connection, "hosts")

    def ask(
        self,
        kind: RequestKind,
        task_id: str | None,
        by: str,
        why: str,
        data: Mapping[str, object],
        now: Instant,
    ) -> int:
        faults.tx("request.ask")
        try:
            asked = self._sql.value(
                "ask",
                kind=str(kind),
                task_id=task_id,
                by=by,
                why=why,
                data=json.dumps(dict(data)),
                now=now.wall,
            )
        except apsw.ConstraintError as error:
            raise NotFound(f"Task not found: {task_id}") from error
        return int(asked)

    def pending(self) -> Sequence[Request]:
        return [rows.request_from_row(row) for row in self._sql.rows("pending")]

    def answer(self, request_id: int, answer: RequestAnswer, now: Instant) -> None:
        self._sql.change("answer", id=request_id, answer=answer.text, now=now.wall)
        faults.tx("request.answer")
