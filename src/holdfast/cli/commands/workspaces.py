"""Commands about workspaces: workspaces, keep, shell."""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import TYPE_CHECKING

from holdfast.api.outcome import NoSupervisor, no_supervisor
from holdfast.api.queries import Queries
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option, add_task_id
from holdfast.cli.output.render import format_age, one_line, print_json, print_table, size

if TYPE_CHECKING:
    from holdfast.api.work.models import WorkspaceRow

_ACTIONS = ("list", "clean")


def configure_workspaces(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=_ACTIONS, help="clean: salvage and remove preserved workspaces")
    parser.add_argument("ids", nargs="*", metavar="ID", help="clean: the tasks whose workspaces are removed")
    parser.add_argument("--all", "-a", action="store_true", help="list: also removed workspaces")
    parser.add_argument("--all-preserved", action="store_true", help="clean: every preserved workspace")
    parser.add_argument("--yes", "-y", action="store_true", help="clean --all-preserved: do not ask for confirmation")
    add_json_option(parser)


def run_workspaces(arguments: argparse.Namespace) -> int:
    queries = Queries(home_directory())
    if arguments.action == "clean":
        return _clean(queries, arguments)
    if arguments.ids:
        raise UsageError("`holdfast workspaces` lists all workspaces; `holdfast show ID` shows one task.")
    from holdfast.api.work.workspaces import list_workspaces

    rows = list_workspaces(queries, everything=arguments.all)
    if arguments.json:
        for row in rows:
            print_json(row)
        return 0
    from holdfast.api.work.workspaces import read_disk

    if not rows:
        print("No workspaces.")
    else:
        _show(rows)
    print(f"{read_disk(queries.home)}.", file=sys.stderr)
    return 0


def _show(rows: list[WorkspaceRow]) -> None:
    print_table(("TASK", "STATE", "STRATEGY", "AGE", "SIZE", "EXPIRES", "PATH", "WHY"), [_columns(row) for row in rows])
    print(f"{len(rows)} workspace(s), {size(sum(row['size'] or 0 for row in rows))}.", file=sys.stderr)


def _columns(row: WorkspaceRow) -> list[str]:
    return [
        row["task"],
        row["state"],
        row["strategy"],
        format_age(row["created_at"]),
        "-" if row["size"] is None else size(row["size"]),
        _expires(row),
        row["path"],
        one_line(row["reason"] or "", 60),
    ]


def _expires(row: WorkspaceRow) -> str:
    from holdfast.api.format import duration

    if row["state"] != "preserved":
        return "-"
    if row["disposition"] == "salvage":
        return "now"
    return "never" if row["expires_at"] is None else f"in {duration(int(row['expires_at'] - time.time()))}"


def _clean(queries: Queries, arguments: argparse.Namespace) -> int:
    from holdfast.api.work.workspaces import clean, preserved
    from holdfast.cli.commands.home import confirm

    if bool(arguments.ids) == arguments.all_preserved:
        raise UsageError("Name the tasks: `holdfast workspaces clean ID…`, or --all-preserved.")
    if arguments.all_preserved:
        rows = preserved(queries)
        if not arguments.json:
            for line in [f"{row['task']}  {row['path']}" for row in rows] or ["No workspace is preserved."]:
                print(line)
        if not rows:
            return 0
        if not arguments.yes:
            confirm("All of these will be salvaged and removed.", "clean")
        wanted = [row["task"] for row in rows]
    else:
        wanted = list(dict.fromkeys(queries.resolve(word) for word in arguments.ids))
    clean(queries.home, wanted)
    for task_id in wanted:
        if arguments.json:
            print_json({"task": task_id})
        else:
            print(f"The workspace of {task_id} will be salvaged and removed.")
    if queries.supervisor() is None:
        print(no_supervisor(NoSupervisor.TAKES_EFFECT_LATER), file=sys.stderr)
    return 0


def configure_keep(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--for", dest="span", metavar="DURATION", help="for this long from now (30d, 12h)")
    how_long.add_argument("--forever", action="store_true", help="until it is dropped (default)")
    add_json_option(parser)


def run_keep(arguments: argparse.Namespace) -> int:
    from holdfast.api.format import duration, parse_duration_option
    from holdfast.api.work.workspaces import keep

    queries = Queries(home_directory())
    span = parse_duration_option("--for", arguments.span)
    ttl = math.inf if span is None else span
    kept = keep(queries.home, queries.resolve(arguments.id), ttl)
    if arguments.json:
        print_json(kept)
        return 0
    how_long = "until you drop it" if ttl == math.inf else f"for {duration(ttl)}"
    since = "" if kept["state"] == "preserved" else " after its task's end, whatever the outcome"
    print(f"The workspace of {kept['task']} is kept {how_long}{since}.")
    print(f"Drop it with `holdfast workspaces clean {kept['task']}`.")
    return 0


def configure_shell(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    parser.add_argument("-c", dest="line", metavar="COMMAND", help="run this command instead of an interactive shell")


def run_shell(arguments: argparse.Namespace) -> int:
    from holdfast.api.work.shell import open_shell, refuse_missing

    queries = Queries(home_directory())
    task = queries.task(queries.resolve(arguments.id))
    if arguments.line is None:
        refuse_missing(task, task["workspace"])
        print(f"The workspace of {task['id']} ({task['state']}); it stays while you are in it.", file=sys.stderr)
    return open_shell(queries, task, arguments.line)
