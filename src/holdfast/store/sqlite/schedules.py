"""The SQLite side of store/port/schedules.py: definitions, cursors, and one row per occurrence."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict, NotFound
from holdfast.base.instant import Instant
from holdfast.base.stored_json import load_stored_json, stored_data_errors
from holdfast.core.model import Event, Level
from holdfast.core.schedules.due import COUNTED
from holdfast.core.schedules.schedule import Misfire, Overlap, Schedule, ScheduleRecord, merge_spans
from holdfast.core.states import TASK_TERMINAL, TaskState
from holdfast.store.port.schedules import refused_alert
from holdfast.store.sqlite.engine.statements import Row, Statements
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.rows import decode, encode


class SqliteSchedules:
    """The SQLite adapter of `Schedules`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "schedules")
        self._events = events

    # -- definitions ---------------------------------------------------------------------------------------------

    def enrol(self, file: str, schedules: Sequence[Schedule], now: Instant) -> None:
        kept = {schedule.key for schedule in schedules}
        for row in self._sql.rows("of_file", file=file):
            if f"{row['repo']}\0{row['name']}" not in kept:
                self._unlist(row["repo"], row["name"], file, now)
        for schedule in schedules:
            self._record_definition(file, schedule, now)

    def _unlist(self, repo: str, name: str, file: str, now: Instant) -> None:
        before = self._record(repo, name)
        assert before is not None  # it was just listed
        self._sql.change("leave_out", repo=repo, schedule=name)
        self._start_over(before, "it is no longer in its file", now)
        faults.tx("schedule.leave_out")
        self._emit_change(before.schedule, "removed", f"is no longer in {file}, so it does not fire", now)

    def _record_definition(self, file: str, schedule: Schedule, now: Instant) -> None:
        at = _key_columns(schedule)
        row = self._sql.row("get", **at)
        if row is None:
            self._sql.change("insert", **at, file=file, definition=_encode_definition(schedule), now=now.wall)
            faults.tx("schedule.insert")
            self._emit_change(schedule, "added", f"was found in {file}, and fires from now on", now)
            return
        before = self._as_record(row)
        if row["listed"] and before.file == file and row["definition"] == _encode_definition(schedule):
            return
        self._sql.change("define", **at, file=file, definition=_encode_definition(schedule))
        if before.schedule.enabled != schedule.enabled:
            self._sql.change("say", **at, word=None, by=None)  # the file's change is newer than the operator's
        after = self._record(schedule.repo, schedule.name)
        assert after is not None
        has_new_time = (before.schedule.cron, before.schedule.zone) != (schedule.cron, schedule.zone)
        if has_new_time or not row["listed"] or before.enabled != after.enabled:
            self._start_over(before, "it was changed", now)
        faults.tx("schedule.define")
        if not row["listed"]:
            self._emit_change(schedule, "added", f"was found in {file} again, and continues from now", now)
        elif before.schedule != schedule:
            begins = "; its new times begin now" if has_new_time else ""
            self._emit_change(schedule, "changed", f"was changed in {file}{begins}", now)

    def files(self) -> Sequence[str]:
        return [str(row["file"]) for row in self._sql.rows("files")]

    def all(self) -> Sequence[ScheduleRecord]:
        return [self._as_record(row) for row in self._sql.rows("all")]

    def get(self, key: str) -> ScheduleRecord:
        repo, _, name = key.partition("\0")
        row = self._sql.row("get", repo=repo, schedule=name)
        if row is None or not row["listed"]:
            raise NotFound(f"There is no schedule '{name}' for {repo}. Nothing was changed.")
        return self._as_record(row)

    def enable(self, key: str, by: str, now: Instant) -> bool:
        return self._say(key, by, now, word=True)

    def disable(self, key: str, by: str, now: Instant) -> bool:
        return self._say(key, by, now, word=False)

    def _say(self, key: str, by: str, now: Instant, *, word: bool) -> bool:
        before = self.get(key)
        self._sql.change("say", **_key_columns(before.schedule), word=int(word), by=by)
        faults.tx("schedule.say")
        if before.enabled == word:
            return False
        self._start_over(before, f"{'enabled' if word else 'disabled'} by {by}", now)
        how = ("enabled", "continues from now") if word else ("disabled", "does not fire until it is enabled")
        self._emit_change(before.schedule, how[0], f"was {how[0]} by {by}; it {how[1]}", now)
        return True

    def _start_over(self, record: ScheduleRecord, why: str, now: Instant) -> None:
        """Start over from now: no past occurrence is due, none waits, and no trouble is recorded."""
        self._sql.change("begin", **_key_columns(record.schedule), now=now.wall)
        self._sql.change("drop_waiting", **_key_columns(record.schedule), why=why, now=now.wall)
        faults.tx("schedule.begin")
        if record.trouble is not None:
            self._events.close_alert(refused_alert(record.schedule), "holdfast", now)

    # -- occurrences ---------------------------------------------------------------------------------------------

    def admit(
        self, record: ScheduleRecord, occurrences: Sequence[float], cursor: float, now: Instant
    ) -> Sequence[float]:
        at = _key_columns(record.schedule)
        if not self._sql.change("move", **at, before=record.cursor, cursor=cursor):
            raise Conflict(f"Schedule '{record.schedule.name}' was moved on by another process meanwhile.")
        faults.tx("schedule.move")
        for occurrence in occurrences:
            self._sql.change("admit", **at, fire_time=occurrence, state="waiting", why="", now=now.wall)
        faults.tx("schedule.admit")
        waiting = self._waiting(at)
        surplus = waiting[: -record.schedule.max_waiting]
        for occurrence in surplus:
            self._decide(record, occurrence, "skipped", None, "a later one is due", now)
        return waiting[len(surplus) :]

    def rewind(self, record: ScheduleRecord, now: Instant) -> None:
        if self._sql.change("move", **_key_columns(record.schedule), before=record.cursor, cursor=now.wall):
            faults.tx("schedule.rewind")

    def fire(self, record: ScheduleRecord, occurrence: float, task_id: str, now: Instant) -> None:
        self._decide(record, occurrence, "fired", task_id, "", now)
        late = now.wall - occurrence
        self._record_fire(record, occurrence, task_id, now, {"scheduled": True, "late": round(late, 3)}, "")

    def fire_by_hand(self, key: str, task_id: str, by: str, now: Instant) -> None:
        record = self.get(key)  # the last task may still run: then both tasks have to end before the next one
        self._sql.change("by_hand", **_key_columns(record.schedule), task=task_id, why=f"by {by}", now=now.wall)
        faults.tx("schedule.by_hand")
        self._record_fire(record, now.wall, task_id, now, {"scheduled": False, "by": by}, f" by {by}, out of turn")

    def _record_fire(
        self, record: ScheduleRecord, fire_time: float, task_id: str, now: Instant, data: Mapping[str, object], how: str
    ) -> None:
        schedule = record.schedule
        crowded = int(not data["scheduled"] and record.is_busy)
        self._sql.change(
            "fired", **_key_columns(schedule), fire_time=fire_time, task=task_id, crowded=crowded, now=now.wall
        )
        faults.tx("schedule.fire")
        if record.trouble is not None:
            self._events.close_alert(refused_alert(schedule), "holdfast", now)
        message = f"Schedule '{schedule.name}' fired{how}: task {task_id}."
        self._tell("schedule.fired", schedule, message, now, task_id=task_id, data={"fire_time": fire_time, **data})

    def skip(self, record: ScheduleRecord, occurrence: float, why: str, now: Instant) -> None:
        at = _key_columns(record.schedule)
        if not self._sql.change("admit", **at, fire_time=occurrence, state="skipped", why=why, now=now.wall):
            return
        faults.tx("schedule.skip")
        message = f"Schedule '{record.schedule.name}' skips this occurrence: {why}."
        self._tell("schedule.skipped", record.schedule, message, now, reason=why, data={"fire_time": occurrence})

    def left_out(self, record: ScheduleRecord, occurrences: Sequence[float], now: Instant) -> None:
        count = len(occurrences)
        many = f"{count} occurrences or more" if count >= COUNTED else f"{count} occurrence(s)"
        why = "no supervisor was active when they were due, or the clock was set forward"
        message = f"Schedule '{record.schedule.name}' skips {many} before its latest: {why}."
        data = {"fire_time": occurrences[-1], "first": occurrences[0], "count": count}
        self._tell("schedule.skipped", record.schedule, message, now, reason=why, data=data)

    def missed(self, record: ScheduleRecord, latest: float, now: Instant) -> None:
        why = "no supervisor was active when it was due, and its `misfire` is skip"
        message = f"Schedule '{record.schedule.name}' skips what was missed: {why}."
        self._tell("schedule.skipped", record.schedule, message, now, reason=why, data={"fire_time": latest})

    def replacing(self, record: ScheduleRecord, task_id: str) -> None:
        self._sql.change("replacing", **_key_columns(record.schedule), task=task_id)
        faults.tx("schedule.replace")

    def refused(self, record: ScheduleRecord, why: str, next_try: float, now: Instant) -> None:
        schedule = record.schedule
        self._sql.change("refused", **_key_columns(schedule), why=why, next=next_try, now=now.wall)
        faults.tx("schedule.refuse")
        message = f"Schedule '{schedule.name}' ({schedule.place or schedule.repo}) cannot fire: {why}"
        remedy = "Its occurrence stays due, and it is tried again, less and less often."
        self._events.raise_alert(refused_alert(schedule), message, remedy, now, level=Level.WARNING)
        if record.trouble is None:
            self._tell("schedule.refused", schedule, f"{message} {remedy}", now, reason=why)

    def _decide(
        self, record: ScheduleRecord, occurrence: float, state: str, task_id: str | None, why: str, now: Instant
    ) -> None:
        at = _key_columns(record.schedule)
        if not self._sql.change("decide", **at, fire_time=occurrence, state=state, task=task_id, why=why, now=now.wall):
            raise Conflict(f"This occurrence of schedule '{record.schedule.name}' was decided by another process.")
        faults.tx("schedule.decide")

    def owed(self) -> int:
        return int(self._sql.value("owed"))

    def merge_old_occurrences(self, key: str, keep: int) -> int:
        repo, _, name = key.partition("\0")
        at = {"repo": repo, "schedule": name}
        old = self._sql.rows("old_ones", **at, keep=keep)
        if not old:
            return 0
        spans = [(row["began"], row["ended"]) for row in self._sql.rows("spans", **at)]
        self._sql.change("clear_spans", **at)
        for began, ended in merge_spans(spans, [row["fire_time"] for row in old if row["hand"] == 0]):
            self._sql.change("add_span", **at, began=began, ended=ended)
        for row in old:
            self._sql.change("forget", **at, hand=row["hand"], fire_time=row["fire_time"])
        faults.tx("schedule.prune")
        return len(old)

    # -- pieces --------------------------------------------------------------------------------------------------

    def _record(self, repo: str, name: str) -> ScheduleRecord | None:
        row = self._sql.row("get", repo=repo, schedule=name)
        return None if row is None else self._as_record(row)

    def _waiting(self, at: Mapping[str, str]) -> list[float]:
        return [float(row[0]) for row in self._sql.tuples("waiting", **at)]

    @stored_data_errors
    def _as_record(self, row: Row) -> ScheduleRecord:
        schedule = _decode_definition(row["definition"])
        if row["crowded"] and row["last_task_state"] in (None, *TASK_TERMINAL):
            row |= self._sql.row("open_task", **_key_columns(schedule)) or {}
        return ScheduleRecord(
            schedule=schedule,
            file=row["file"],
            enabled=schedule.enabled if row["word"] is None else bool(row["word"]),
            by=row["word_by"],
            cursor=row["cursor"],
            waiting=() if row["waiting"] == "[]" else tuple(sorted(load_stored_json(row["waiting"]))),
            last_fire=row["last_fire"],
            last_fired_at=row["last_fired_at"],
            last_task=row["last_task"],
            last_task_state=None if row["last_task_state"] is None else TaskState(row["last_task_state"]),
            replacing=row["replacing"],
            trouble=row["trouble"],
            failures=row["failures"],
            tried_at=row["tried_at"],
            next_try=row["next_try"],
        )

    def _emit_change(self, schedule: Schedule, what: str, words: str, now: Instant) -> None:
        self._tell("schedule.changed", schedule, f"Schedule '{schedule.name}' {words}.", now, data={"what": what})

    def _tell(
        self,
        kind: str,
        schedule: Schedule,
        message: str,
        now: Instant,
        *,
        task_id: str | None = None,
        reason: str | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        self._events.emit(
            Event(
                kind=kind,
                level=Level.WARNING if kind == "schedule.refused" else Level.INFO,
                component="schedules",
                task_id=task_id,
                message=message,
                reason=reason,
                data={"schedule": schedule.name, "repo": schedule.repo, **(data or {})},
            ),
            now,
        )


def _key_columns(schedule: Schedule) -> dict[str, str]:
    return {"repo": schedule.repo, "schedule": schedule.name}


def _encode_definition(schedule: Schedule) -> str:
    fields = (item.name for item in dataclasses.fields(Schedule))
    return encode({name: getattr(schedule, name) for name in fields} | {"task": dict(schedule.task)})


@stored_data_errors
@functools.lru_cache(maxsize=512)
def _decode_definition(definition: str) -> Schedule:
    """Return a schedule as it was written. Fields that only a later version knows are ignored. The result is cached,
    because definitions are read often and rarely change."""
    found: dict[str, object] = decode(definition)
    known = {item.name for item in dataclasses.fields(Schedule)}
    fields: dict[str, object] = {name: value for name, value in found.items() if name in known}
    fields["overlap"] = Overlap(str(fields.get("overlap", Overlap.SKIP)))
    fields["misfire"] = Misfire(str(fields.get("misfire", Misfire.LAST)))
    return Schedule(**fields)  # type: ignore[arg-type]  # checked before the definition was written
