"""The command of people whom a workflow asks: approve."""

from __future__ import annotations

import argparse
import sys

from holdfast.api.queries import Queries
from holdfast.api.tasks.stages import approve
from holdfast.base.home import home_directory
from holdfast.cli.output.render import clean, print_json


def configure_approve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="a task's id, or the beginning of it")
    parser.add_argument("--changes", metavar="TEXT", help="let the stage go again, and tell its agent this")
    parser.add_argument("--json", action="store_true", help="machine-readable output (stable, documented)")


def run_approve(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    task_id = queries.resolve(arguments.id)
    told = approve(home, task_id, arguments.changes)
    if arguments.json:
        print_json({"id": task_id, "state": "queued", "reason": told})
        return 0
    print(f"{task_id}: {clean(told)}.")
    if queries.supervisor() is None:
        print("No supervisor is running: start one with `holdfast up`.", file=sys.stderr)
    return 0
