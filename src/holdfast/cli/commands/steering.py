"""Commands that change what becomes of a task: cancel, retry."""

from __future__ import annotations

import argparse
import time

from holdfast.api.commands import Commands
from holdfast.api.queries import Queries
from holdfast.base.errors import Conflict, Unavailable, UsageError
from holdfast.base.home import home_directory
from holdfast.base.text import is_text

CANCEL_PATIENCE = 30.0


def configure_cancel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="a task's id, or the beginning of it")
    parser.add_argument("--why", default="", help="recorded with the request")
    parser.add_argument("--no-wait", action="store_true", help="return as soon as the request is recorded")
    parser.add_argument(
        "--keep-subtasks", action="store_true", help="its subtasks go on; without this they are cancelled too"
    )
    parser.add_argument(
        "--assume-dead", action="store_true", help="for a frozen task: you vouch that none of its processes lives"
    )


def run_cancel(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    task_id = queries.resolve(arguments.id)
    if not is_text(arguments.why):
        raise UsageError("--why is not text (it has NUL or undecodable bytes).")
    going = [] if arguments.keep_subtasks else queries.view("living_below", id=task_id)
    request = Commands(home, create=False).cancel(
        task_id, arguments.why, assume_dead=arguments.assume_dead, subtasks=not arguments.keep_subtasks
    )
    if going:
        print(f"With it {len(going)} unfinished subtask(s): {', '.join(str(row['id']) for row in going[:5])} …")
    if request is None:
        print(f"Cancelled {task_id}.")
        return 0
    if queries.supervisor() is None:
        raise Unavailable(
            f"The request is recorded, but task {task_id} is marked running and no supervisor is up to end it. "
            "Start one: `holdfast up`."
        )
    if arguments.no_wait:
        print(f"Asked the supervisor to cancel {task_id}.")
        return 0
    return _wait_answer(queries, request, task_id)


def _wait_answer(queries: Queries, request: int, task_id: str) -> int:
    deadline = time.monotonic() + CANCEL_PATIENCE
    while time.monotonic() < deadline:
        answer = queries.request(request)["answer"]
        if answer is not None:
            state = queries.state(task_id)["state"]
            if state != "cancelled":
                raise Conflict(f"Task {task_id} was not cancelled: {answer}.")
            print(f"Cancelled {task_id}.")
            return 0
        if queries.supervisor() is None:
            raise Unavailable(f"The supervisor went away; the request to cancel {task_id} stays recorded.")
        time.sleep(0.02)
    raise Unavailable(
        f"The supervisor has not ended task {task_id} yet; the request stands. See `holdfast why {task_id}`."
    )


def configure_retry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="a task's id, or the beginning of it")
    parser.add_argument("--fresh", action="store_true", help="start from the base instead of where it stopped")


def run_retry(arguments: argparse.Namespace) -> int:
    home = home_directory()
    task_id = Queries(home).resolve(arguments.id)
    Commands(home, create=False).retry(task_id, fresh=arguments.fresh)
    print(f"Queued {task_id} again, {'from its base' if arguments.fresh else 'where it stopped'}.")
    return 0
