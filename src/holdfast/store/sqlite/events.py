"""Events and alerts, appended in the transaction of the change that they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw

from holdfast.base import faults
from holdfast.base.errors import NotFound
from holdfast.base.instant import Instant
from holdfast.base.stored_json import load_stored_json
from holdfast.base.text import one_line
from holdfast.core.model import Event, Level
from holdfast.core.runs.crashes import task_crash_alert_key
from holdfast.secrets.redact import redact_text
from holdfast.store.port.transaction import stuck_alert, unended_alert
from holdfast.store.sqlite.engine.statements import Row, Statements
from holdfast.store.sqlite.rows import encode_redacted

LONGEST_PROMPT = 160  # letters of a prompt in a notice


def short_prompt(prompt: object) -> str:
    """Return the prompt of a task as notices show it. Secrets are redacted before the text is cut, because half of a
    key is not recognized."""
    return one_line(redact_text(str(prompt or "")), LONGEST_PROMPT)


class SqliteEvents:
    """The SQLite adapter of `Events`. Changes of alerts also put notices into the outbox."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._sql = Statements(connection, "hosts")
        self._outbox = Statements(connection, "alerts")

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
                redact_text(event.message),
                None if event.reason is None else redact_text(event.reason),
                encode_redacted(dict(event.data)) if event.data else "{}",
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
        details: Mapping[str, object] | None = None,
    ) -> None:
        row = self._sql.row(
            "raise_alert",
            key=key,
            now=now.wall,
            level=str(level),
            task_id=task_id,
            message=message,
            remedy=remedy,
            details=encode_redacted(dict(details or {})),
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
            self._add_delivery(row, "raised", now)

    def ack_alert(self, alert_id: int, by: str, now: Instant, why: str = "") -> None:
        row = self._sql.row("ack_alert", id=alert_id, by=by, why=why or None, now=now.wall)
        if row is None:
            raise NotFound(f"No open alert {alert_id}. `holdfast alerts --all` lists every one.")
        faults.tx("alert.acknowledge")
        self._emit_closed(row, by, now, why, "acknowledged")

    def open_alerts(self) -> Sequence[tuple[int, Level]]:
        return [(int(row["id"]), Level(row["level"])) for row in self._sql.rows("open_alerts")]

    def close_alert(self, key: str, by: str, now: Instant) -> None:
        row = self._sql.row("close_alert", key=key, by=by, now=now.wall)
        faults.tx("alert.close")
        if row is not None:
            self._emit_closed(row, by, now)

    def close_alerts_of_run(self, run_id: str, now: Instant) -> None:
        """Close the alerts that a run is stuck or does not end, because the run is over."""
        by = "the run's end"
        stuck, unended = stuck_alert(run_id), unended_alert(run_id)
        closed = self._sql.rows("close_alerts_of_run", stuck=stuck, unended=unended, by=by, now=now.wall)
        faults.tx("alert.close_of_run")
        for row in closed:
            self._emit_closed(row, by, now)

    def close_alerts_of_task(self, task_id: str, by: str, now: Instant, *, completed: bool = False) -> None:
        """Close the alerts that a task stopped and needs a person, because the task continues or has ended."""
        closed = self._sql.rows(
            "close_alerts_of_task",
            task_id=task_id,
            crash=task_crash_alert_key(task_id),
            prefix=f"task:{task_id}:",
            completed=int(completed),
            by=by,
            now=now.wall,
        )
        faults.tx("alert.close_of_task")
        for row in closed:
            self._emit_closed(row, by, now)

    def _add_delivery(self, alert: Row, what: str, now: Instant, by: str = "", why: str = "") -> None:
        """Put a notice into the outbox, in the transaction of the change that it is about."""
        from holdfast.core.tasks.alerts import Transition, delivery_body, delivery_key  # few writers deal with alerts

        transition = Transition(what)
        key = delivery_key(alert["id"], transition, now.wall)
        told = {**alert, "task": alert["task_id"], "details": load_stored_json(alert["details"])}
        if alert["task_id"] is not None:
            told["prompt"] = short_prompt(self._outbox.value("prompt", id=alert["task_id"]))
        self._outbox.change(
            "put",
            key=key,
            alert_id=alert["id"],
            alert_key=alert["key"],
            transition=str(transition),
            level=alert["level"],
            body=encode_redacted(delivery_body(key, transition, told, now.wall, by, why)),
            now=now.wall,
        )
        faults.tx("notice.put")

    def _emit_closed(self, alert: Row, by: str, now: Instant, why: str = "", what: str = "resolved") -> None:
        self._add_delivery(alert, what, now, by, why)
        message = f"Alert {alert['id']} acknowledged by {by}{f': {why}' if why else ''}."
        event = Event(
            kind="alert.acknowledged",
            component="alerts",
            task_id=alert["task_id"],
            message=message,
            reason=why or None,
            data={"alert": alert["id"], "by": by},
        )
        self.emit(event, now)
