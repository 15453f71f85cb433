"""The command about schedules: list them, show one, fire one by hand, enable or disable one."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from holdfast.api.fleet import schedules as schedule_text
from holdfast.api.fleet.schedules import (
    describe_no_supervisor,
    find_schedule,
    fire_schedule,
    has_supervisor,
    list_fires,
    schedule_rows,
    switch_schedule,
    upcoming,
)
from holdfast.api.format import describe_moment
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, one_line, paint, print_json, print_outcome, print_table

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import ScheduleRow

_HEADERS = ("SCHEDULE", "STATE", "REPO", "WHEN", "LAST", "NEXT", "TROUBLE")
_NEXT, _LAST = 5, 10  # how many fires `show` prints


def configure_schedule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=["list", "show", "fire", "enable", "disable"],
        default="list",
        help="list (the default)",
    )
    parser.add_argument(
        "name", nargs="?", metavar="SCHEDULE", help="the schedule's name, or REPO:NAME if several have that name"
    )
    add_json_option(parser)


def run_schedule(arguments: argparse.Namespace) -> int:
    home = home_directory()
    if arguments.action == "list":
        if arguments.name is not None:
            raise UsageError(f"`holdfast schedule list` takes no name; see `holdfast schedule show {arguments.name}`.")
        return _list(home, as_json=arguments.json)
    if arguments.name is None:
        raise UsageError(
            f"Name the schedule: `holdfast schedule {arguments.action} NAME`; `holdfast schedule list` lists them."
        )
    row = find_schedule(schedule_rows(home)[0], arguments.name)
    if arguments.action == "show":
        return _show(home, row, as_json=arguments.json)
    if arguments.action == "fire":
        outcome = fire_schedule(home, row)
    else:
        outcome = switch_schedule(home, row, on=arguments.action == "enable")
    print_outcome(outcome, as_json=arguments.json)
    return 0


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
        print_table(_HEADERS, [_cells(row) for row in rows], state_column=1)
    elif not problems:
        print("No schedules. How to write one: `holdfast help schedules`.", file=sys.stderr)
    for problem in problems.values():
        print(f"{paint('not taken', 'yellow', sys.stderr)}  {clean_text(problem)}", file=sys.stderr)
    if rows and not has_supervisor(home):
        print(describe_no_supervisor(), file=sys.stderr)
    return 0


def _cells(row: ScheduleRow) -> list[str]:
    return [
        clean_text(row["name"]),
        schedule_text.describe_state(row),
        one_line(clean_text(row["repo"]), 40),
        one_line(f"{row['words']}, {row['timezone']}", 60),
        schedule_text.describe_last_fire(row),
        schedule_text.following(row),
        one_line(clean_text(row["trouble"] or row["problem"] or "-"), 60),
    ]


# -- show --------------------------------------------------------------------------------------------------------------


def _show(home: str, row: ScheduleRow, *, as_json: bool) -> int:
    following, last = upcoming(row, _NEXT), list_fires(home, row, _LAST)
    if as_json:
        print_json({**row, "next_fires": following if row["enabled"] else [], "last_fires": last})
        return 0
    name, state = clean_text(row["name"]), schedule_text.describe_state(row)
    print(f"{paint('schedule', 'bold')} {name}  {state}  {clean_text(row['words'])}, {row['timezone']}")
    for fact, value in schedule_text.schedule_facts(row).items():
        print(f"  {fact:<10}{clean_text(value)}")
    if row["enabled"]:
        for number, moment in enumerate(following):
            print(f"  {'next' if number == 0 else '':<10}{describe_moment(moment, row['timezone'])}")
    for number, fired in enumerate(last):
        print(f"  {'last' if number == 0 else '':<10}{schedule_text.describe_fire(fired, row['timezone'])}")
    if not has_supervisor(home):
        print(describe_no_supervisor(), file=sys.stderr)
    return 0
