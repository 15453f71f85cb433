"""What is asked before something is destroyed or the user's branch changes: what would happen, in the words of the
moment. They run in a thread, as deeds do. None: there is nothing to ask. What would be refused anyway is refused here,
before anybody has to think about it."""

from __future__ import annotations

from typing import Any

from holdfast.api.queries import Queries
from holdfast.base.text import one_line
from holdfast.tui.actions.handlers import task_of

Row = dict[str, Any]


def cancel(home: str, task: Row) -> str | None:
    queries, task_id = Queries(home), task_of(task)
    found = queries.state(task_id)
    if found["state"] not in ("queued", "running", "paused"):
        return None  # the command says so
    below = len(queries.view("living_below", id=task_id))
    with_it = f" With it {below} unfinished subtask{'s are' if below > 1 else ' is'} cancelled." if below else ""
    end = "Its agent is ended; its work is saved." if found["state"] == "running" else "Its work so far is saved."
    return f"Cancel task {task_id}? {end}{with_it}\n\n{one_line(found['prompt'], 200)}"


def retry_fresh(home: str, task: Row) -> str | None:
    found = Queries(home).state(task_of(task))
    if found["state"] not in ("failed", "cancelled"):
        return None
    return (
        f"Start task {found['id']} again from its base? Its workspace and session go; what it did so far is saved, "
        f"but its new agent does not have it. (Retry goes on where it stopped.)\n\n{one_line(found['prompt'], 200)}"
    )


def merge(home: str, task: Row) -> str | None:
    from holdfast.api.work.merge import preview

    plan = preview(Queries(home).task(task_of(task)), None)
    if not plan.commits:
        return None  # it is there already
    commits = f"{plan.commits} commit{'s' if plan.commits > 1 else ''}"
    where = f" Your checkout {plan.checkout} moves along." if plan.checkout else ""
    return f"Merge {plan.source} ({commits}) into {plan.target}?{where}"


def clean(home: str, row: Row) -> str | None:
    """The size is not asked for: that may take seconds."""
    task_id = task_of(row)
    preserved = [
        found for found in Queries(home).workspaces() if found["task"] == task_id and found["state"] == "preserved"
    ]
    if not preserved:
        return None
    paths = "\n".join(found["path"] for found in preserved)
    return f"Drop the preserved workspace of task {task_id}? It is salvaged first, then removed:\n\n{paths}"


def shell(home: str, row: Row) -> str | None:
    """Nothing to ask; but no shell is no reason to leave the screen."""
    from holdfast.api.work.shell import refuse_missing

    task = Queries(home).task(task_of(row))
    refuse_missing(task, task["workspace"])
    return None


def stop_worker(home: str, worker: Row) -> str | None:
    task = _at_work_on(home, worker)
    if task is None:
        return None
    return f"Stop worker {worker['name']}? It finishes its task {task} first, then takes no other."


def stop_worker_now(home: str, worker: Row) -> str | None:
    task = _at_work_on(home, worker)
    if task is None:
        return None
    return (
        f"Stop worker {worker['name']} now? The agent of its task {task} is ended; the task stays queued, "
        "and any other may take it."
    )


def _at_work_on(home: str, worker: Row) -> str | None:
    """As it is now: it may have taken a task since the screen was drawn."""
    from holdfast.api.fleet.workers import workers

    return next((row["task"] for row in workers(home) if row["name"] == worker["name"]), None)


def ack_all(home: str, _alert: Row) -> str | None:
    number, worst = Queries(home).open_alerts()
    if not number:
        return None
    return f"Acknowledge {'all ' if number > 1 else ''}{number} open alert{'s' if number > 1 else ''} (worst: {worst})?"


def fire(_home: str, schedule: Row) -> str | None:
    return f"Fire the schedule {schedule['name']} now? Its task is queued at once; its times stay as they are."
