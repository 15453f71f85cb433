"""The handlers of actions, by subject: tasks, workspaces, workers, alerts, schedules, holds. No widgets here.

Every function runs in a thread, with the home and the row under the cursor. A handler calls the api and returns the
message to show, or `Asked` if a supervisor has to carry the request out. `confirm_…` returns the question to ask before
an action destroys something or changes the user's branch. None means that there is nothing to ask. Refusals are raised,
with the reason and the remedy.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from holdfast.api.outcome import ActionOutcome, no_supervisor
from holdfast.api.queries import Queries
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Refused, UsageError
from holdfast.base.text import clean_text, one_line
from holdfast.core.model import RequestKind

if TYPE_CHECKING:
    from holdfast.api.commands import Commands
    from holdfast.api.work.pull_request import PullRequest


Row = dict[str, Any]
WHY = "from holdfast top"


@dataclass(frozen=True)
class Asked:
    """A recorded request. The supervisor answers it later."""

    number: int
    task: str
    kind: RequestKind  # pause or cancel
    message: str  # shown at once


ActionResult = str | Asked


def commands(home: str) -> Commands:
    """Return the commands of the home. They are imported on first use, so the first frame does not wait for them."""
    from holdfast.api.commands import Commands

    return Commands(home, create=False)


def task_of(row: Row) -> str:
    """Return the id of the row's task. The row is a task, or a workspace or an alert that belongs to one."""
    task = row["task"] if "task" in row else row["id"]
    if task is None:
        raise Refused("It does not belong to a task of this home.")
    return str(task)


def _ask(home: str, number: int, task_id: str, kind: RequestKind) -> Asked:
    message = f"Asked the supervisor to {kind} {task_id}."
    if Queries(home).supervisor() is None:
        message = f"The request to {kind} {task_id} is recorded. {no_supervisor()}"
    return Asked(number, task_id, kind, message)


def _with_note(home: str, message: str) -> str:
    """Return the message, with a note if no supervisor is running to act on the change."""
    note = "" if Queries(home).supervisor() else no_supervisor()
    return ActionOutcome(message=message, note=note).text


# -- tasks -------------------------------------------------------------------------------------------------------------


def pause(home: str, task: Row) -> ActionResult:
    from holdfast.api.commands import pause

    number = pause(home, task_of(task), WHY)
    if number is None:
        return f"Paused {task_of(task)}; Resume lets it continue."
    return _ask(home, number, task_of(task), RequestKind.PAUSE)


def resume(home: str, task: Row) -> ActionResult:
    return _with_note(home, f"{task_of(task)}: {commands(home).resume(task_of(task))}.")


def confirm_cancel(home: str, task: Row) -> str | None:
    queries, task_id = Queries(home), task_of(task)
    found = queries.state(task_id)
    if found["state"] not in ("queued", "running", "paused"):
        return None  # the command refuses it
    below = len(queries.view("living_below", id=task_id))
    too = f" {below} unfinished subtask{'s are' if below > 1 else ' is'} cancelled too." if below else ""
    end = "Its agent is ended; its work is saved." if found["state"] == "running" else "Its work so far is saved."
    return f"Cancel task {task_id}? {end}{too}\n\n{one_line(found['prompt'], 200)}"


def cancel(home: str, task: Row) -> ActionResult:
    number = commands(home).cancel(task_of(task), WHY)
    if number is None:
        return f"Cancelled {task_of(task)}."
    return _ask(home, number, task_of(task), RequestKind.CANCEL)


def retry(home: str, task: Row) -> ActionResult:
    commands(home).retry(task_of(task), fresh=False)
    return _with_note(home, f"Queued {task_of(task)} again, from where it stopped.")


def confirm_retry_fresh(home: str, task: Row) -> str | None:
    found = Queries(home).state(task_of(task))
    if found["state"] not in ("failed", "cancelled"):
        return None  # the command refuses it
    return (
        f"Start task {found['id']} again from its base? Its workspace and session are removed. Its work so far is "
        "saved, but the new agent does not see it. (Retry continues from where it "
        f"stopped.)\n\n{one_line(found['prompt'], 200)}"
    )


def retry_fresh(home: str, task: Row) -> ActionResult:
    commands(home).retry(task_of(task), fresh=True)
    return _with_note(home, f"Queued {task_of(task)} again, from its base.")


def approve(home: str, task: Row) -> ActionResult:
    from holdfast.api.tasks.stages import approve

    return _with_note(home, f"{task_of(task)}: {approve(home, task_of(task))}.")


def send(home: str, task: Row) -> ActionResult:
    from holdfast.api.tasks.messages import send_message

    before = str(send_message(home, task_of(task), task["answer"]))
    if before == "running":
        return f"Sent to {task_of(task)}: its agent gets the message at the end of its turn."
    again = "" if before == "queued" else f" It was {before} and is queued again."
    return _with_note(home, f"Sent to {task_of(task)}: its next run gets the message.{again}")


def add_task(home: str, form: Row) -> ActionResult:
    """Add a task from the values of the form, with the checks of `holdfast add`."""
    from holdfast.api.commands import NewTask
    from holdfast.api.tasks.subtasks import resolve_parent

    permission = form["permission"].strip() or None
    if permission not in (None, "read", "edit", "full"):
        raise UsageError(
            f"The permission must be read, edit or full, not '{one_line(permission, 40)}'. Nothing was queued."
        )
    new = NewTask(
        prompt=form["prompt"],
        directory=os.path.abspath(os.path.expanduser(form["directory"].strip() or ".")),
        agent=form["agent"].strip() or None,
        gate=form["gate"].strip() or None,
        permission=permission,
        parent=resolve_parent(home, None),
    )
    made = commands(home)
    task = made.add(new)
    return _with_note(home, " ".join((f"Queued {task.id}.", *made.notes)))


def ask_changes(home: str, task: Row) -> ActionResult:
    from holdfast.api.tasks.stages import approve

    if not task["answer"].strip():
        raise UsageError(f"You entered no text. Task {task_of(task)} still waits for your approval.")
    return _with_note(home, f"{task_of(task)}: {approve(home, task_of(task), task['answer'])}.")


def confirm_merge(home: str, task: Row) -> str | None:
    from holdfast.api.work.merge import preview

    plan = preview(Queries(home).task(task_of(task)), None)
    if not plan.commits:
        return None  # everything is merged already
    commits = f"{plan.commits} commit{'s' if plan.commits > 1 else ''}"
    where = f" Your checkout {plan.checkout} is updated too." if plan.checkout else ""
    return f"Merge {plan.source} ({commits}) into {plan.target}?{where}"


def merge(home: str, task: Row) -> ActionResult:
    from holdfast.api.work.merge import merge

    done = merge(home, Queries(home).task(task_of(task)), None, no_ff=False)
    if done.how == "already there":
        return f"{done.target} has all of {done.source} already."
    where = f", and in {done.checkout}" if done.checkout else ""
    return f"{done.source} is merged into {done.target} ({done.how}, {done.commit[:12]}){where}."


def confirm_pull_request(home: str, task: Row) -> str:
    from holdfast.api.work.pull_request import find_gh

    proposal = _pull_request(home, task)
    where = one_line(", ".join(proposal.urls), 300)
    then = "open a pull request into" if find_gh() else "show where to open a pull request into"
    return f"Push {proposal.branch} to {where}, and {then} {proposal.base}?\n\n{proposal.title}"


def open_pull_request(home: str, task: Row) -> ActionResult:
    """Push and open the pull request. The app has handed the terminal over: git and `gh` may ask for a login."""
    from holdfast.api.work.pull_request import find_gh, open_pull_request, push_branch

    proposal, gh = _pull_request(home, task), find_gh()
    try:
        if gh is not None:
            print(clean_text(open_pull_request(proposal, gh, draft=False)))
        else:
            push_branch(proposal)
    finally:
        with contextlib.suppress(EOFError):
            input("Enter goes back to holdfast top. ")
    if gh is not None:
        return f"{proposal.branch} is pushed, and its pull request is open."
    page = proposal.compare_page
    return f"{proposal.branch} is pushed. " + (f"Open the pull request: {page}" if page else "It is on the remote.")


def _pull_request(home: str, task: Row) -> PullRequest:
    from holdfast.api.work.pull_request import build_pull_request, refuse_after_changes

    queries = Queries(home)
    found = queries.task(task_of(task))
    refuse_after_changes(queries, found)
    return build_pull_request(found, remote=None, base=None)


# -- workspaces --------------------------------------------------------------------------------------------------------


def confirm_clean(home: str, row: Row) -> str | None:
    """Return the question with the paths, but without their sizes: measuring may take seconds."""
    task_id = task_of(row)
    preserved = [
        found for found in Queries(home).workspaces() if found["task"] == task_id and found["state"] == "preserved"
    ]
    if not preserved:
        return None
    paths = "\n".join(found["path"] for found in preserved)
    return f"Drop the preserved workspace of task {task_id}? It is salvaged first, then removed:\n\n{paths}"


def clean(home: str, row: Row) -> ActionResult:
    from holdfast.api.work.workspaces import clean

    clean(home, [task_of(row)])
    return _with_note(home, f"The workspace of {task_of(row)} will be salvaged and removed.")


def keep(home: str, row: Row) -> ActionResult:
    import math

    from holdfast.api.work.workspaces import keep

    kept = keep(home, task_of(row), math.inf)
    since = "" if kept["state"] == "preserved" else ", however its task ends"
    return f"The workspace of {task_of(row)} is kept until you drop it{since}."


def check_shell(home: str, row: Row) -> None:
    """Raise Refused if there is no workspace for a shell. The check comes before the app hands the terminal over."""
    from holdfast.api.work.shell import refuse_missing

    task = Queries(home).task(task_of(row))
    refuse_missing(task, task["workspace"])


def shell(home: str, row: Row) -> ActionResult:
    """Run a shell in the workspace. The app has handed the terminal over."""
    import sys

    from holdfast.api.work.shell import open_shell

    queries = Queries(home)
    task = queries.task(task_of(row))
    print(f"The workspace of {task['id']} ({task['state']}). It is kept while you are in it. `exit` goes back.")
    sys.stdout.flush()
    code = open_shell(queries, task, None)
    return f"The shell in the workspace of {task['id']} ended" + (f" with code {code}." if code else ".")


# -- workers -----------------------------------------------------------------------------------------------------------


def start_worker(home: str, worker: Row) -> str:
    return _steer(home, worker, "start")


def confirm_stop_worker(home: str, worker: Row) -> str | None:
    task = _task_of_worker(home, worker)
    if task is None:
        return None
    return f"Stop worker {worker['name']}? It finishes its task {task} first, then takes no other."


def stop_worker(home: str, worker: Row) -> str:
    return _steer(home, worker, "stop")


def confirm_stop_worker_now(home: str, worker: Row) -> str | None:
    task = _task_of_worker(home, worker)
    if task is None:
        return None
    return (
        f"Stop worker {worker['name']} now? The agent of its task {task} is ended; the task stays queued, "
        "and any other may take it."
    )


def stop_worker_now(home: str, worker: Row) -> str:
    return _steer(home, worker, "stop", at_once=True)


def restart_worker(home: str, worker: Row) -> str:
    return _steer(home, worker, "restart")


def _steer(home: str, worker: Row, action: str, *, at_once: bool = False) -> str:
    from holdfast.api.fleet.workers import steer_worker

    return steer_worker(home, action, worker["name"], at_once=at_once).text


def _task_of_worker(home: str, worker: Row) -> str | None:
    """Return the current task of the worker. The worker may have taken a task since the screen was drawn."""
    from holdfast.api.fleet.workers import list_workers

    return next((row["task"] for row in list_workers(home) if row["name"] == worker["name"]), None)


# -- alerts ------------------------------------------------------------------------------------------------------------


def ack(home: str, alert: Row) -> str:
    commands(home).ack_alert(alert["id"], WHY)
    return f"Acknowledged alert {alert['id']}."


def confirm_ack_all(home: str, _alert: Row) -> str | None:
    number, worst = Queries(home).open_alerts()
    if not number:
        return None
    return f"Acknowledge {'all ' if number > 1 else ''}{number} open alert{'s' if number > 1 else ''} (worst: {worst})?"


def ack_all(home: str, _alert: Row) -> str:
    done = commands(home).ack_all_alerts(WHY)
    return f"{len(done)} alerts acknowledged." if done else "No alert is open any more."


def restart_cause(home: str, alert: Row) -> str:
    from holdfast.api.fleet.alerts import mend

    return mend(home, alert)


# -- schedules ---------------------------------------------------------------------------------------------------------


def confirm_fire(_home: str, schedule: Row) -> str | None:
    return f"Fire the schedule {schedule['name']} now? Its task is queued at once; its times do not change."


def fire(home: str, schedule: Row) -> str:
    from holdfast.api.fleet.schedules import fire_schedule

    return fire_schedule(home, _reread(home, schedule)).text


def enable(home: str, schedule: Row) -> str:
    return _switch(home, schedule, on=True)


def disable(home: str, schedule: Row) -> str:
    return _switch(home, schedule, on=False)


def _switch(home: str, schedule: Row, *, on: bool) -> str:
    from holdfast.api.fleet.schedules import switch_schedule

    return switch_schedule(home, _reread(home, schedule), on=on).text


def _reread(home: str, schedule: Row) -> Row:
    """Return the schedule as its file has it now. The row on the screen may be older."""
    from holdfast.api.fleet.schedules import list_schedules
    from holdfast.base.errors import NotFound

    for row in list_schedules(home)[0]:
        if (row["repo"], row["name"]) == (schedule["repo"], schedule["name"]):
            return row
    raise NotFound(f"The schedule {schedule['name']} is not in its file any more.")


# -- the whole home ----------------------------------------------------------------------------------------------------


def release(home: str, _nothing: Row) -> str:
    from holdfast.api.fleet.dispatch import describe_release, release

    return describe_release(*release(home, None))


def start_supervisor(home: str, _nothing: Row) -> str:
    from holdfast.api.home.daemon import start_detached

    pid = start_detached(home, agents=None, idle_exit=None)
    return f"Started a supervisor (pid {pid}); it stays until `holdfast down`."
