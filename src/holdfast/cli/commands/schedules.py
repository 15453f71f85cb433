"""The command about schedules: where each stands, firing one by hand, letting one fire or not."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from holdfast.api.fleet import schedules as schedule_text
from holdfast.api.fleet.schedules import find, fire, fires, has_supervisor, schedule_rows, switch, upcoming
from holdfast.api.format import in_words
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.render import clean, one_line, paint, print_json, table

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import ScheduleRow

_HEADERS = ("SCHEDULE", "STATE", "REPO", "WHEN", "LAST", "NEXT", "TROUBLE")
_NEXT, _LAST = 5, 10  # how many `show` has
ASLEEP = (
    "No supervisor is running, so nothing fires until `holdfast up`; what is missed until then is made up for as each "
    "one's `misfire` says."
)


def configure_schedule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=["list", "show", "fire", "enable", "disable"],
        default="list",
        help="list (the default)",
    )
    parser.add_argument("name", nargs="?", metavar="SCHEDULE", help="its name; REPO:NAME where several have that name")
    parser.add_argument("--json", action="store_true", help="machine-readable output (stable, documented)")


def run_schedule(arguments: argparse.Namespace) -> int:
    home = home_directory()
    if arguments.action == "list":
        if arguments.name is not None:
            raise UsageError(f"`holdfast schedule list` takes no name; see `holdfast schedule show {arguments.name}`.")
        return _list(home, as_json=arguments.json)
    if arguments.name is None:
        raise UsageError(f"Say which: `holdfast schedule {arguments.action} NAME`; `holdfast schedule list` has them.")
    row = find(schedule_rows(home)[0], arguments.name)
    if arguments.action == "show":
        return _show(home, row, as_json=arguments.json)
    if arguments.action == "fire":
        return _fire(home, row, as_json=arguments.json)
    return _switch(home, row, on=arguments.action == "enable", as_json=arguments.json)


# -- list --------------------------------------------------------------------------------------------------------------


def _list(home: str, *, as_json: bool) -> int:
    rows, problems = schedule_rows(home)
    if as_json:
        for row in rows:
            print_json({"record": "schedule", **row})
        for file, problem in problems.items():
            print_json({"record": "problem", "file": file, "problem": problem})
        return 0
    if rows:
        table(_HEADERS, [_cells(row) for row in rows], state_column=1)
    elif not problems:
        print("No schedules. How to write one: docs/howto/schedules.md.", file=sys.stderr)
    for problem in problems.values():
        print(f"{paint('not taken', 'yellow', sys.stderr)}  {clean(problem)}", file=sys.stderr)
    if rows and not has_supervisor(home):
        print(ASLEEP, file=sys.stderr)
    return 0


def _cells(row: ScheduleRow) -> list[str]:
    return [
        clean(row["name"]),
        schedule_text.state(row),
        one_line(clean(row["repo"]), 40),
        one_line(f"{row['words']}, {row['timezone']}", 60),
        schedule_text.last(row),
        schedule_text.following(row),
        one_line(clean(row["trouble"] or row["problem"] or "-"), 60),
    ]


# -- show --------------------------------------------------------------------------------------------------------------


def _show(home: str, row: ScheduleRow, *, as_json: bool) -> int:
    following, last = upcoming(row, _NEXT), fires(home, row, _LAST)
    if as_json:
        print_json({**row, "next_fires": following if row["enabled"] else [], "last_fires": last})
        return 0
    name, state = clean(row["name"]), schedule_text.state(row)
    print(f"{paint('schedule', 'bold')} {name}  {state}  {clean(row['words'])}, {row['timezone']}")
    for fact, value in schedule_text.facts(row).items():
        print(f"  {fact:<10}{clean(value)}")
    if row["enabled"]:
        for number, moment in enumerate(following):
            print(f"  {'next' if number == 0 else '':<10}{in_words(moment, row['timezone'])}")
    for number, fired in enumerate(last):
        print(f"  {'last' if number == 0 else '':<10}{schedule_text.fired(fired, row['timezone'])}")
    if not has_supervisor(home):
        print(ASLEEP, file=sys.stderr)
    return 0


# -- fire, enable, disable ---------------------------------------------------------------------------------------------


def _fire(home: str, row: ScheduleRow, *, as_json: bool) -> int:
    fired, is_heard = fire(home, row)
    if as_json:
        print_json({**fired, "supervisor": is_heard})
        return 0
    then = "" if is_heard else " No supervisor is running: it waits in the queue for the next `holdfast up`."
    print(f"{fired['task']}  queued by the schedule {clean(row['name'])}, by hand; its times stay as they are.{then}")
    return 0


def _switch(home: str, row: ScheduleRow, *, on: bool, as_json: bool) -> int:
    changed, is_heard = switch(home, row, on=on)
    if as_json:
        where = {"schedule": row["name"], "repo": row["repo"]}
        print_json({**where, "enabled": on, "changed": changed, "supervisor": is_heard})
        return 0
    word = "enabled" if on else "disabled"
    if not changed:
        print(f"Schedule {clean(row['name'])} was {word} already.")
        return 0
    then = "It goes on from now." if on else "Nothing of it fires until `holdfast schedule enable`."
    print(f"Schedule {clean(row['name'])} is {word}. {then}")
    if on and not is_heard:
        print(ASLEEP, file=sys.stderr)
    return 0
