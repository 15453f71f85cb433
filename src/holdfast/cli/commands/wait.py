"""The command that waits until tasks are at rest."""

from __future__ import annotations

import argparse
import time

from holdfast.api.format import parse_duration_option
from holdfast.api.queries import POLL_INTERVAL, Queries
from holdfast.api.tasks.wait import watch_tasks
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, one_line, paint, print_json
from holdfast.cli.output.selection import add_selection, choose_tasks
from holdfast.processes.caller import find_caller

COMPLETED, FAILED, WAITING = 0, 1, 75  # as `run` ends: failed is worse than waiting, for a script
_COLOURS = {"completed": "green", "failed": "red", "cancelled": "red"}


def configure_wait(parser: argparse.ArgumentParser) -> None:
    add_selection(parser, asks=False)
    parser.add_argument(
        "--any", dest="first", action="store_true", help="return as soon as one of the tasks is at rest"
    )
    parser.add_argument("--timeout", metavar="T", help="give up after this long, e.g. 30m")
    add_json_option(parser)


def run_wait(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    timeout = parse_duration_option("--timeout", arguments.timeout)
    ids = choose_tasks(queries, arguments, "wait").ids
    _refuse_endless_wait(home)
    watching = watch_tasks(home, ids, first=arguments.first, timeout=timeout, start=True)
    while (resting := next(watching)) is None:
        time.sleep(POLL_INTERVAL)
    return max((_print_task(queries, task_id, as_json=arguments.json) for task_id in resting), key=_badness)


def _refuse_endless_wait(home: str) -> None:
    """Refuse an agent that waits for its subtasks in the only slot."""
    caller = find_caller(home)
    if caller is not None:
        from holdfast.api.tasks.subtasks import refuse_endless_wait

        refuse_endless_wait(home, caller.task)


def _badness(code: int) -> int:
    return (COMPLETED, WAITING, FAILED).index(code)


def _print_task(queries: Queries, task_id: str, *, as_json: bool) -> int:
    """Print the state in which a task is at rest. Return the exit code for that state."""
    task = queries.state(task_id)
    state = task["state"]
    if as_json:
        print_json({key: task[key] for key in ("id", "state", "outcome", "reason", "failure_reason", "branch")})
    else:
        why = clean_text(one_line(task["reason"] or "", 100))
        print(f"{task_id}  {paint(state, _COLOURS.get(state, 'yellow'))}{f'  {why}' if why else ''}")
    return {"completed": COMPLETED, "failed": FAILED, "cancelled": FAILED}.get(state, WAITING)
