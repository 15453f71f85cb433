"""The forms of actions that need words: a new task, a message to tasks, changes to a result.

A form has fields with names. The values that the user typed are passed on to the action's function with its row.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import HoldfastError
from holdfast.base.text import one_line

Row = dict[str, Any]
MOST_NAMED = 8  # tasks that a form or a question names


@dataclass(frozen=True)
class Field:
    """One field of a form. A long field takes several lines."""

    name: str
    label: str
    value: str = ""
    is_long: bool = False


@dataclass(frozen=True)
class FormSpec:
    """The content of a form. `verb` names the action of its last key."""

    title: str
    verb: str
    fields: Sequence[Field]


def task_line(row: Row) -> str:
    """Return one line that names a task: its id, its state and its prompt."""
    return f"  {row['id']}  {row['state']}  {one_line(row['prompt'], 60)}"


def name_tasks(rows: Sequence[Row]) -> str:
    """Return a line for each task, and the number of tasks that are not named."""
    lines = [task_line(row) for row in rows[:MOST_NAMED]]
    if len(rows) > MOST_NAMED:
        lines.append(f"  and {len(rows) - MOST_NAMED} more")
    return "\n".join(lines)


def new_task_form(home: str, rows: Sequence[Row]) -> FormSpec:
    """Return the form of a new task. Its repository is this directory's, else that of the row under the cursor."""
    from holdfast.config import load
    from holdfast.intake.repository import locate_repository

    directory, agent = os.getcwd(), ""
    for candidate in (directory, *(str(row["repo"]) for row in rows if row.get("repo"))):
        try:
            directory = locate_repository(candidate)[0]
            agent = str(load(repo=directory, home=home)["agent"] or "")
            break
        except HoldfastError:  # adding the task names the reason
            continue
    return FormSpec(
        title="A new task",
        verb="add",
        fields=(
            Field("prompt", "Prompt: what should the agent do?", is_long=True),
            Field("agent", f"Agent (empty: {one_line(agent, 40)})" if agent else "Agent, such as claude or codex"),
            Field("gate", "Gate: a command that checks the work (empty: as set)"),
            Field("permission", "Permission: read, edit or full (empty: as set)"),
            Field("directory", "Repository", directory),
        ),
    )


def message_form(_home: str, rows: Sequence[Row]) -> FormSpec:
    many = f"{len(rows)} marked tasks" if len(rows) > 1 else "this task"
    return FormSpec(
        title=f"A message to {many}:\n{name_tasks(rows)}",
        verb="send",
        fields=(Field("answer", "What should the agent do now?", is_long=True),),
    )


def changes_form(_home: str, rows: Sequence[Row]) -> FormSpec:
    return FormSpec(
        title=f"Changes to the result of this task:\n{name_tasks(rows)}",
        verb="send",
        fields=(Field("answer", "What should be changed? The agent gets this text.", is_long=True),),
    )
