"""Subtasks in the store: limits on adding one, and what happens to the subtasks of a cancelled task.

core/tasks/subtasks.py decides. This module reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict
from holdfast.base.instant import Instant
from holdfast.core.model import Event, RequestKind, Task
from holdfast.core.states import TaskState
from holdfast.core.tasks.subtasks import SubtaskFate, affects_subtasks, fate_of_subtask, refuse_subtask
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.hosts import SqliteRequests

BY = "holdfast"


class SubtaskTree:
    """The part of the tasks facet about subtasks. `get`: the function that reads a task."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents, get: Callable[[str], Task]) -> None:
        self._sql = Statements(connection, "subtasks")
        self._events = events
        self._requests = SqliteRequests(connection)
        self._get = get

    def refuse_too_many(self, parent_id: str) -> None:
        """Raise Conflict if the limits allow the parent no further subtask. The first task of a family sets the limits,
        so the process that adds a subtask cannot raise them."""
        parent = self._get(parent_id)
        [line] = self._sql.rows("line", id=parent_id)
        root = self._get(str(line["id"]))
        known = int(self._sql.value("how_many", id=root.id))
        why = refuse_subtask(parent_id, parent.state, int(line["depth"]) + 1, known, root.spec.subtasks)
        if why is not None:
            raise Conflict(why)

    def emit_added(self, task_id: str, parent_id: str, now: Instant) -> None:
        message = f"Task {task_id} was added as a subtask of {parent_id}."
        self._events.emit(Event(kind="subtask.added", task_id=parent_id, message=message, data={"child": task_id}), now)

    def ended(self, task_id: str, how: TaskState, now: Instant) -> None:
        """Emit an event in the parent's history. Nothing else about the ended subtask reaches the parent."""
        parent = self._sql.value("parent_of", id=task_id)
        if parent is not None:
            message = f"Subtask {task_id} of {parent} {'was cancelled' if how is TaskState.CANCELLED else how}."
            data = {"child": task_id, "state": str(how)}
            self._events.emit(Event(kind="subtask.ended", task_id=str(parent), message=message, data=data), now)

    def keeps_subtasks(self, task_id: str) -> bool:
        """True if everyone who asked to cancel the running task asked to leave its subtasks alone."""
        return bool(self._sql.value("spares", id=task_id))

    def subtasks_to_cancel(self, task_id: str, how: TaskState, now: Instant) -> Iterator[tuple[str, str]]:
        """Yield (waiting subtask, why it is cancelled now). The caller cancels these subtasks. Subtasks that run are
        not yielded: this function asks them to end."""
        if not affects_subtasks(how):
            return
        for row in self._sql.rows("living", id=task_id):
            child, state = str(row["id"]), TaskState(str(row["state"]))
            match fate_of_subtask(how, state):
                case SubtaskFate.CANCELLED:
                    yield child, f"task {task_id}, which it is a subtask of, was cancelled"
                case SubtaskFate.ENDING:
                    self._request_cancel(child, task_id, now)

    def _request_cancel(self, child: str, parent: str, now: Instant) -> None:
        if self._sql.value("is_asked_to_end", id=child) is None:
            why = f"task {parent}, which it is a subtask of, was cancelled"
            self._requests.ask(RequestKind.CANCEL, child, BY, why, {}, now)
            faults.tx("family.ask")
