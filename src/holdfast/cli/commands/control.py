"""Commands that steer tasks: pause, resume, cancel, retry, and approve for workflows that wait for a person."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast.api.commands import (
    Commands,
    cancel_in,
    check_prompt,
    operator_name,
    pause,
    pause_in,
    resume_in,
    retry_in,
)
from holdfast.api.format import moment, parse_duration_option
from holdfast.api.outcome import no_supervisor
from holdfast.api.queries import Queries
from holdfast.api.requests import STOP_PATIENCE, recorded_only, wait_for_task_request
from holdfast.api.tasks.batches import REFUSALS
from holdfast.api.tasks.stages import approve
from holdfast.base import clock
from holdfast.base.errors import Conflict, HoldfastError, Refused, Unavailable, UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.options import (
    add_change_options,
    add_json_option,
    add_reason_option,
    has_change,
    read_change,
    read_reason,
)
from holdfast.cli.output.render import clean_text, number, print_json
from holdfast.cli.output.selection import add_selection, change_many, choose_tasks, print_results, stop_many
from holdfast.core.dispatch.spending_caps import SpendingCap
from holdfast.core.model import RequestKind

if TYPE_CHECKING:
    from holdfast.api.tasks.batches import TaskResult
    from holdfast.api.tasks.changes import Given, Wanted
    from holdfast.store.port.transaction import Transaction


def configure_pause(parser: argparse.ArgumentParser) -> None:
    add_selection(parser)
    add_reason_option(parser)
    parser.add_argument("--for", dest="seconds", metavar="T", help="resume the task after this long, e.g. 2h")
    parser.add_argument("--force", action="store_true", help="end the task's agent at once, without `health.grace`")
    parser.add_argument(
        "--checkpoint", action="store_true", help="fail if no checkpoint of the task's files could be saved"
    )
    parser.add_argument("--no-wait", action="store_true", help="return as soon as the request is recorded")
    add_json_option(parser)


def run_pause(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    read_reason(arguments)
    seconds = parse_duration_option("--for", arguments.seconds)
    chosen = choose_tasks(queries, arguments, "pause")
    if chosen.is_many:
        return _pause_many(queries, chosen.ids, seconds, arguments)
    task_id = chosen.ids[0]
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


def _pause_many(queries: Queries, ids: list[str], seconds: float | None, arguments: argparse.Namespace) -> int:
    if arguments.checkpoint:
        raise UsageError("--checkpoint works only with one task. Nothing was changed.")
    by, why = operator_name(), arguments.why
    results = stop_many(
        queries,
        ids,
        lambda tx, task_id: pause_in(tx, task_id, by, why, seconds, force=arguments.force),
        RequestKind.PAUSE,
        waits=not arguments.no_wait,
        patience=STOP_PATIENCE + max(float(queries.task(task_id)["grace"]) for task_id in ids[:1]),
    )
    return print_results(queries, results, as_json=arguments.json)


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
        print(f"Paused {task_id}; it continues by itself at {moment(task['resume_after'])}.")
    else:
        print(f"Paused {task_id}; `holdfast resume {task_id}` lets it continue.")
    if checkpoint is not None:
        print(f"Checkpoint {checkpoint} has its files: `holdfast diff {task_id} --checkpoint {checkpoint}`.")


def configure_resume(parser: argparse.ArgumentParser) -> None:
    add_selection(parser, agent=False)
    parser.add_argument(
        "--force",
        action="store_true",
        help="resume even beyond the task's limit of resumes, or if its account is parked or stopped",
    )
    parser.add_argument(
        "--checkpoint", type=number(1), metavar="N", help="restore this checkpoint first (`holdfast show`)"
    )
    parser.add_argument("--budget-usd", type=float, metavar="X", help="the task's new total budget in dollars")
    parser.add_argument("--budget-tokens", type=number(1), metavar="N", help="the task's new total budget in tokens")
    add_change_options(parser)
    add_json_option(parser)


def run_resume(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    wanted = _read_wanted(arguments)
    chosen = choose_tasks(queries, arguments, "resume")
    if chosen.is_many:
        return _resume_many(queries, chosen.ids, wanted, arguments)
    task_id = chosen.ids[0]
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
        given=_given(queries, task_id, wanted),
    )
    if arguments.json:
        print_json({"id": task_id, "state": queries.state(task_id)["state"], "reason": message})
    else:
        print(f"{task_id}: {message}.")
    _note_supervisor(queries)
    return 0


def _resume_many(queries: Queries, ids: list[str], wanted: Wish | None, arguments: argparse.Namespace) -> int:
    if arguments.checkpoint is not None:
        raise UsageError("--checkpoint names a checkpoint of one task: give one id. Nothing was changed.")
    by, cap = operator_name(), SpendingCap(usd=arguments.budget_usd, tokens=arguments.budget_tokens)
    read = _read_all_given(queries, ids, wanted)
    results = change_many(
        queries,
        ids,
        lambda tx, task_id: resume_in(tx, task_id, by, force=arguments.force, cap=cap, given=read(task_id)),
        lambda task_id, decided: f"{task_id}: {decided.message}.",
    )
    return _print_many(queries, results, as_json=arguments.json)


Wish = tuple["Wanted", str]  # what changes, and words for the next run


def _read_wanted(arguments: argparse.Namespace, **more: object) -> Wish | None:
    """Return the changes that the options make to tasks that continue. None: no option was given."""
    return read_change(arguments, **more) if has_change(arguments) or any(more.values()) else None


def _given(queries: Queries, task_id: str, wanted: Wish | None) -> Given | None:
    if wanted is None:
        return None
    from holdfast.api.tasks.changes import read_given

    return read_given(queries, task_id, *wanted)


def _read_all_given(queries: Queries, ids: list[str], wanted: Wish | None) -> Callable[[str], Given | None]:
    """Look up the options of each task before the transaction. Return a function that returns the options of one task,
    or raises the refusal that the look-up met."""
    found: dict[str, Given | HoldfastError | None] = {}
    for task_id in ids if wanted is not None else ():
        try:
            found[task_id] = _given(queries, task_id, wanted)
        except REFUSALS as error:
            found[task_id] = error

    def read(task_id: str) -> Given | None:
        given = found.get(task_id)
        if isinstance(given, HoldfastError):
            raise given
        return given

    return read


def _print_many(queries: Queries, results: Iterable[TaskResult], *, as_json: bool) -> int:
    """Print the results, and a note if no supervisor runs. The note is left out if no task was changed."""
    changed: list[str] = []

    def watch() -> Iterator[TaskResult]:
        for result in results:
            if result.code == 0:
                changed.append(result.id)
            yield result

    code = print_results(queries, watch(), as_json=as_json)
    if changed:
        _note_supervisor(queries)
    return code


def _note_supervisor(queries: Queries) -> None:
    if queries.supervisor() is None:
        print(no_supervisor(), file=sys.stderr)


def configure_cancel(parser: argparse.ArgumentParser) -> None:
    add_selection(parser)
    add_reason_option(parser)
    parser.add_argument("--no-wait", action="store_true", help="return as soon as the request is recorded")
    parser.add_argument("--keep-subtasks", action="store_true", help="do not cancel the task's subtasks")
    parser.add_argument(
        "--assume-dead", action="store_true", help="for a frozen task: you confirm that all of its processes are dead"
    )
    add_json_option(parser)


def run_cancel(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    read_reason(arguments)
    chosen = choose_tasks(queries, arguments, "cancel")
    if chosen.is_many:
        return _cancel_many(queries, chosen.ids, arguments)
    task_id = chosen.ids[0]
    going = [] if arguments.keep_subtasks else queries.view("living_below", id=task_id)
    request = Commands(home, create=False).cancel(
        task_id, arguments.why, assume_dead=arguments.assume_dead, subtasks=not arguments.keep_subtasks
    )
    if going and not arguments.json:
        named = ", ".join(str(row["id"]) for row in going[:5])
        print(f"Its {len(going)} unfinished subtask(s) are cancelled too: {named} …")
    if request is not None and queries.supervisor() is None:
        raise Unavailable(recorded_only(task_id, RequestKind.CANCEL))
    if request is None:
        message = f"Cancelled {task_id}."
    elif arguments.no_wait:
        message = f"Asked the supervisor to cancel {task_id}."
    else:
        message = _wait(queries, request, RequestKind.CANCEL, task_id, STOP_PATIENCE)
    if arguments.json:
        print_json({"id": task_id, "state": queries.state(task_id)["state"], "subtasks": [row["id"] for row in going]})
    else:
        print(message)
    return 0


def _cancel_many(queries: Queries, ids: list[str], arguments: argparse.Namespace) -> int:
    if arguments.assume_dead:
        raise UsageError("--assume-dead works only with one task: give one id. Nothing was changed.")
    by, why, subtasks = operator_name(), arguments.why, not arguments.keep_subtasks
    rows = queries.view("states_of", ids=json.dumps(ids))
    living = {str(row["id"]) for row in rows if row["state"] in ("queued", "running", "paused")}

    def cancel(tx: Transaction, task_id: str) -> int | None:
        # cancelled a moment ago: together with its parent or with a task that it needs
        return cancel_in(tx, task_id, by, why, subtasks=subtasks, may_be_cancelled=task_id in living)

    results = stop_many(queries, ids, cancel, RequestKind.CANCEL, waits=not arguments.no_wait, patience=STOP_PATIENCE)
    return print_results(queries, results, as_json=arguments.json)


def configure_retry(parser: argparse.ArgumentParser) -> None:
    add_selection(parser, agent=False)
    parser.add_argument("--fresh", action="store_true", help="start from the base instead of where it stopped")
    parser.add_argument("--budget-usd", metavar="X", help="the task's new total budget in dollars")
    parser.add_argument("--budget-tokens", metavar="N", help="the task's new total budget in tokens")
    add_change_options(parser)
    add_json_option(parser)


def run_retry(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    wanted = _read_wanted(arguments, budget_usd=arguments.budget_usd, budget_tokens=arguments.budget_tokens)
    chosen = choose_tasks(queries, arguments, "retry")
    how = "from its base" if arguments.fresh else "where it stopped"
    if chosen.is_many:
        return _retry_many(queries, chosen.ids, wanted, arguments, how)
    task_id = chosen.ids[0]
    Commands(home, create=False).retry(task_id, fresh=arguments.fresh, given=_given(queries, task_id, wanted))
    if arguments.json:
        print_json({"id": task_id, "state": queries.state(task_id)["state"], "reason": f"queued again, {how}"})
    else:
        print(f"Queued {task_id} again, {how}.")
    _note_supervisor(queries)
    return 0


def _retry_many(queries: Queries, ids: list[str], wanted: Wish | None, arguments: argparse.Namespace, how: str) -> int:
    by, fresh = operator_name(), bool(arguments.fresh)
    read = _read_all_given(queries, ids, wanted)
    commands = Commands(queries.home, create=False)
    used: dict[str, Conflict] = {}
    for task_id in ids if fresh else ():
        try:
            commands.refuse_in_use(task_id)
        except Conflict as error:
            used[task_id] = error

    def retry(tx: Transaction, task_id: str) -> None:
        if task_id in used:
            raise used[task_id]
        retry_in(tx, task_id, by, fresh=fresh, given=read(task_id))

    results = change_many(queries, ids, retry, lambda task_id, _none: f"Queued {task_id} again, {how}.")
    return _print_many(queries, results, as_json=arguments.json)


def configure_approve(parser: argparse.ArgumentParser) -> None:
    add_selection(parser)
    parser.add_argument("--changes", metavar="TEXT", help="request these changes, and send the work back")
    parser.add_argument("--stage", metavar="NAME", help="the stage that makes the changes (default: `back_to`)")
    add_json_option(parser)


def run_approve(arguments: argparse.Namespace) -> int:
    home = home_directory()
    queries = Queries(home)
    chosen = choose_tasks(queries, arguments, "approve")
    if chosen.is_many:
        return _approve_many(queries, chosen.ids, arguments)
    task_id = chosen.ids[0]
    told = approve(home, task_id, arguments.changes, stage=arguments.stage)
    if arguments.json:
        print_json({"id": task_id, "state": "queued", "reason": told})
        return 0
    print(f"{task_id}: {clean_text(told)}.")
    _note_supervisor(queries)
    return 0


def _approve_many(queries: Queries, ids: list[str], arguments: argparse.Namespace) -> int:
    changes, stage, by = arguments.changes, arguments.stage, operator_name()
    if changes is not None:
        check_prompt(changes)
    elif stage is not None:
        raise UsageError("--stage names the stage that makes changes: give --changes TEXT too. Nothing was changed.")
    results = change_many(
        queries,
        ids,
        lambda tx, task_id: tx.stages.approve(task_id, by, clock.now(), changes, stage=stage),
        lambda task_id, told: f"{task_id}: {told}.",
    )
    return _print_many(queries, results, as_json=arguments.json)
