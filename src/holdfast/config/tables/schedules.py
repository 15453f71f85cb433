"""Schedules: `[[schedule]]` tables, in the user's file (with `repo`) and in a repository's file, once trusted.

[[schedule]]
name = "nightly"
repo = "~/src/app"            # in the user's file only; in a repository's file it is that repository
cron = "0 2 * * *"            # or six fields, with seconds first
timezone = "Europe/Berlin"    # default: UTC
workflow = "review-swarm"     # or a prompt, or both
base = "main@{1 day ago}"
ref = "main"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.base.dataclass import dataclass
from holdfast.base.units import write_duration
from holdfast.config.problems import format_place
from holdfast.config.tables.schedule_keys import DURATIONS, KEYS, NOT_OF_A_SCHEDULE, READERS, TASK_KEYS
from holdfast.config.values import format_toml, meant, quote_wrong_value

if TYPE_CHECKING:  # every command imports this module and would pay for these imports
    from holdfast.core.schedules.schedule import Schedule

SECTION = "schedule"
MOST = 256
Complain = Callable[[str, str], None]


def schedule_place(number: int) -> str:
    """Return the key under which config/problems.py records the lines of the table with this number (from 0)."""
    return f"{SECTION}[{number}]"


@dataclass(frozen=True, slots=True)
class _File:
    """The file that the tables are in."""

    path: str
    lines: Mapping[str, int]
    repo: str | None  # None: the user's own file, where each schedule names its repository


def read_schedules(
    tables: object, path: str, lines: Mapping[str, int], complain: Complain, repo: str | None = None
) -> tuple[Schedule, ...]:
    """Return every schedule in the value of `schedule`. Mistakes go to `complain(full key, text)`."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        complain(SECTION, f"'{SECTION}' is a list of schedules: begin each with a line [[{SECTION}]]")
        return ()
    if len(tables) > MOST:
        complain(SECTION, f"there are {len(tables)} schedules, but at most {MOST} are allowed")
        return ()
    file = _File(path, lines, repo)
    found: dict[str, Schedule] = {}
    for number, table in enumerate(tables):
        schedule = _schedule(number, table, file, complain)
        if schedule is None:
            continue
        if schedule.key in found:
            text = f"{SECTION}.name: there is a schedule '{schedule.name}' for {schedule.repo} above already"
            complain(f"{schedule_place(number)}.name", text)
        else:
            found[schedule.key] = schedule
    return tuple(found.values())


def schedules_to_show(schedules: tuple[Schedule, ...]) -> list[tuple[str, Any, str]]:
    """Return full key, value and origin for `config show`."""
    return [
        (f"{SECTION}.{schedule.name}.{key}", value, schedule.place)
        for schedule in schedules
        for key, value in to_table(schedule).items()
        if key != "name"
    ]


def to_table(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as a table of a file, with its keys in the order of the reference page."""
    whole: dict[str, Any] = {
        "name": schedule.name,
        "repo": schedule.repo,
        "cron": schedule.cron,
        "timezone": schedule.zone,
        **schedule.task,
        "overlap": str(schedule.overlap),
        "misfire": str(schedule.misfire),
        "max_catch_up": schedule.most,
        "jitter": write_duration(schedule.jitter),
        "enabled": schedule.enabled,
    }
    whole |= {key: write_duration(whole[key]) for key in DURATIONS if key in whole}
    if whole.get("gate") == "":
        whole["gate"] = False  # how a file says that there is no gate
    return {key: whole[key] for key in KEYS if key in whole}


def trust_values(schedules: tuple[Schedule, ...]) -> dict[str, Any]:
    """Return the values that trust in a repository's schedules covers: all keys of all schedules."""
    return {f"{SECTION}.{schedule.name}": _without_repo(to_table(schedule)) for schedule in schedules}


def trust_lines(schedules: tuple[Schedule, ...]) -> list[str]:
    """Return the values of `trust_values` as TOML lines, for the person who decides."""
    return [
        f"{key} = {{ {', '.join(f'{name} = {format_toml(value)}' for name, value in table.items())} }}"
        for key, table in trust_values(schedules).items()
    ]


def _without_repo(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in ("repo", "name")}


def _schedule(number: int, table: Mapping[str, Any], file: _File, complain: Complain) -> Schedule | None:
    from holdfast.core.schedules.schedule import Misfire, Overlap, Schedule

    good, place = True, schedule_place(number)

    def refuse(key: str, text: str) -> None:
        nonlocal good
        good = False
        complain(f"{place}.{key}" if key else place, text)

    values: dict[str, Any] = {}
    for key, value in table.items():
        if key == "repo" and file.repo is not None:
            refuse(key, f"{SECTION}.repo: a schedule in a repository's file is for that repository; leave `repo` out")
        elif key in NOT_OF_A_SCHEDULE:
            refuse(key, f"{SECTION}.{key}: a schedule has no `{key}`: {NOT_OF_A_SCHEDULE[key]}")
        elif key not in READERS:
            refuse(key, f"there is no setting '{SECTION}.{quote_wrong_value(key)}'{meant(key, KEYS, f'{SECTION}.')}")
        else:
            try:
                values[key] = READERS[key](value)
            except ValueError as error:
                refuse(key, f"{SECTION}.{key}: {error}")
    if "command" in values and values.get("agent", "command") != "command":
        refuse("command", f"{SECTION}.command: the agent '{values['agent']}' takes no command; leave `agent` out")
    for key, why in _missing(table, is_users=file.repo is None):
        refuse("", f"{why}: {SECTION}.{key} is missing")
    if not good:
        return None
    return Schedule(
        name=values["name"],
        repo=values["repo"] if file.repo is None else file.repo,
        cron=values["cron"],
        zone=values.get("timezone", "UTC"),
        task={key: values[key] for key in TASK_KEYS if key in values},
        overlap=Overlap(values.get("overlap", Overlap.SKIP)),
        misfire=Misfire(values.get("misfire", Misfire.LAST)),
        most=values.get("max_catch_up", 10),
        jitter=values.get("jitter", 0.0),
        enabled=values.get("enabled", True),
        place=format_place(file.path, file.lines.get(place)),
    )


def _missing(table: Mapping[str, Any], *, is_users: bool) -> list[tuple[str, str]]:
    """Return the required keys that the table lacks, and the reason why each is required."""
    found = []
    if "name" not in table:
        found.append(("name", "a schedule needs a name"))
    if "cron" not in table:
        found.append(("cron", 'a schedule needs its times, like cron = "0 2 * * *" for every night at two'))
    if "prompt" not in table and "workflow" not in table:
        found.append(("prompt", "a schedule needs something to do: a prompt, or a workflow"))
    if is_users and "repo" not in table:
        found.append(("repo", "a schedule in your own file needs the repository that its tasks work on"))
    return found
