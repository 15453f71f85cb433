"""The command about named workers: list them, start, stop or restart one."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from holdfast.api.fleet.workers import list_workers, steer_worker
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, format_age, one_line, print_json, print_outcome, print_table

if TYPE_CHECKING:
    from holdfast.api.fleet.models import WorkerRow

_HEADERS = ("WORKER", "STATE", "TAKES", "TASK", "CRASHES", "SINCE", "WHY")


def configure_worker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=["list", "start", "stop", "restart"], default="list", help="list (the default)"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the name of the worker")
    parser.add_argument("--now", action="store_true", help="with stop: end its current task now")
    add_json_option(parser)


def run_worker(arguments: argparse.Namespace) -> int:
    if arguments.now and arguments.action != "stop":
        raise UsageError("--now belongs to `holdfast worker stop NAME`.")
    if arguments.action == "list":
        return _list(arguments)
    if arguments.name is None:
        raise UsageError(
            f"Name the worker: `holdfast worker {arguments.action} NAME`; `holdfast worker list` has them."
        )
    print_outcome(
        steer_worker(home_directory(), arguments.action, arguments.name, at_once=arguments.now), as_json=arguments.json
    )
    return 0


def _list(arguments: argparse.Namespace) -> int:
    if arguments.name is not None:
        raise UsageError("`holdfast worker list` takes no name; it lists all workers.")
    found = list_workers(home_directory())
    if arguments.json:
        for row in found:
            print_json(row)
    elif found:
        print_table(_HEADERS, [_cells(row) for row in found], state_column=1)
    else:
        print("No named workers; agents are anonymous. Named ones: `holdfast help workers`.", file=sys.stderr)
    return 0


def _cells(row: WorkerRow) -> list[str]:
    labels = [f"{key}={value}" for key, value in row["labels"].items()]
    account = f"/{row['account']}" if row["account"] else ""
    takes = f"{row['agent'] or 'any agent'}{account}" if row["configured"] else "no longer in the settings"
    return [
        row["name"],
        row["state"],
        one_line(" ".join([takes, *labels]), 50),
        row["task"] or "-",
        str(row["recent_crashes"]),
        format_age(row["since"]) if row["since"] is not None else "-",
        one_line(clean_text(row["reason"]), 70),
    ]
