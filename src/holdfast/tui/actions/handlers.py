"""What actions do: api commands, and the words to tell afterwards. No widgets here.

Each runs in a thread of its own, with the home and the row that the cursor was on. What a supervisor has to carry out
is `Asked`: its answer comes later. What is refused is raised, with the reason and the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.api.queries import Queries
from holdfast.base.errors import Refused, UsageError

if TYPE_CHECKING:
    from holdfast.api.commands import Commands

Row = dict[str, Any]
WHY = "from holdfast top"
ASLEEP = "No supervisor is running; `holdfast up` starts one."


@dataclass(frozen=True)
class Asked:
    """A durable request: the supervisor says what became of it."""

    number: int
    task: str
    doing: str  # pause, cancel
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
    from holdfast.api.pausing import pause

    number = pause(home, task_of(task), WHY)
    if number is None:
        return f"Paused {task_of(task)}; Resume lets it go on."
    return _asked(home, number, task_of(task), "pause")


def resume(home: str, task: Row) -> Told:
    told = commands(home).resume(task_of(task))
    return _awake(home, f"{task_of(task)}: {told}.")


def cancel(home: str, task: Row) -> Told:
    number = commands(home).cancel(task_of(task), WHY)
    return f"Cancelled {task_of(task)}." if number is None else _asked(home, number, task_of(task), "cancel")


def retry(home: str, task: Row) -> Told:
    commands(home).retry(task_of(task), fresh=False)
    return _awake(home, f"Queued {task_of(task)} again, where it stopped.")


def retry_fresh(home: str, task: Row) -> Told:
    commands(home).retry(task_of(task), fresh=True)
    return _awake(home, f"Queued {task_of(task)} again, from its base.")


def approve(home: str, task: Row) -> Told:
    from holdfast.api.tasks.stages import approve

    return _awake(home, f"{task_of(task)}: {approve(home, task_of(task))}.")


def ask_changes(home: str, task: Row) -> Told:
    from holdfast.api.tasks.stages import approve

    if not task["answer"].strip():
        raise UsageError(f"You said nothing, so task {task_of(task)} still waits for your word.")
    return _awake(home, f"{task_of(task)}: {approve(home, task_of(task), task['answer'])}.")


def merge(home: str, task: Row) -> Told:
    from holdfast.api.work.merge import merge

    done = merge(home, Queries(home).task(task_of(task)), None, no_ff=False)
    if done.how == "already there":
        return f"{done.target} has all of {done.source} already."
    where = f", and in {done.checkout}" if done.checkout else ""
    return f"{done.source} is merged into {done.target} ({done.how}, {done.commit[:12]}){where}."


# -- their workspaces --------------------------------------------------------------------------------------------------


def clean(home: str, row: Row) -> Told:
    from holdfast.api.work.zz_workspaces import clean

    clean(home, [task_of(row)])
    return _awake(home, f"The workspace of {task_of(row)} will be salvaged and removed.")


def keep(home: str, row: Row) -> Told:
    import math

    from holdfast.api.work.zz_workspaces import keep

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


def _asked(home: str, number: int, task_id: str, doing: str) -> Asked:
    words = f"Asked the supervisor to {doing} {task_id}."
    if Queries(home).supervisor() is None:
        words = f"The request to {doing} {task_id} is recorded. {ASLEEP}"
    return Asked(number, task_id, doing, words)


def _awake(home: str, words: str) -> str:
    return words if Queries(home).supervisor() is not None else f"{words} {ASLEEP}"
