"""The SQLite side of `Workers` in store/port/dispatch.py: named workers, their crashes, and the tasks that wait for
one."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict, NotFound
from holdfast.base.instant import Instant
from holdfast.base.stored_json import stored_data_errors
from holdfast.core.dispatch.workers import WORKER_MOVES, WorkerRecord, WorkerState
from holdfast.core.model import Event, Level
from holdfast.core.runs.crashes import CrashReaction, tail_of_error, worker_crash_alert_key
from holdfast.store.port.dispatch import WorkerCrash
from holdfast.store.sqlite.engine.statements import Row, Statements
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.rows import encode

_EVENT_OF = {
    WorkerState.READY: "worker.started",
    WorkerState.STOPPED: "worker.stopped",
    WorkerState.RETIRED: "worker.stopped",
    WorkerState.BENCHED: "worker.benched",
}


class SqliteWorkers:
    """The SQLite adapter of `Workers`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "workers")
        self._events = events

    # -- looking -------------------------------------------------------------------------------------------------

    def get(self, name: str) -> WorkerRecord | None:
        row = self._sql.row("get", worker=name)
        return _record(row) if row else None

    def all(self) -> Sequence[WorkerRecord]:
        return [_record(row) for row in self._sql.rows("all")]

    def crashes(self, name: str) -> Sequence[Instant]:
        return [Instant(**row) for row in self._sql.rows("crashes", worker=name)]

    # -- the settings --------------------------------------------------------------------------------------------

    def enrol(self, names: Sequence[str], now: Instant) -> None:
        known = {record.name: record for record in self.all()}
        for name in names:
            if name not in known:
                self._insert(name, WorkerState.READY, "it is new in the settings", now)
            elif known[name].state is WorkerState.RETIRED:
                self._move(known[name], WorkerState.READY, "it is in the settings again", now)
        for record in known.values():
            if record.name not in names and record.state is not WorkerState.RETIRED:
                self._move(record, WorkerState.RETIRED, "it is no longer in the settings", now)

    # -- operators -----------------------------------------------------------------------------------------------

    def start(self, name: str, by: str, now: Instant) -> WorkerRecord:
        record = self.get(name)
        if record is None:
            return self._insert(name, WorkerState.READY, f"started by {by}", now)
        self._refuse_retired(record)
        if record.state is WorkerState.READY:
            raise Conflict(f"Worker {name} is started already; nothing was changed.")
        self._forgive(name)
        return self._move(record, WorkerState.READY, f"started by {by}", now)

    def restart(self, name: str, by: str, now: Instant) -> WorkerRecord:
        record = self.get(name)
        if record is None:
            return self._insert(name, WorkerState.READY, f"started by {by}", now)
        self._refuse_retired(record)
        self._forgive(name)
        if record.state is not WorkerState.READY:
            return self._move(record, WorkerState.READY, f"restarted by {by}", now)
        self._tell(record, f"restarted by {by}; its crash count is cleared", now, Level.INFO, {})
        return record

    def stop(self, name: str, by: str, now: Instant, *, at_once: bool = False) -> WorkerRecord:
        record = self.get(name)
        if record is None:
            return self._insert(name, WorkerState.STOPPED, f"stopped by {by}", now)
        self._refuse_retired(record)
        is_more = at_once and not record.at_once
        if record.state is WorkerState.STOPPED and not (is_more or record.by_crash):
            raise Conflict(f"Worker {name} is stopped already ({record.reason}); nothing was changed.")
        return self._move(record, WorkerState.STOPPED, f"stopped by {by}", now, at_once=at_once)

    # -- supervisor ----------------------------------------------------------------------------------------------

    def record_crash(self, crash: WorkerCrash, now: Instant) -> None:
        record = self.get(crash.worker)
        if record is None or not crash.decision.counts or self._sql.row("crash_of", run_id=crash.run_id):
            return
        self._sql.change(
            "crashed",
            worker=crash.worker,
            run_id=crash.run_id,
            task_id=crash.task_id,
            wall=now.wall,
            boottime=now.boottime,
            boot_id=now.boot_id,
        )
        faults.tx("worker.crashed")
        decision = crash.decision
        data = {
            "task": crash.task_id,
            "run": crash.run_id,
            "crashes": decision.crashes,
            "decision": str(decision.answer),
        }
        if decision.answer is CrashReaction.RESTART:
            crashed = f"its agent of task {crash.task_id} crashed ({decision.reason})"
            reason = f"{crashed}, and the worker continues: {crash.recovered}"
            self._tell(record, reason, now, Level.WARNING, data)
        elif decision.answer is CrashReaction.NOTIFY:
            reason = f"its agent of task {crash.task_id} crashed: {crash.why}; {decision.reason}"
            self._move(record, decision.state, reason, now, by_run=crash.run_id, data=data)
            self._alert(crash, now)

    def unbench(self, record: WorkerRecord, now: Instant) -> None:
        self._move(record, WorkerState.READY, "it was quiet for a whole crash window", now)

    def forgive_crashes(self, run_ids: Sequence[str], now: Instant) -> None:
        if not run_ids:
            return
        runs = encode(list(run_ids))
        self._sql.change("pardon", run_ids=runs)
        faults.tx("worker.pardon")
        for row in self._sql.rows("pardoned", run_ids=runs):
            self._move(_record(row), WorkerState.READY, "its crash was part of a mass death", now)

    # -- pieces --------------------------------------------------------------------------------------------------

    def _insert(self, name: str, state: WorkerState, reason: str, now: Instant) -> WorkerRecord:
        record = WorkerRecord(name=name, state=state, reason=reason, since=now.wall)
        self._sql.change("insert", worker=name, state=str(state), reason=reason, now=now.wall)
        faults.tx("worker.insert")
        self._tell(record, reason, now, Level.INFO, {})
        return record

    def _move(
        self,
        record: WorkerRecord,
        state: WorkerState,
        reason: str,
        now: Instant,
        *,
        at_once: bool = False,
        by_run: str | None = None,
        data: dict[str, object] | None = None,
    ) -> WorkerRecord:
        """Move a worker, only from the state that was read. Stopped → stopped is allowed: it makes an operator the
        one who stopped it, or makes the stop more urgent. After a crash (`by_run`) the task stays as it was settled,
        and the caller raises an alert."""
        legal = state in WORKER_MOVES[record.state] or (state is record.state and state is WorkerState.STOPPED)
        changed = legal and self._sql.change(
            "move",
            worker=record.name,
            state=str(state),
            was=str(record.state),
            reason=reason,
            at_once=int(at_once),
            run_id=by_run,
            now=now.wall,
        )
        if not changed:
            raise Conflict(f"Worker {record.name} is no longer {record.state}, or may not become {state}.")
        faults.tx("worker.move")
        moved = WorkerRecord(name=record.name, state=state, reason=reason, since=now.wall, at_once=at_once)
        freed: list[str] = []
        if state is not WorkerState.READY and by_run is None:
            freed = [str(row["id"]) for row in self._sql.rows("release", worker=record.name)]
            faults.tx("worker.release")
        loud = Level.CRITICAL if state is WorkerState.BENCHED else Level.WARNING if by_run else Level.INFO
        self._tell(moved, reason, now, loud, {**(data or {}), **({"released": freed} if freed else {})})
        if by_run is None:
            self._events.close_alert(worker_crash_alert_key(record.name), f"the worker: {reason}", now)
        return moved

    def _forgive(self, name: str) -> None:
        """Start a new count of crashes. Earlier crashes stay in the history but no longer count."""
        self._sql.change("forgive", worker=name)
        faults.tx("worker.forgive")

    def _refuse_retired(self, record: WorkerRecord) -> None:
        if record.state is WorkerState.RETIRED:
            raise NotFound(f"There is no worker '{record.name}' any more: {record.reason}.")

    def _tell(self, record: WorkerRecord, reason: str, now: Instant, level: Level, data: dict[str, object]) -> None:
        kind = _EVENT_OF[record.state]
        word = kind.partition(".")[2]
        self._events.emit(
            Event(
                kind=kind,
                level=level,
                component="workers",
                message=f"Worker {record.name} {word}: {reason}.",
                reason=reason,
                data={"worker": record.name, "state": str(record.state), **data},
            ),
            now,
        )

    def _alert(self, crash: WorkerCrash, now: Instant) -> None:
        """Raise one alert per episode (R-CRASH-06). Any move that lets the worker continue closes it."""
        decision, by_hand = crash.decision, f"holdfast worker restart {crash.worker}"
        by_itself = " It continues by itself after a whole window without a crash."
        self._events.raise_alert(
            worker_crash_alert_key(crash.worker),
            f"Worker {crash.worker} is {decision.state}: its agent of task {crash.task_id} crashed ({crash.why}). "
            f"{decision.reason[0].upper()}{decision.reason[1:]}; {decision.crashes} recent crash(es). "
            f"Recovered: {crash.recovered}.",
            f"Look with `holdfast why {crash.task_id}`; start it again by hand with `{by_hand}`."
            f"{by_itself if decision.state is WorkerState.BENCHED else ''}",
            now,
            task_id=crash.task_id,
            details={
                "worker": crash.worker,
                "reason": crash.why,
                "error_text": tail_of_error(crash.error_tail),
                "recovered": crash.recovered,
                "crashes": decision.crashes,
                "window": crash.window,
                "restart": by_hand,
            },
        )


@stored_data_errors
def _record(row: Row) -> WorkerRecord:
    return WorkerRecord(
        name=row["name"],
        state=WorkerState(row["state"]),
        reason=row["reason"],
        since=row["since"],
        at_once=bool(row["at_once"]),
        by_crash=row["run_id"] is not None,
    )
