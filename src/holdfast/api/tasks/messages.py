"""Messages of people to a task: sending them, and the lines that are printed about them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.api.format import moment
from holdfast.base.errors import Conflict, StillCleaning
from holdfast.base.text import one_line

if TYPE_CHECKING:
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import TaskDetails
    from holdfast.core.states import TaskState
    from holdfast.store.port.transaction import Transaction

CLEANUP_PATIENCE = 15.0  # seconds; a task that has just ended is still being removed
MOST_SHOWN = 120  # characters of a message in a line


def send_message(home: str, task_id: str, text: str) -> TaskState:
    """Send a message to a task. Return the state that the task had before. The message is on disk when this returns."""
    from holdfast.api.commands import Commands, check_prompt, operator_name, refuse_spent
    from holdfast.base import clock
    from holdfast.core.states import TaskState

    check_prompt(text)
    commands, by = Commands(home, create=False), operator_name()

    def send(tx: Transaction) -> TaskState:
        task = tx.tasks.get(task_id)
        if task.state not in (TaskState.QUEUED, TaskState.RUNNING):
            refuse_spent(tx, task)
        return tx.messages.send(task_id, text, by, clock.now())

    deadline = time.monotonic() + CLEANUP_PATIENCE
    while True:
        try:
            return commands.write(send)
        except StillCleaning:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def rebase_text(queries: Queries, task_id: str) -> str:
    """Return the message that asks an agent to rebase its branch. Raise Conflict if there is nothing to rebase."""
    from holdfast.core.states import TASK_TERMINAL
    from holdfast.core.tasks.messages import REBASE
    from holdfast.workspaces.git.merge import has_commit, tip_of

    task = queries.task(task_id)
    repo, base, branch = task["repo"], task["base_ref"], task["branch"]
    if not branch:
        raise Conflict(f"Task {task_id} has no branch to rebase. Nothing was sent. Look with `holdfast why {task_id}`.")
    commit = tip_of(repo, base)
    if commit is None:
        raise Conflict(
            f"Task {task_id} started from {base}, which is not a branch of {repo}. Nothing was sent. Name the base: "
            f'`holdfast send {task_id} "Rebase onto BRANCH"`.'
        )
    tip = tip_of(repo, branch)
    if task["state"] in {str(state) for state in TASK_TERMINAL} and tip is not None and has_commit(repo, tip, commit):
        raise Conflict(
            f"The branch of task {task_id} already contains all of {base}. Nothing was sent. `holdfast merge "
            f"{task_id}` "
            "merges it."
        )
    return REBASE.format(target=base, commit=commit)


def message_lines(task: TaskDetails) -> Iterator[str]:
    """Yield one sentence for each message of a task, the oldest first."""
    for one in task["messages"]:
        if one["run"] is not None:
            fate = f"given to run {one['run']}"
        elif task["state"] in ("queued", "running"):
            fate = "it waits until the turn ends" if task["state"] == "running" else "its next run gets it"
        else:
            how = "resume" if task["state"] == "paused" else "retry"
            fate = f"it waits: `holdfast {how} {task['id']}` gives it to the agent"
        sent = f"Message {one['number']} by {one['by']} at {moment(one['at'])}"
        yield f"{sent}, {fate}: {one_line(one['text'], MOST_SHOWN)}"
