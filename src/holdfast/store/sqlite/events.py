"""Events and alerts: appended in the transaction of the change that they tell of."""

from __future__ import annotations

import apsw

from holdfast import faults
from holdfast.core.model import Event, Instant, Level
from holdfast.errors import NotFound
from holdfast.store.port import stuck_alert, unended_alert
from holdfast.store.sqlite.cursor import Cursor
from holdfast.store.sqlite.rows import encode


class SqliteEvents:
    def __init__(self, connection: apsw.Connection) -> None:
        self._sql = Cursor(connection, "hosts")

    def emit(self, event: Event, now: Instant) -> None:
        self._sql.put(
            "emit",
            (
                now.wall,
                str(event.level),
                event.component,
                event.kind,
                event.task_id,
                event.run_id,
                event.message,
                event.reason,
                encode(dict(event.data)) if event.data else "{}",
            ),
        )

    def raise_alert(
        self,
        key: str,
        message: str,
        remedy: str,
        now: Instant,
        task_id: str | None = None,
        level: Level = Level.CRITICAL,
    ) -> None:
        row = self._sql.row(
            "raise_alert",
            key=key,
            now=now.wall,
            level=str(level),
            task_id=task_id,
            message=message,
            remedy=remedy,
        )
        faults.tx("alert.raise")
        if row is not None and row["count"] == 1:
            self.emit(
                Event(
                    kind="alert.raised",
                    level=level,
                    component="alerts",
                    task_id=task_id,
                    message=f"{message} {remedy}",
                    reason=key,
                ),
                now,
            )

    def ack_alert(self, alert_id: int, by: str, now: Instant) -> None:
        if self._sql.change("ack_alert", id=alert_id, by=by, now=now.wall) == 0:
            raise NotFound(f"No open alert {alert_id}. `holdfast alerts --all` lists every one.")
        faults.tx("alert.acknowledge")
        self._emit_acknowledged(alert_id, None, by, now)

    def close_alert(self, key: str, by: str, now: Instant) -> None:
        row = self._sql.row("close_alert", key=key, by=by, now=now.wall)
        faults.tx("alert.close")
        if row is not None:
            self._emit_acknowledged(row["id"], row["task_id"], by, now)

    def close_alerts_of_run(self, run_id: str, now: Instant) -> None:
        """Whether it is stuck, or does not end: that is over with the run itself."""
        by = "the run's end"
        stuck, unended = stuck_alert(run_id), unended_alert(run_id)
        closed = self._sql.rows("close_alerts_of_run", stuck=stuck, unended=unended, by=by, now=now.wall)
        faults.tx("alert.close_of_run")
        for row in closed:
            self._emit_acknowledged(row["id"], row["task_id"], by, now)

    def _emit_acknowledged(self, alert_id: int, task_id: str | None, by: str, now: Instant) -> None:
        message = f"Alert {alert_id} acknowledged by {by}."
        self.emit(Event(kind="alert.acknowledged", component="alerts", task_id=task_id, message=message), now)
