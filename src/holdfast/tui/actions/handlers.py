"""What actions do: api commands, and the words to tell afterwards. No widgets here.

Each runs in a thread of its own, with the home and the row that the cursor was on. What a supervisor has to carry out
is `Asked`: its answer comes later. What is refused is raised, with the reason and the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.api.outcome import ActionOutcome, no_supervisor
from holdfast.api.queries import Queries
from holdfast.base.errors import Refused, UsageError
from holdfast.core.model import RequestKind

if TYPE_CHECKING:
    from holdfast.api.commands import Commands


Row = dict[str, Any]
WHY = "from holdfast top"


@dataclass(frozen=True)
class Asked:
    """A durable request: the supervisor says what became of it."""

    number: int
    task: str
    kind: RequestKind  # pause or cancel
    words: str  # told at once


Told = str | Asked


def commands(home: str) -> Commands:
    """Imported at the first key that needs it: the first picture does not wait for it."""
    from holdfast.api.commands import Commands

    return Commands(home, create=False)


def task_of(row: Row) -> str:
    """Whose workspace it is, whom the alert is about; or the task itself."""
    task = row["task"] if "task" in row else row["id"]
    if task is None:
        raise Refused("It belongs to no task of this home.")
    return str(task)


# -- tasks -------------------------------------------------------------------------------------------------------------


def pause(home: str, task: Row) -> Told:
    from holdfast.api.commands import pause

    number = pause(home, task_of(task), WHY)
    if number is None:
        return f"Paused {task_of(task)}; Resume lets it go on."
    return _asked(home, number, task_of(task), RequestKind.PAUSE)


def resume(home: str, task: Row) -> Told:
    told = commands(home).resume(task_of(task))
    return _with_note(home, f"{task_of(task)}: {told}.")


def cancel(home: str, task: Row) -> Told:
    number = commands(home).cancel(task_of(task), WHY)
    return f"Cancelled {task_of(task)}." if number is None else _asked(home, number, task_of(task), RequestKind.CANCEL)


def retry(home: str, task: Row) -> Told:
    commands(home).retry(task_of(task), fresh=False)
    return _with_note(home, f"Queued {task_of(task)} again, where it stopped.")


def retry_fresh(home: str, task: Row) -> Told:
    commands(home).retry(task_of(task), fresh=True)
    return _with_note(home, f"Queued {task_of(task)} again, from its base.")


def approve(home: str, task: Row) -> Told:
    from holdfast.api.tasks.stages import approve

    return _with_note(home, f"{task_of(task)}: {approve(home, task_of(task))}.")


def ask_changes(home: str, task: Row) -> Told:
    from holdfast.api.tasks.stages import approve

    if not task["answer"].strip():
        raise UsageError(f"You said nothing, so task {task_of(task)} still waits for your word.")
    return _with_note(home, f"{task_of(task)}: {approve(home, task_of(task), task['answer'])}.")


def merge(home: str, task: Row) -> Told:
    from holdfast.api.work.merge import merge

    done = merge(home, Queries(home).task(task_of(task)), None, no_ff=False)
    if done.how == "already there":
        return f"{done.target} has all of {done.source} already."
    where = f", and in {done.checkout}" if done.checkout else ""
    return f"{done.source} is merged into {done.target} ({done.how}, {done.commit[:12]}){where}."


# -- their workspaces --------------------------------------------------------------------------------------------------


def clean(home: str, row: Row) -> Told:
    from holdfast.api.work.workspaces import clean

    clean(home, [task_of(row)])
    return _with_note(home, f"The workspace of {task_of(row)} will be salvaged and removed.")


def keep(home: str, row: Row) -> Told:
    import math

    from holdfast.api.work.workspaces import keep

    kept = keep(home, task_of(row), math.inf)
    since = "" if kept["state"] == "preserved" else " after its task's end, whatever that is"
    return f"The workspace of {task_of(row)} is kept until you drop it{since}."


def shell(home: str, row: Row) -> Told:
    """In the terminal's own screen: the app has stepped aside."""
    import sys

    from holdfast.api.work.shell import open_shell

    queries = Queries(home)
    task = queries.task(task_of(row))
    print(f"The workspace of {task['id']} ({task['state']}); it stays while you are in it. `exit` goes back.")
    sys.stdout.flush()
    code = open_shell(queries, task, None)
    return f"The shell in the workspace of {task['id']} ended" + (f" with code {code}." if code else ".")


# -- pieces ------------------------------------------------------------------------------------------------------------


def _asked(home: str, number: int, task_id: str, kind: RequestKind) -> Asked:
    words = f"Asked the supervisor to {kind} {task_id}."
    if Queries(home).supervisor() is None:
        words = f"The request to {kind} {task_id} is recorded. {no_supervisor()}"
    return Asked(number, task_id, kind, words)


def _with_note(home: str, message: str) -> str:
    """Return the message, and a note if no supervisor is running to act on it."""
    note = "" if Queries(home).supervisor() else no_supervisor()
    return ActionOutcome(message=message, note=note).text


# -- workers -----------------------------------------------------------------------------------------------------------


def start_worker(home: str, worker: Row) -> str:
    return _steer(home, worker, "start")


def stop_worker(home: str, worker: Row) -> str:
    return _steer(home, worker, "stop")


def stop_worker_now(home: str, worker: Row) -> str:
    return _steer(home, worker, "stop", at_once=True)


def restart_worker(home: str, worker: Row) -> str:
    return _steer(home, worker, "restart")


def _steer(home: str, worker: Row, action: str, *, at_once: bool = False) -> str:
    from holdfast.api.fleet.workers import steer_worker

    return steer_worker(home, action, worker["name"], at_once=at_once).text


# -- alerts ------------------------------------------------------------------------------------------------------------


def ack(home: str, alert: Row) -> str:
    commands(home).ack_alert(alert["id"], WHY)
    return f"Acknowledged alert {alert['id']}."


def ack_all(home: str, _alert: Row) -> str:
    done = commands(home).ack_all_alerts(WHY)
    return f"{len(done)} alerts acknowledged." if done else "No alert is open any more."


def mend(home: str, alert: Row) -> str:
    from holdfast.api.fleet.alerts import mend

    return mend(home, alert)


# -- schedules ---------------------------------------------------------------------------------------------------------


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
    from holdfast.api.fleet.schedules import schedules
    from holdfast.base.errors import NotFound

    for row in schedules(home)[0]:
        if (row["repo"], row["name"]) == (schedule["repo"], schedule["name"]):
            return row
    raise NotFound(f"The schedule {schedule['name']} is not in its file any more.")


# -- what is held back -------------------------------------------------------------------------------------------------


def release(home: str, _nothing: Row) -> str:
    from holdfast.api.fleet.dispatch import describe_release, release

    return describe_release(*release(home, None))


# -- the supervisor ----------------------------------------------------------------------------------------------------


def start_supervisor(home: str, _nothing: Row) -> str:
    from holdfast.api.home.daemon import start_detached

    pid = start_detached(home, agents=None, idle_exit=None)
    return f"Started a supervisor (pid {pid}); it stays until `holdfast down`."
