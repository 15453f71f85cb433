"""Schedules: their states and times as text, and commands of operators about one schedule.

`holdfast schedule` and the screen of schedules show them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast.api.format import describe_moment
from holdfast.api.outcome import ActionOutcome, no_supervisor
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.errors import Conflict, NotFound
from holdfast.base.stored_json import load_stored_json, stored_data_errors
from holdfast.base.text import clean_text, one_line
from holdfast.base.units import show_duration
from holdfast.config.schedule_files import read_schedule_files
from holdfast.core.schedules.schedule import Schedule

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import FireRow, ScheduleRow
    from holdfast.api.tasks.models import JsonObject
    from holdfast.core.model import Task
    from holdfast.store.port.transaction import Transaction


NEW = "no supervisor has read it yet"


def list_schedules(home: str) -> tuple[list[JsonObject], dict[str, str]]:
    """Return the same as `schedule_rows`, as plain dicts: the actions of the TUI pass rows of every kind."""
    rows, problems = schedule_rows(home)
    return cast("list[JsonObject]", rows), problems


def schedule_rows(home: str) -> tuple[list[ScheduleRow], dict[str, str]]:
    """Return every schedule as its file has it now, and a dict: file → its mistake.

    If a file has a mistake, the schedules of its last good version are returned.
    """
    queries = _queries(home)
    known = queries.view("schedules") if queries is not None else []
    files = read_schedule_files(home, [] if queries is None else [str(row["path"]) for row in queries.repos()])
    written = {(each.repo, each.name): (file, each) for file, found in files.schedules.items() for each in found}
    rows: list[ScheduleRow] = []
    for row in known:
        file, schedule = written.pop((row["repo"], row["name"]), (row["file"], None))
        if schedule is not None or file not in files.schedules:  # else the file no longer has the schedule
            rows.append(_of_store(row, file, schedule))
    rows += [_row(each, file) for file, each in written.values()]
    for made in rows:
        made["problem"] = files.problems.get(made["file"])
    return sorted(rows, key=lambda row: (row["name"], row["repo"])), dict(files.problems)


def find_schedule(rows: Sequence[ScheduleRow], word: str) -> ScheduleRow:
    """Return the schedule that `word` names: as NAME, or as REPO:NAME if several repositories have that name."""
    place, _, name = word.rpartition(":")
    found = [row for row in rows if row["name"] == name and (not place or _is_at(row["repo"], place))]
    if not found:
        raise NotFound(_unknown(word, rows))
    if len(found) > 1:
        choices = ", ".join(_unique_name(row, found) for row in found)
        raise Conflict(f"Several repositories have a schedule '{name}'. Choose one: {choices}.")
    return found[0]


def list_fires(home: str, row: ScheduleRow, most: int) -> list[FireRow]:
    """Return the results of the latest occurrences and of the fires by hand, the newest first."""
    queries = _queries(home)
    return [] if queries is None else fires_of(queries, row, most)


def fires_of(queries: Queries, row: ScheduleRow, most: int) -> list[FireRow]:
    found = queries.view("fires", repo=row["repo"], schedule=row["name"], most=most)
    for fire in found:
        fire["by_hand"] = bool(fire["hand"])
    return cast("list[FireRow]", found)


def upcoming(row: ScheduleRow, count: int) -> list[float]:
    """Return the next times of a schedule, as if it were enabled."""
    from holdfast.core.schedules.due import upcoming_occurrences as following

    return following(_schedule(row), clock.now().wall, count)


def fire_schedule(home: str, row: Mapping[str, Any]) -> ActionOutcome:
    """Queue the task of the schedule now, out of turn. The times of the schedule do not change."""
    from holdfast.api.commands import change_store, operator_name
    from holdfast.intake.scheduled_task import resolve_scheduled_task

    schedule = _schedule(row)
    resolved = resolve_scheduled_task(home, schedule, clock.now().wall)

    def add(tx: Transaction) -> Task:
        _record_if_new(tx, row, schedule)
        task = resolved.add(tx, by=operator_name())
        tx.schedules.fire_by_hand(schedule.key, task.spec.id, operator_name(), clock.now())
        return task

    task = change_store(home, add, create=True)
    is_running = has_supervisor(home)
    return ActionOutcome(
        message=f"{task.spec.id} is queued by the schedule {row['name']}; its times do not change.",
        note="" if is_running else no_supervisor(),
        data={"schedule": row["name"], "repo": row["repo"], "task": task.spec.id, "supervisor": is_running},
    )


def switch_schedule(home: str, row: Mapping[str, Any], *, on: bool) -> ActionOutcome:
    """Enable or disable the schedule, whatever its file says."""
    from holdfast.api.commands import change_store, operator_name

    schedule = _schedule(row)

    def record(tx: Transaction) -> bool:
        _record_if_new(tx, row, schedule)
        word = tx.schedules.enable if on else tx.schedules.disable
        return word(schedule.key, operator_name(), clock.now())

    changed = change_store(home, record, create=True)
    is_running = has_supervisor(home)
    return ActionOutcome(
        message=_describe_switch(row["name"], on=on, changed=changed),
        note=describe_no_supervisor() if on and changed and not is_running else "",
        data={
            "schedule": row["name"],
            "repo": row["repo"],
            "enabled": on,
            "changed": changed,
            "supervisor": is_running,
        },
    )


def _describe_switch(name: str, *, on: bool, changed: bool) -> str:
    word = "enabled" if on else "disabled"
    if not changed:
        return f"Schedule {name} was {word} already."
    then = "It continues from now." if on else f"It does not fire before `holdfast schedule enable {name}`."
    return f"Schedule {name} is {word}. {then}"


def describe_no_supervisor() -> str:
    """Return a text: no supervisor is running, and what that means for schedules."""
    return f"{no_supervisor()} Nothing fires until then. Each schedule's `misfire` decides about the missed times."


def has_supervisor(home: str) -> bool:
    """True if a supervisor is running on this home."""
    queries = _queries(home)
    return queries is not None and queries.supervisor() is not None


# -- pieces ------------------------------------------------------------------------------------------------------------


def _queries(home: str) -> Queries | None:
    """Return the queries of the home. None: there is no store yet, and schedules are read from files alone."""
    return Queries(home) if os.path.exists(os.path.join(home, "holdfast.db")) else None


def _record_if_new(tx: Transaction, row: Mapping[str, Any], schedule: Schedule) -> None:
    """Record a schedule that no supervisor has seen yet.

    The other schedules of its file stay as recorded. Only the supervisor takes in the whole file, once the file has not
    changed for a while.
    """
    try:
        tx.schedules.get(schedule.key)
    except NotFound:
        others = [record.schedule for record in tx.schedules.all() if record.file == row["file"]]
        tx.schedules.enrol(row["file"], [*others, schedule], clock.now())


@stored_data_errors
def _of_store(row: JsonObject, file: str, written: Schedule | None) -> ScheduleRow:
    before = schedule_of(load_stored_json(row["definition"]))
    schedule = before if written is None else written
    found = _row(schedule, file)
    found["last_fire"], found["last_fired_at"] = row["last_fire"], row["last_fired_at"]
    found["last_task"], found["last_task_state"] = row["last_task"], row["last_task_state"]
    found["trouble"], found["next_try"] = row["trouble"], row["next_try"]
    found["seen"], found["waiting"] = True, sorted(load_stored_json(row["waiting"]))
    if row["word"] is not None and before.enabled == schedule.enabled:  # else the file was changed after the command
        found["enabled"], found["enabled_by"] = bool(row["word"]), row["word_by"]
    is_new = (before.cron, before.zone) != (schedule.cron, schedule.zone)  # then its times begin now
    begin = clock.now().wall if is_new else min(row["cursor"], clock.now().wall)
    found["next_fire"] = _next(schedule, begin) if found["enabled"] else None
    return found


def _row(schedule: Schedule, file: str) -> ScheduleRow:
    return {
        "name": schedule.name,
        "repo": schedule.repo,
        "file": file,
        "place": schedule.place,
        "cron": schedule.cron,
        "words": _words(schedule.cron),
        "timezone": schedule.zone,
        "task": dict(schedule.task),
        "overlap": str(schedule.overlap),
        "misfire": str(schedule.misfire),
        "max_catch_up": schedule.most,
        "jitter": schedule.jitter,
        "enabled": schedule.enabled,
        "enabled_by": None,
        "seen": False,
        "last_fire": None,
        "last_fired_at": None,
        "last_task": None,
        "last_task_state": None,
        "next_fire": _next(schedule, clock.now().wall) if schedule.enabled else None,
        "waiting": [],
        "trouble": None,
        "next_try": None,
    }


def schedule_of(definition: Mapping[str, Any]) -> Schedule:
    from dataclasses import fields

    from holdfast.core.schedules.schedule import Misfire, Overlap

    known = {field.name for field in fields(Schedule)}
    values = {key: value for key, value in definition.items() if key in known}
    values |= {"overlap": Overlap(values["overlap"]), "misfire": Misfire(values["misfire"])}
    return Schedule(**values)


def _schedule(row: Mapping[str, Any]) -> Schedule:
    renamed = {"zone": row["timezone"], "most": row["max_catch_up"]}
    return schedule_of({**row, **renamed})


def _next(schedule: Schedule, after: float) -> float | None:
    from holdfast.core.schedules.due import due_at
    from holdfast.core.schedules.due import upcoming_occurrences as following

    found = following(schedule, after, 1)
    return due_at(schedule, found[0]) if found else None


def _words(cron: str) -> str:
    from datetime import UTC, datetime

    from cronsim import CronSim

    words = CronSim(cron, datetime(2001, 1, 1, tzinfo=UTC)).explain()
    return f"{words[:1].lower()}{words[1:]}"


def _is_at(repo: str, place: str) -> bool:
    return repo == os.path.realpath(os.path.expanduser(place)) or repo.endswith(f"{os.sep}{place.strip(os.sep)}")


def _unique_name(row: ScheduleRow, among: Sequence[ScheduleRow]) -> str:
    """Return the shortest name of a schedule that is unique in `among`."""
    short = os.path.basename(row["repo"])
    alone = sum(os.path.basename(other["repo"]) == short for other in among) == 1
    return f"{short if alone else row['repo']}:{row['name']}"


def _unknown(word: str, rows: Sequence[ScheduleRow]) -> str:
    import difflib

    names = sorted({str(row["name"]) for row in rows})
    if not names:
        return f"There is no schedule '{word[:80]}': no file has any. How to write one: `holdfast help schedules`."
    close = difflib.get_close_matches(word.rpartition(":")[2], names, n=1)
    hint = f" Did you mean '{close[0]}'?" if close and close[0] != word else ""
    return f"There is no schedule '{word[:80]}'.{hint} Known: {', '.join(names)}."


def describe_state(row: ScheduleRow) -> str:
    if not row["enabled"]:
        return "disabled"
    return "enabled" if row["seen"] else "new"


def describe_last_fire(row: ScheduleRow) -> str:
    if row["last_fired_at"] is None:
        return "-"
    ago = show_duration(int(time.time() - row["last_fired_at"]))
    return f"{ago} ago: {row['last_task']} {row['last_task_state'] or 'gone'}"


def following(row: ScheduleRow) -> str:
    """Return the next fire as text."""
    if not row["enabled"]:
        return f"disabled by {row['enabled_by']}" if row["enabled_by"] else "disabled"
    if row["waiting"] and row["trouble"]:
        return f"due, tried again {describe_moment(row['next_try'], row['timezone'])}" if row["next_try"] else "due"
    if row["waiting"]:
        return "due, after its previous task has ended"
    if row["next_fire"] is None:
        return "never"
    words = describe_moment(row["next_fire"], row["timezone"])
    return f"due, {words}" if row["next_fire"] < time.time() else words


def describe_fire(one: FireRow, zone: str) -> str:
    """Return the result of one occurrence as text."""
    when = describe_moment(one["fire_time"], zone)
    if one["task"] is not None:
        how = f" {clean_text(one['why'])}" if one["by_hand"] else ""
        return f"{when}{how}: task {one['task']} {one['task_state'] or '(forgotten)'}"
    return f"{when}: left out, {clean_text(one['why'])}"


def schedule_facts(row: ScheduleRow) -> dict[str, str]:
    """Return name → text: the content of the file, and its mistakes. Empty values are left out."""
    task = row["task"]
    found: dict[str, str] = {
        "repo": row["repo"],
        "cron": f"{row['cron']}  ({row['place'] or row['file']})",
        "enabled": f"{'yes' if row['enabled'] else 'no'}" + (f", by {row['enabled_by']}" if row["enabled_by"] else ""),
        "policy": f"overlap {row['overlap']}, misfire {row['misfire']}"
        + (f" (up to {row['max_catch_up']})" if row["misfire"] == "all" else "")
        + (f", jitter {row['jitter']:g} s" if row["jitter"] else ""),
        "range": f"{task.get('base', '')}..{task['ref']}" if "ref" in task else "",
        **{key: str(task[key]) for key in ("workflow", "agent", "model", "priority", "timeout") if key in task},
        "prompt": one_line(str(task.get("prompt", "")), 90),
        "trouble": row["trouble"] or "",
        "file": row["problem"] or "",
    }
    return {name: value for name, value in found.items() if value}
