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

CLEANUP_PATIENCE = 15.0  # seconds; a task that has just ended is still being put away
MOST_SHOWN = 120  # characters of a message in a line


def send_message(home: str, task_id: str, text: str) -> TaskState:
    """Send a message to a task. Return the state of the task before. The message is on disk when this returns."""
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
    """Return the message that asks an agent to rebase its branch. Raise Conflict if the task has no branch."""
    from holdfast.core.tasks.messages import REBASE

    task = queries.task(task_id)
    if not task["branch"]:
        raise Conflict(f"Task {task_id} has no branch to rebase. Nothing was sent. Look with `holdfast why {task_id}`.")
    return REBASE.format(target=task["base_ref"])


def message_lines(task: TaskDetails) -> Iterator[str]:
    """Yield one sentence for each message of a task, the oldest first."""
    for one in task["messages"]:
        if one["run"] is not None:
            fate = f"given to run {one['run']}"
        elif task["state"] in ("queued", "running"):
            fate = "it waits for the end of the turn" if task["state"] == "running" else "its next run gets it"
        else:
            how = "resume" if task["state"] == "paused" else "retry"
            fate = f"it waits: `holdfast {how} {task['id']}` gives it to the agent"
        sent = f"Message {one['number']} by {one['by']} at {moment(one['at'])}"
        yield f"{sent}, {fate}: {one_line(one['text'], MOST_SHOWN)}"
