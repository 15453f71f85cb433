"""Pausing a task: at once while it waits, by a durable request while its agent works."""

from __future__ import annotations

from holdfast.api.commands import who
from holdfast.base import clock
from holdfast.base.errors import Conflict
from holdfast.core.model import RequestKind
from holdfast.core.states import TaskState
from holdfast.store import doorbell
from holdfast.store.open import open_store
from holdfast.store.port.transaction import Transaction

PAUSED = "the task is paused"  # what the supervisor answers when it is


def pause(home: str, task_id: str, why: str = "", seconds: float | None = None, *, force: bool = False) -> int | None:
    """None: done (it was waiting). A number: the request that the supervisor has to carry out."""

    def ask(tx: Transaction) -> int | None:
        now, task = clock.now(), tx.tasks.get(task_id)
        until = None if seconds is None else now.wall + seconds
        if task.state is TaskState.QUEUED:
            tx.tasks.pause_waiting(task_id, who(), why, until, now)
            return None
        if task.state is not TaskState.RUNNING:
            again = f" `holdfast why {task_id}` says until when." if task.state is TaskState.PAUSED else ""
            raise Conflict(f"Task {task_id} is {task.state} already; nothing was changed.{again}")
        data = {"until": until, "seconds": seconds, "force": force}
        return tx.requests.ask(RequestKind.PAUSE, task_id, who(), why, data, now)

    request = open_store(home, create=False).write(ask)
    doorbell.ring(home)
    return request
