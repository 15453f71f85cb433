"""Subtasks: the parent of a new task, and the family of a task."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.api.queries import Queries
from holdfast.base.errors import Conflict, NotFound, Refused, Unavailable
from holdfast.processes.caller import Caller, find_caller

if TYPE_CHECKING:
    from holdfast.api.tasks.models import Relative, TaskDetails

NO_PARENT = "none"
LIVING = ("queued", "running", "paused")
MOST_NAMED = 5


def resolve_parent(home: str, given: str | None) -> str | None:
    """Return the named parent. If none is named and an agent adds the task, the parent is the agent's own task.

    A task that is added from inside a run is always below the run's own task: limits, budget and cancel of the family
    would not reach it otherwise.
    """
    caller = find_caller(home)
    if caller is not None:
        return _parent_inside(home, caller, given)
    if given is not None:
        return None if given == NO_PARENT else Queries(home).resolve(given)
    own = os.environ.get("HOLDFAST_TASK_ID", "")  # of a hook: it works for a task, but is not inside a run
    if not own:
        return None
    try:
        return str(Queries(home).state(own)["id"])
    except (NotFound, Unavailable):
        return None  # an agent of another home: its task is not in this store


def _parent_inside(home: str, caller: Caller, given: str | None) -> str:
    queries = Queries(home)
    parent = caller.task if given is None else given if given == NO_PARENT else queries.resolve(given)
    if parent == NO_PARENT or not _is_family(queries, caller, parent):
        raise Refused(
            f"This process belongs to task {caller.task}, so a task that it adds is a subtask of {caller.task} or of a "
            "task below it. Nothing was queued. Leave --parent out."
        )
    return parent


def _is_family(queries: Queries, caller: Caller, task_id: str | None) -> bool:
    """True if the task is the caller's own or below it."""
    while task_id is not None and caller.task:
        if task_id == caller.task:
            return True
        task_id = queries.state(task_id)["parent_id"]
    return False


# What a process inside a run may ask of its subtasks: command → options. Every other option is a person's: with it a
# person vouches for something, or gives more than the family has. `typed` and `command` are the command line itself.
_OF_SUBTASKS: dict[str, frozenset[str]] = {
    "cancel": frozenset({"keep_subtasks"}),
    "retry": frozenset({"fresh"}),
    "pause": frozenset({"seconds", "checkpoint"}),
    "resume": frozenset({"checkpoint"}),
    "wait": frozenset({"first", "timeout"}),
}
_OF_EVERY_COMMAND = frozenset({"id", "ids", "why", "json", "no_wait", "yes", "typed", "command"})
_OF_FILTER = ("of_state", "of_label", "of_agent", "of_repo", "of_all")


def refuse_agent(home: str, caller: Caller, command: str, arguments: Mapping[str, Any]) -> None:
    """Raise Refused for a command of people, unless it only controls a subtask of the caller's own task."""
    who = f"this process belongs to {f'run {caller.run} of ' if caller.run else ''}task {caller.task}"
    if command in _OF_SUBTASKS:
        queries = Queries(home)
        words = arguments["ids"] if "ids" in arguments else [arguments["id"]]
        if not words or any(arguments.get(name) for name in _OF_FILTER) or any(":" in str(word) for word in words):
            raise Refused(f"An agent names its subtasks by their ids: {who}. Nothing was changed.")
        for task_id in map(queries.resolve, map(str, words)):
            if task_id == caller.task or not _is_family(queries, caller, task_id):
                raise Refused(
                    f"Task {task_id} is not a subtask of task {caller.task}, to which this process belongs. Nothing "
                    f"was changed. Only a person can {command} it."
                )
        given = sorted(
            name
            for name in arguments.keys() - _OF_SUBTASKS[command] - _OF_EVERY_COMMAND
            if arguments[name] is not None and arguments[name] is not False and arguments[name] != []
        )
        if not given:
            return
        command += f" --{given[0].replace('_', '-')}"
    raise Refused(f"`holdfast {command}` is for people, and {who}. Nothing was changed. Ask a person to run it.")


def refuse_inside_run(home: str, command: str, arguments: Mapping[str, object]) -> None:
    """Raise Refused for a command of people if this process is inside a run of this home."""
    caller = find_caller(home)
    if caller is not None:
        refuse_agent(home, caller, command, arguments)


def refuse_endless_wait(home: str, parent: str | None) -> None:
    """Raise Conflict if an agent would wait for its own subtask with only one slot: the wait would never end."""
    caller = find_caller(home)
    own = os.environ.get("HOLDFAST_TASK_ID") if caller is None else caller.task
    if parent is None or parent != own:
        return
    running = Queries(home).supervisor()
    if running is not None and running["agents"] == 1:
        raise Conflict(
            "This supervisor runs one agent at a time, and you are that agent. A wait for a subtask would never end. "
            "Queue the subtask with `holdfast add`, and finish your own work. Nothing was queued."
        )


def family_lines(queries: Queries, task: TaskDetails) -> list[str]:
    """Return sentences about the parent and the subtasks of a task, for `why`."""
    lines = []
    if task["parent_id"] is not None:
        lines.append(f"It is a subtask of {task['parent_id']}, which is {queries.state(task['parent_id'])['state']}.")
    children = task["children"]
    living = [child for child in children if child["state"] in LIVING]
    if living:
        named = ", ".join(f"{child['id']} ({child['state']})" for child in living[:MOST_NAMED])
        more = f" and {len(living) - MOST_NAMED} more" if len(living) > MOST_NAMED else ""
        lines.append(
            f"{len(living)} of its {len(children)} subtask(s) are unfinished: {named}{more}. They continue by "
            f"themselves. `holdfast cancel {task['id']}` would cancel them too."
        )
    return lines


MOST_RELATIVES = 500


def list_relatives(queries: Queries, task_id: str) -> list[Relative]:
    """Return the parent, the needed tasks, the users of the same checkout and the subtasks of a task."""
    task = queries.state(task_id)
    found = [(task["parent_id"], "parent")] if task["parent_id"] else []
    found += [(row["id"], "needed first") for row in queries.view("needs", id=task_id)]
    found += [(row["id"], "in its checkout") for row in queries.view("in_its_checkout", id=task_id)]
    found += [(row["id"], "subtask") for row in queries.view("children", id=task_id)]
    made: list[Relative] = []
    for other, what in found[:MOST_RELATIVES]:
        row = queries.state(other)
        made.append(
            {"id": row["id"], "state": row["state"], "prompt": row["prompt"], "reason": row["reason"], "what": what}
        )
    return made
