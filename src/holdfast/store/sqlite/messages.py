"""The SQLite side of `Messages` in store/port/messages.py."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict
from holdfast.base.instant import Instant
from holdfast.base.text import one_line
from holdfast.core.model import Event, Task
from holdfast.core.states import TaskState
from holdfast.core.tasks.messages import NO_MESSAGES, Message, Turn, find_builder, is_turn_over
from holdfast.core.tasks.requests import RequestAnswer, RequestResult
from holdfast.store.sqlite.engine.statements import Row, Statements
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.runs import message_events
from holdfast.store.sqlite.tasks import SqliteTasks
from holdfast.store.sqlite.workflows import SqliteStageProgress
from holdfast.store.sqlite.workspaces import SqliteWorkspaces

MOST_TOLD = 160  # characters of a message in its event


class SqliteMessages:
    """The SQLite adapter of `Messages`."""

    def __init__(
        self,
        connection: apsw.Connection,
        events: SqliteEvents,
        tasks: SqliteTasks,
        workspaces: SqliteWorkspaces,
        stages: SqliteStageProgress,
    ) -> None:
        self._sql = Statements(connection, "messages")
        self._requests = Statements(connection, "tasks")
        self._events = events
        self._tasks = tasks
        self._workspaces = workspaces
        self._stages = stages

    def send(self, task_id: str, text: str, by: str, now: Instant) -> TaskState:
        task = self._tasks.get(task_id)
        _refuse_without_builder(task)
        if task.progress.awaits:
            raise Conflict(
                f"Task {task_id} waits for your approval, so no message was sent. Ask for changes instead: "
                f"`holdfast approve {task_id} --changes TEXT`."
            )
        number = self._record(task, text, by, now)
        if task.state not in (TaskState.QUEUED, TaskState.RUNNING):
            self._reopen(task, number, by, now)
        return task.state

    def attach(self, task: Task, text: str, by: str, now: Instant) -> None:
        _refuse_without_builder(task)
        self._record(task, text, by, now)
        builder = find_builder(task.spec.stages)
        if builder is not None and builder != task.progress.stage and task.state is TaskState.QUEUED:
            self._stages.enter_round(task, builder, keeps_feedback=True)

    def _record(self, task: Task, text: str, by: str, now: Instant) -> int:
        number = int(self._sql.value("add", task_id=task.id, words=text, by=by, now=now.wall))
        faults.tx("message.record")
        self._events.emit(
            Event(
                kind="message.sent",
                task_id=task.id,
                message=f"Message {number} to task {task.id} by {by}: {one_line(text, MOST_TOLD)}",
                reason=by,
                data={"message": number, "by": by, "state": str(task.state)},
            ),
            now,
        )
        return number

    def _reopen(self, task: Task, number: int, by: str, now: Instant) -> None:
        """Queue a task that has ended or is paused, by one compare-and-set."""
        if task.state is not TaskState.PAUSED:
            self._workspaces.refuse_while_cleaning(task.id)
            self._tasks.refuse_unreachable_needs(task.spec.needs)
        reason = f"continues with message {number} by {by}"
        if self._sql.change("reopen", id=task.id, state=str(task.state), reason=reason, now=now.wall) == 0:
            raise Conflict(f"Task {task.id} was changed by someone else at the same moment; no message was sent.")
        faults.tx("message.reopen")
        self._requests.change("save_again", id=task.id)
        answer = RequestAnswer(RequestResult.RESUMED, by)
        self._requests.change("answer_pauses", id=task.id, answer=answer.text, now=now.wall)
        self._begin_round(task)
        self._events.close_alerts_of_task(task.id, by, now)
        message = f"Task {task.id} {reason}."
        self._events.emit(
            Event(kind="task.queued", task_id=task.id, message=message, reason=reason, data={"by": by}), now
        )

    def begin_round(self, task_id: str, now: Instant) -> None:
        self._begin_round(self._tasks.get(task_id), is_done=True)

    def _begin_round(self, task: Task, *, is_done: bool = False) -> None:
        """Raise the generation, so that retry budgets start afresh. The results and the usage so far are carried over
        into the new generation."""
        self._sql.change("begin_round", id=task.id)
        self._sql.change("carry_results", id=task.id)
        self._sql.change("carry_usage", id=task.id)
        if task.state is TaskState.PAUSED:
            self._sql.change("carry_choice", id=task.id)
        faults.tx("message.round")
        builder = find_builder(task.spec.stages)
        if builder is not None:
            self._stages.enter_round(
                task, builder, keeps_feedback=task.state is not TaskState.COMPLETED and not is_done
            )

    def deliver(self, task: Task, run_id: str, now: Instant) -> Turn:
        found = self.of_task(task.id)
        if not found:
            return NO_MESSAGES
        takes = not task.spec.stages or task.progress.stage == find_builder(task.spec.stages)
        given = [row["number"] for row in self._sql.rows("deliver", task_id=task.id, run_id=run_id)] if takes else []
        if given:
            faults.tx("message.deliver")
            for event in message_events("message.delivered", task.id, run_id, given, "is given to the agent of"):
                self._events.emit(event, now)
        last = self._sql.value("last_outcome", task_id=task.id, run_id=run_id)
        return Turn(
            earlier=tuple(one for one in found if one.run_id is not None),
            new=tuple(one for one in found if one.number in given),
            is_interrupted=not is_turn_over(last),
        )

    def has_begun(self, task_id: str) -> bool:
        return bool(self._sql.value("has_begun", task_id=task_id))

    def of_task(self, task_id: str) -> Sequence[Message]:
        return [_message(row) for row in self._sql.rows("of_task", task_id=task_id)]

    def waiting_count(self, task_id: str) -> int:
        return int(self._sql.value("waiting_count", task_id=task_id))


def _refuse_without_builder(task: Task) -> None:
    if task.spec.stages and find_builder(task.spec.stages) is None:
        ref = f" --base {task.branch}" if task.branch else ""
        raise Conflict(
            f"No stage of the workflow '{task.spec.workflow}' changes files, so no agent of task {task.id} can take a "
            f'message. Nothing was sent. Queue another task: `holdfast add "…"{ref}`.'
        )


def _message(row: Row) -> Message:
    return Message(number=row["number"], text=row["text"], by=row["by"], at=row["created_at"], run_id=row["run_id"])
