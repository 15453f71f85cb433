"""Commands about a task's work: diff, salvage."""

from __future__ import annotations

import argparse
import sys

from holdfast.api.queries import Queries
from holdfast.errors import NotFound, UsageError
from holdfast.home import home_directory
from holdfast.interfaces.cli.render import ago, clean, is_terminal, paint, print_json, table

_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def configure_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="a task's id, or the beginning of it")
    parser.add_argument("--stat", action="store_true", help="only which files, and how much")


def run_diff(arguments: argparse.Namespace) -> int:
    from holdfast.api.diffing import diff

    queries = Queries(home_directory())
    text = diff(queries, queries.resolve(arguments.id), stat=arguments.stat)
    if is_terminal():
        for line in clean(text).splitlines():
            print(paint(line, _DIFF_COLOURS.get(line[:1], "dim")) if line[:1] in _DIFF_COLOURS else line)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(errors="surrogateescape"))  # exact, so that it can be applied
    if not text:
        print("No changes.", file=sys.stderr)
    return 0


def configure_salvage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["list", "restore"], help="what to do")
    parser.add_argument("id", nargs="?", help="a task's id, or the beginning of it")
    parser.add_argument("--branch", metavar="NAME", help="restore: the new branch that gets the saved work")
    parser.add_argument("--json", action="store_true", help="machine-readable output (stable, documented)")


def run_salvage(arguments: argparse.Namespace) -> int:
    queries = Queries(home_directory())
    task_id = None if arguments.id is None else queries.resolve(arguments.id)
    if arguments.action == "restore":
        return _restore(queries, task_id, arguments.branch)
    rows = queries.salvages(task_id)
    if arguments.json:
        for row in rows:
            print_json(row)
        return 0
    if not rows:
        print("Nothing was salvaged.")
        return 0
    table(
        ("TASK", "FILES", "AGE", "COMMIT", "REPO", "WHY"),
        [
            [row["task"], str(row["files"]), ago(row["created_at"]), row["commit"][:12], row["repo"], row["reason"]]
            for row in rows
        ],
    )
    return 0


def _restore(queries: Queries, task_id: str | None, branch: str | None) -> int:
    from holdfast.api.work import restore

    if task_id is None or not branch:
        raise UsageError("Say what and where to: `holdfast salvage restore ID --branch NAME`.")
    rows = queries.salvages(task_id)
    if not rows:
        raise NotFound(f"Nothing was salvaged for task {task_id}.")
    restore(queries.home, rows[-1], branch)
    print(f"The saved work of {task_id} is now branch {branch} of {rows[-1]['repo']}.")
    return 0
