"""Subtasks for people: whose subtask a new task is, and what there is to say about a task's family."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.api.queries import Queries
from holdfast.base.errors import Conflict, NotFound, Unavailable

Row = dict[str, Any]
NOBODY = "none"
LIVING = ("queued", "running", "paused")
MOST_NAMED = 5


def chosen_parent(home: str, given: str | None) -> str | None:
    """The task that was named; else, for an agent of ours, its own task: what it adds belongs to what it works on."""
    if given is not None:
        return None if given == NOBODY else Queries(home).resolve(given)
    own = os.environ.get("HOLDFAST_TASK_ID", "")
    if not own:
        return None
    try:
        return str(Queries(home).state(own)["id"])
    except (NotFound, Unavailable):
        return None  # it is an agent of another home, whose tasks are none of this one's


def refuse_waiting(home: str, parent: str | None) -> None:
    """An agent that waits for its own subtask keeps its place meanwhile: with one place it would wait for ever."""
    if parent is None or parent != os.environ.get("HOLDFAST_TASK_ID"):
        return
    running = Queries(home).supervisor()
    if running is not None and running["agents"] == 1:
        raise Conflict(
            "This supervisor runs one agent at a time, and that is you: waiting for a subtask would never end. Queue "
            "it with `holdfast add` and end your own work. Nothing was queued."
        )


def family_lines(queries: Queries, task: Row) -> list[str]:
    """Sentences for `why`."""
    lines = []
    if task["parent_id"] is not None:
        lines.append(f"It is a subtask of {task['parent_id']}, which is {queries.state(task['parent_id'])['state']}.")
    children: list[Row] = task["children"]
    living = [child for child in children if child["state"] in LIVING]
    if living:
        named = ", ".join(f"{child['id']} ({child['state']})" for child in living[:MOST_NAMED])
        more = f" and {len(living) - MOST_NAMED} more" if len(living) > MOST_NAMED else ""
        lines.append(
            f"{len(living)} of its {len(children)} subtask(s) are unfinished: {named}{more}. They go on by themselves; "
            f"`holdfast cancel {task['id']}` would cancel them too."
        )
    return lines


def in_tree(rows: Iterable[Row]) -> Iterator[tuple[int, Row]]:
    """(level, row): subtasks behind their parent, where that is listed too; otherwise in the order they came."""
    known = list(rows)
    ids = {row["id"] for row in known}
    below: dict[str | None, list[Row]] = {}
    for row in known:
        below.setdefault(row["parent_id"] if row["parent_id"] in ids else None, []).append(row)
    waiting = [(0, row) for row in reversed(below.get(None, []))]
    while waiting:
        level, row = waiting.pop()
        yield level, row
        waiting += [(level + 1, child) for child in reversed(below.get(row["id"], []))]


MOST_RELATIVES = 500


def relatives(queries: Queries, task_id: str) -> list[Row]:
    """The tasks that have to do with it: id, state, prompt, reason, and `what` it is to the task."""
    task = queries.state(task_id)
    found = [(task["parent_id"], "parent")] if task["parent_id"] else []
    found += [(row["id"], "needed first") for row in queries.view("needs", id=task_id)]
    found += [(row["id"], "in its checkout") for row in queries.view("in_its_checkout", id=task_id)]
    found += [(row["id"], "subtask") for row in queries.view("children", id=task_id)]
    made = []
    for other, what in found[:MOST_RELATIVES]:
        row = queries.state(other)
        made.append({**{key: row[key] for key in ("id", "state", "prompt", "reason")}, "what": what})
    return made
