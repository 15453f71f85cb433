"""Commands that steer one task: pause, resume, cancel, retry, and approve for workflows that wait for a person."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from holdfast.api.commands import Commands, pause
from holdfast.api.format import moment, parse_duration_option
from holdfast.api.outcome import no_supervisor
from holdfast.api.queries import Queries
from holdfast.api.requests import STOP_PATIENCE, recorded_only, wait_for_task_request
from holdfast.api.tasks.stages import approve
from holdfast.base.errors import Conflict, Refused, Unavailable, UsageError
from holdfast.base.home import home_directory
from holdfast.base.text import is_text
from holdfast.cli.output.options import add_change_options, add_json_option, add_task_id, has_change, read_change
from holdfast.cli.output.render import clean_text, number, print_json
from holdfast.core.model import RequestKind

if TYPE_CHECKING:
    from holdfast.api.tasks.changes import Given
    from holdfast.api.tasks.models import CancelledRow, QueuedAgainRow


def configure_pause(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    parser.add_argument("--why", default="", help="recorded with the request")
    parser.add_argument("--for", dest="seconds", metavar="T", help="go on by itself after this long, e.g. 2h")
    parser.add_argument("--force", action="store_true", help="end its agent at once, without the usual grace")
    parser.add_argument("--checkpoint", action="store_true", help="end with an error when no checkpoint holds its tree")
    parser.add_argument("--no-wait", action="store_true", help="return as soon as the request is recorded")
    add_json_option(parser)


def run_pause(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    task_id = queries.resolve(arguments.id)
    if not is_text(arguments.why):
        raise UsageError("--why is not text (it has NUL or undecodable bytes).")
    seconds = parse_duration_option("--for", arguments.seconds)
    request = pause(home, task_id, arguments.why, seconds, force=arguments.force)
    if request is not None:
        if queries.supervisor() is None:
            raise Unavailable(recorded_only(task_id, RequestKind.PAUSE))
        if not arguments.no_wait:
            patience = STOP_PATIENCE + float(queries.task(task_id)["grace"])
            _wait(queries, request, RequestKind.PAUSE, task_id, patience)
    is_done = request is None or not arguments.no_wait
    newest = max((row["number"] for row in queries.checkpoints(task_id)), default=None) if is_done else None
    _print_pause(queries, task_id, newest, is_done=is_done, as_json=arguments.json)
    if arguments.checkpoint and is_done and newest is None:
        raise Refused(
            f"Task {task_id} is paused, but no checkpoint of it is kept: it has no workspace yet, or saving one failed "
            f"(`holdfast events {task_id}`)."
        )
    return 0


def _wait(queries: Queries, request: int, kind: RequestKind, task_id: str, patience: float) -> str:
    """Wait until the request is carried out, and return its message. Raise Conflict if the request was refused."""
    outcome = wait_for_task_request(queries, request, kind, task_id, patience)
    if not outcome.is_done:
        raise Conflict(outcome.message)
    return outcome.message


def _print_pause(queries: Queries, task_id: str, checkpoint: int | None, *, is_done: bool, as_json: bool) -> None:
    task = queries.state(task_id)
    if as_json:
        told = {key: task[key] for key in ("id", "state", "pause_reason", "resume_after")}
        print_json({**told, "checkpoint": checkpoint})
        return
    if not is_done:
        print(f"Asked the supervisor to pause {task_id}.")
    elif task["resume_after"] is not None:
        print(f"Paused {task_id}; it goes on by itself at {moment(task['resume_after'])}.")
    else:
        print(f"Paused {task_id}; `holdfast resume {task_id}` lets it go on.")
    if checkpoint is not None:
        print(f"Checkpoint {checkpoint} holds its tree: `holdfast diff {task_id} --checkpoint {checkpoint}`.")


def configure_resume(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="also beyond its limit of resumes, and if its account is parked or stopped",
    )
    parser.add_argument("--checkpoint", type=number(1), metavar="N", help="go back to this one first (`holdfast show`)")
    parser.add_argument("--budget-usd", type=float, metavar="X", help="what its runs may cost from now on, in all")
    parser.add_argument("--budget-tokens", type=number(1), metavar="N", help="tokens that its runs may use, in all")
    add_change_options(parser)
    add_json_option(parser)


def run_resume(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    task_id = queries.resolve(arguments.id)
    # in any other state, `resume` raises a conflict
    if arguments.checkpoint is not None and queries.state(task_id)["state"] == "paused":
        from holdfast.api.work.checkpoints import refuse_unreadable

        refuse_unreadable(queries, task_id, arguments.checkpoint)
    message = Commands(home, create=False).resume(
        task_id,
        force=arguments.force,
        checkpoint=arguments.checkpoint,
        budget_usd=arguments.budget_usd,
        budget_tokens=arguments.budget_tokens,
        given=_given(queries, task_id, arguments),
    )
    if arguments.json:
        resumed: QueuedAgainRow = {"id": task_id, "state": queries.state(task_id)["state"], "reason": message}
        print_json(resumed)
        return 0
    print(f"{task_id}: {message}.")
    if queries.supervisor() is None:
        print(no_supervisor(), file=sys.stderr)
    return 0


def configure_cancel(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    parser.add_argument("--why", default="", help="recorded with the request")
    parser.add_argument("--no-wait", action="store_true", help="return as soon as the request is recorded")
    parser.add_argument(
        "--keep-subtasks", action="store_true", help="its subtasks go on; without this they are cancelled too"
    )
    parser.add_argument(
        "--assume-dead", action="store_true", help="for a frozen task: you vouch that none of its processes lives"
    )
    add_json_option(parser)


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
    if going and not arguments.json:
        print(f"With it {len(going)} unfinished subtask(s): {', '.join(str(row['id']) for row in going[:5])} …")
    if request is None:
        told = f"Cancelled {task_id}."
    elif queries.supervisor() is None:
        raise Unavailable(recorded_only(task_id, RequestKind.CANCEL))
    elif arguments.no_wait:
        told = f"Asked the supervisor to cancel {task_id}."
    else:
        told = _wait(queries, request, RequestKind.CANCEL, task_id, STOP_PATIENCE)
    if arguments.json:
        subtasks = [str(row["id"]) for row in going]
        cancelled: CancelledRow = {"id": task_id, "state": queries.state(task_id)["state"], "subtasks": subtasks}
        print_json(cancelled)
    else:
        print(told)
    return 0


def configure_retry(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    parser.add_argument("--fresh", action="store_true", help="start from the base instead of where it stopped")
    parser.add_argument("--budget-usd", metavar="X", help="what its runs may cost from now on, in all")
    parser.add_argument("--budget-tokens", metavar="N", help="tokens that its runs may use, in all")
    add_change_options(parser)
    add_json_option(parser)


def _given(queries: Queries, task_id: str, arguments: argparse.Namespace, **more: object) -> Given | None:
    """Return what the options change about a task that goes on. None: nothing."""
    if not has_change(arguments) and not any(more.values()):
        return None
    from holdfast.api.tasks.changes import read_given

    return read_given(queries, task_id, *read_change(arguments, **more))


def run_retry(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    task_id = queries.resolve(arguments.id)
    caps = {"budget_usd": arguments.budget_usd, "budget_tokens": arguments.budget_tokens}
    given = _given(queries, task_id, arguments, **caps)
    Commands(home, create=False).retry(task_id, fresh=arguments.fresh, given=given)
    how = "from its base" if arguments.fresh else "where it stopped"
    if arguments.json:
        state = queries.state(task_id)["state"]
        retried: QueuedAgainRow = {"id": task_id, "state": state, "reason": f"queued again, {how}"}
        print_json(retried)
        return 0
    print(f"Queued {task_id} again, {how}.")
    if queries.supervisor() is None:
        print(no_supervisor(), file=sys.stderr)
    return 0


def configure_approve(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    parser.add_argument("--changes", metavar="TEXT", help="send it back to its builder with this text")
    parser.add_argument("--stage", metavar="NAME", help="the stage that makes the changes (default: see below)")
    add_json_option(parser)


def run_approve(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    task_id = queries.resolve(arguments.id)
    told = approve(home, task_id, arguments.changes, stage=arguments.stage)
    if arguments.json:
        print_json({"id": task_id, "state": "queued", "reason": told})
        return 0
    print(f"{task_id}: {clean_text(told)}.")
    if queries.supervisor() is None:
        print(no_supervisor(), file=sys.stderr)
    return 0
