"""The SQLite side of `Holds` in store/port/dispatch.py: dispatch that is held back until a probe succeeds."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import apsw

from holdfast.base import faults
from holdfast.base.instant import Instant
from holdfast.base.stored_json import stored_data_errors
from holdfast.core.dispatch.holds import Hold, Probe, Scope
from holdfast.core.dispatch.mass_death import Death, release_fleet_hold
from holdfast.core.model import Event, Level
from holdfast.core.runs.crashes import MASS_DEATH_NOT_COUNTED, QUEUED_AGAIN
from holdfast.core.states import TaskState
from holdfast.store.port.dispatch import MASS_DEATH_ALERT, limit_alert, provider_alert
from holdfast.store.sqlite.engine.statements import Row, Statements
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.rows import decode, encode

_DEATHS_KEPT_FOR = 86400.0  # seconds. Ample: a death counts towards a mass death for half a minute


class SqliteHolds:
    """The SQLite adapter of `Holds`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "holds")
        self._events = events

    def all(self) -> Sequence[Hold]:
        return [_hold(row) for row in self._sql.rows("all")]

    def keep(self, hold: Hold, now: Instant) -> None:
        before = self._get(hold.scope, hold.name)
        probe = hold.probe
        self._write(hold)
        if hold.is_held and (before is None or not before.is_held or before.rounds != hold.rounds):
            self._emit_held(hold, now)
        if probe is not None and probe.state is TaskState.RUNNING and not (before and before.is_probe(probe.task_id)):
            self._emit_probe(hold, probe, now)

    def _write(self, hold: Hold) -> None:
        probe = hold.probe
        self._sql.change(
            "keep",
            scope=str(hold.scope),
            held=hold.name,
            since=_encode_instant(hold.since),
            until=hold.until,
            decided=hold.decided,
            reason=hold.reason,
            failures=hold.failures,
            rounds=hold.rounds,
            probe_task=probe.task_id if probe else None,
            probe_since=_encode_instant(probe.since) if probe else None,
        )
        faults.tx("hold.keep")

    def release(
        self, scope: Scope, name: str, why: str, now: Instant, *, tell: bool = True, forget: bool = False
    ) -> bool:
        hold = self._get(scope, name)
        if hold is None:
            return False
        if scope is Scope.FLEET and not forget:
            self._write(release_fleet_hold(hold))
        else:
            self._sql.change("drop", scope=str(scope), held=name)
        faults.tx("hold.release")
        if scope is Scope.PROVIDER:
            self._events.close_alert(provider_alert(name), why, now)
        elif scope is Scope.ACCOUNT and tell:
            self._events.close_alert(limit_alert(name), why, now)
        elif scope is Scope.FLEET:
            self._events.close_alert(MASS_DEATH_ALERT, why, now)
        if hold.is_held and tell:
            self._events.emit(
                Event(
                    kind="dispatch.released",
                    component="holds",
                    message=f"{_describe_held_tasks(hold)} may start again: {why}.",
                    reason=why,
                    data={"scope": str(scope), "name": name, "rounds": hold.rounds},
                ),
                now,
            )
        return True

    def free(self, task_id: str) -> None:
        if self._sql.change("free", task_id=task_id):
            faults.tx("hold.free")

    def count_agents_since(self, account: str, since: Instant) -> int:
        agent, _, name = account.partition("/")
        return int(self._sql.value("crowd", agent=agent, account=name, since=since.wall))

    def account_of(self, task_id: str) -> str | None:
        value = self._sql.value("account_of", task_id=task_id)
        return None if value is None else str(value)

    def pause_waiting(self, provider: str, reason: str, now: Instant) -> Sequence[str]:
        paused = [str(row["id"]) for row in self._sql.rows("waits_for_provider", provider=provider)]
        for task_id in paused:
            self._sql.change("pause", id=task_id, reason=reason, now=now.wall)
            faults.tx("hold.pause")
            self._events.emit(
                Event(
                    kind="task.paused",
                    component="holds",
                    task_id=task_id,
                    message=f"Task {task_id} paused: {reason}.",
                    reason=reason,
                    data={"pause_reason": "outage", "resume_after": None, "provider": provider},
                ),
                now,
            )
        return paused

    def paused_by_outage(self, provider: str) -> Sequence[str]:
        return [str(row["id"]) for row in self._sql.rows("paused_by_outage", provider=provider)]

    # -- deaths --------------------------------------------------------------------------------------------------

    def record_death(self, run_id: str, task_id: str, at: float, now: Instant) -> None:
        self._sql.change("forget_deaths", before=now.wall - _DEATHS_KEPT_FOR, after=now.wall + _DEATHS_KEPT_FOR)
        self._sql.change("note_death", run_id=run_id, task_id=task_id, at=at, noted=_encode_instant(now))
        faults.tx("death.note")

    def death(self, run_id: str) -> tuple[Death, Instant] | None:
        row = self._sql.row("death", run_id=run_id)
        return None if row is None else (_death(row), _instant(row["noted"]))

    def deaths_around(self, at: float, window: float) -> Sequence[Death]:
        return [_death(row) for row in self._sql.rows("deaths", first=at - window, last=at + window)]

    def ran(self, agents: Collection[str], since: float) -> tuple[frozenset[str], frozenset[str]]:
        ended = self._sql.tuples("ended_since", agents=encode(sorted(agents)), since=since)
        return frozenset(row[0] for row in self._sql.tuples("alive")), frozenset(row[0] for row in ended)

    def mark_mass_death(self, run_ids: Sequence[str], now: Instant) -> None:
        for run_id in run_ids:
            if self._sql.change("is_of_many", run_id=run_id):
                self._sql.change("give_back", run_id=run_id)
                decision = f"{QUEUED_AGAIN} ({MASS_DEATH_NOT_COUNTED})"
                self._sql.change("uncount_crash", run_id=run_id, decision=decision)
                faults.tx("death.of_many")

    # -- pieces --------------------------------------------------------------------------------------------------

    def _get(self, scope: Scope, name: str) -> Hold | None:
        row = self._sql.row("get", scope=str(scope), held=name)
        return _hold(row) if row else None

    def _emit_held(self, hold: Hold, now: Instant) -> None:
        again = f" (attempt {hold.rounds})" if hold.rounds > 1 else ""
        if hold.scope is Scope.NEAR:
            message = f"The account {hold.name} is near its limit, and its agents start one by one: {hold.reason}."
        elif hold.scope is Scope.ACCOUNT:
            message = f"One task under the account {hold.name} starts first, the others follow: {hold.reason}."
        else:
            then = (
                "Only an operator can release them" if hold.needs_operator else "Then one task starts first, as a probe"
            )
            message = f"{_describe_held_tasks(hold)} are held back{again}: {hold.reason}. {then}."
        self._events.emit(
            Event(
                kind="dispatch.held",
                level=Level.INFO if hold.scope is Scope.ACCOUNT else Level.WARNING,
                component="holds",
                message=message,
                reason=hold.reason,
                data={
                    "scope": str(hold.scope),
                    "name": hold.name,
                    "until": None if hold.needs_operator else hold.until,
                    "failures": hold.failures,
                    "rounds": hold.rounds,
                },
            ),
            now,
        )

    def _emit_probe(self, hold: Hold, probe: Probe, now: Instant) -> None:
        self._events.emit(
            Event(
                kind="dispatch.probing",
                component="holds",
                task_id=probe.task_id,
                message=f"Task {probe.task_id} starts first, to see whether {hold.full_name} works again.",
                reason=hold.reason,
                data={"scope": str(hold.scope), "name": hold.name, "rounds": hold.rounds},
            ),
            now,
        )


def _describe_held_tasks(hold: Hold) -> str:
    if hold.scope is Scope.FLEET:
        return "All waiting tasks"
    return f"Tasks that wait for the {'provider' if hold.scope is Scope.PROVIDER else 'account'} {hold.name}"


@stored_data_errors
def _hold(row: Row) -> Hold:
    probe = None
    if row["probe_task"] is not None:
        state = row["probe_state"]
        probe = Probe(
            task_id=row["probe_task"],
            since=_instant(row["probe_since"]),
            state=None if state is None else TaskState(state),
        )
    return Hold(
        scope=Scope(row["scope"]),
        name=row["name"],
        since=_instant(row["since"]),
        until=row["until"],
        decided=row["decided"],
        reason=row["reason"],
        failures=row["failures"],
        rounds=row["rounds"],
        probe=probe,
    )


def _death(row: Row) -> Death:
    return Death(run_id=row["run_id"], task_id=row["task_id"], at=row["at"], is_mass=bool(row["is_mass"]))


def _encode_instant(moment: Instant) -> str:
    return encode([moment.wall, moment.boottime, moment.boot_id])


@stored_data_errors
def _instant(text: str) -> Instant:
    wall, boottime, boot_id = decode(text)
    return Instant(wall=wall, boottime=boottime, boot_id=boot_id)
