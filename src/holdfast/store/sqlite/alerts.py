"""The SQLite side of `Deliveries` in store/port/history.py: the outbox of alerts on their way to people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict
from holdfast.base.instant import Instant
from holdfast.base.stored_json import stored_data_errors
from holdfast.base.text import one_line
from holdfast.core.event_kinds import ENDINGS
from holdfast.core.model import Event, Level
from holdfast.core.tasks.alerts import (
    AlertChange,
    Delivery,
    DeliveryPlan,
    Ending,
    RecentNotices,
    TogetherNotice,
    Transition,
)
from holdfast.secrets.redact import redact_text
from holdfast.store.sqlite.engine.statements import Row, Statements
from holdfast.store.sqlite.events import SqliteEvents, short_prompt
from holdfast.store.sqlite.rows import encode, encode_redacted

LONGEST_REASON = 300  # letters of the reason of an ending in a notice


class SqliteDeliveries:
    """The SQLite adapter of `Deliveries`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "alerts")
        self._events = events

    def find_unplanned(self, limit: int) -> Sequence[AlertChange]:
        return [_notice(row) for row in self._sql.rows("unplanned", limit=limit)]

    def find_endings(self, limit: int) -> Sequence[Ending]:
        return [
            Ending(
                seq=int(row["seq"]),
                at=float(row["at"]),
                word=ENDINGS[row["kind"]],
                task=str(row["task_id"]),
                prompt=short_prompt(row["prompt"]),
                reason=one_line(redact_text(row["reason"]), LONGEST_REASON),
                has_alert=bool(row["has_alert"]),
            )
            for row in self._sql.rows("endings", limit=limit)
        ]

    def read_recent(self, window: float, now: Instant) -> RecentNotices:
        (row,) = self._sql.rows("recent", since=now.wall - window, now=now.wall)
        return RecentNotices(alerts=row["alerts"], last=row["last"], is_idle=bool(self._sql.value("is_idle")))

    def see_endings(self, seq: int) -> None:
        self._sql.change("see_endings", seq=seq)
        faults.tx("notice.see")

    def put_together(self, together: TogetherNotice, now: Instant) -> None:
        self._sql.change(
            "put",
            key=together.key,
            alert_id=0,
            alert_key="endings",
            transition=str(Transition.ENDED),
            level=str(together.level),
            body=encode_redacted(together.body),
            now=now.wall,
        )
        faults.tx("notice.together")

    def plan(self, notice: AlertChange, plan: DeliveryPlan) -> None:
        planned = ", ".join(plan.targets) or f"nobody: {plan.why}"
        if self._sql.change("planned", id=notice.id, planned=planned) == 0:
            return  # another supervisor was faster
        for target in plan.targets:
            self._sql.change("deliver", id=notice.id, target=target)
        faults.tx("notice.plan")

    def next_deliveries(self) -> Sequence[Delivery]:
        return [_delivery(row) for row in self._sql.rows("heads")]

    def begin(self, delivery: Delivery, delay: float, now: Instant) -> Delivery:
        self._move("begin", delivery, delay=delay, wall=now.wall, boottime=now.boottime, boot_id=now.boot_id)
        faults.tx("notice.begin")
        return replace(delivery, attempts=delivery.attempts + 1, delay=delay, last=now)

    def record_sent(self, delivery: Delivery, told: str, now: Instant) -> None:
        self._move("over", delivery, state="sent", told=told, now=now.wall)
        faults.tx("notice.sent")
        message = f"Notice {delivery.notice.key} was sent to the {delivery.target}: {told}."
        self._emit("notice.sent", delivery, message, told, Level.INFO, now)

    def failed(self, delivery: Delivery, told: str, delay: float, now: Instant) -> None:
        self._move("failed", delivery, delay=delay, told=told)
        faults.tx("notice.failed")
        message = (
            f"Notice {delivery.notice.key} could not be sent to the {delivery.target} (attempt {delivery.attempts}): "
            f"{told}. It is tried again in {delay:.0f} s."
        )
        self._emit("notice.failed", delivery, message, told, Level.WARNING, now)

    def give_up(self, delivery: Delivery, told: str, now: Instant) -> None:
        self._move("over", delivery, state="given_up", told=told, now=now.wall)
        faults.tx("notice.give_up")
        message = (
            f"Notice {delivery.notice.key} to the {delivery.target} was given up after {delivery.attempts} attempt(s): "
            f"{told}. The alert itself stays: `holdfast alerts`. Try the target with `holdfast alerts test`."
        )
        self._emit("notice.given-up", delivery, message, told, Level.CRITICAL, now)

    def waiting(self) -> int:
        return int(self._sql.value("waiting"))

    def forget(self, before: float, limit: int) -> int:
        ids = encode([row["id"] for row in self._sql.rows("old", before=before, limit=limit)])
        self._sql.change("forget_deliveries", ids=ids)
        dropped = self._sql.change("forget", ids=ids)
        if dropped:
            faults.tx("notice.forget")
        return dropped

    def _move(self, statement: str, delivery: Delivery, **values: object) -> None:
        changed = self._sql.change(
            statement, id=delivery.notice.id, target=delivery.target, attempts=delivery.attempts, **values
        )
        if changed == 0:
            raise Conflict(f"Notice {delivery.notice.key} was changed meanwhile; another sender has it.")

    def _emit(self, kind: str, delivery: Delivery, message: str, told: str, level: Level, now: Instant) -> None:
        data = {
            "key": delivery.notice.key,
            "target": delivery.target,
            "attempt": delivery.attempts,
            "transition": str(delivery.notice.transition),
        }
        event = Event(kind=kind, level=level, component="notices", message=message, reason=told, data=data)
        self._events.emit(event, now)


@stored_data_errors
def _notice(row: Row) -> AlertChange:
    return AlertChange(
        id=int(row["id"]),
        key=row["key"],
        alert_key=row["alert_key"],
        transition=Transition(row["transition"]),
        level=Level(row["level"]),
        body=row["body"],
    )


def _delivery(row: Row) -> Delivery:
    last = None if row["wall"] is None else Instant(wall=row["wall"], boottime=row["boottime"], boot_id=row["boot_id"])
    return Delivery(notice=_notice(row), target=row["target"], attempts=row["attempts"], delay=row["delay"], last=last)
