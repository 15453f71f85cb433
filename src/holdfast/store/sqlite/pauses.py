"""Pauses that an operator asks for, and the one way out of every pause. Part of the tasks facet."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict
from holdfast.core.model import Event, Instant, Level, PauseReason, Task
from holdfast.core.runs.resume import ResumeDecision, decide_resume
from holdfast.core.runs.retry_budgets import Budget
from holdfast.core.states import TaskState
from holdfast.store.sqlite.engine.statements import Cursor
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.settle import Endings
from holdfast.store.sqlite.workspaces import SqliteWorkspaces


class Pauses:
    """`get` reads a task."""

    def __init__(
        self,
        connection: apsw.Connection,
        events: SqliteEvents,
        workspaces: SqliteWorkspaces,
        endings: Endings,
        get: Callable[[str], Task],
    ) -> None:
        self._sql = Cursor(connection, "tasks")
        self._events = events
        self._workspaces = workspaces
        self._endings = endings
        self._get = get

    def pause_waiting(self, task_id: str, by: str, why: str, until: float | None, now: Instant) -> None:
        task = self._get(task_id)
        reason = f"paused by {by}: {why}" if why else f"paused by {by}"
        if self._sql.change("pause_waiting", id=task_id, reason=reason, until=until, now=now.wall) == 0:
            raise Conflict(f"Task {task_id} is {task.state}; nothing was changed.")
        faults.tx("task.pause_waiting")
        self._events.emit(
            Event(
                kind="task.paused",
                task_id=task_id,
                message=f"Task {task_id} {reason}.",
                reason=reason,
                data={"pause_reason": str(PauseReason.OPERATOR), "resume_after": until, "by": by},
            ),
            now,
        )

    def resume(self, task_id: str, by: str, now: Instant, *, operator: bool, force: bool) -> ResumeDecision:
        task = self._get(task_id)
        if task.state is not TaskState.PAUSED:
            raise Conflict(f"Task {task_id} is {task.state}, not paused; nothing was changed.")
        if task.progress.awaits:
            raise Conflict(
                f"Task {task_id} waits for your approval of what its last stage did; nothing was changed. Go on with "
                f"`holdfast approve {task_id}`, or let it go again with `holdfast approve {task_id} --changes TEXT`."
            )
        maximum = task.spec.max_resumes
        decision = decide_resume(task.resume_attempts, maximum, task_id, task.pause_reason, force=force)
        data = {"resume_attempts": decision.attempt, "max_resume_attempts": maximum, "by": by}
        if decision.allowed:
            self._go_on(task, decision, by, data | {"forced": force}, now, force=force)
            if operator:
                self.withdraw_requests(task_id, f"resumed by {by}", now)
        else:
            self._refuse(task, decision, data, now)
        return decision

    def withdraw_requests(self, task_id: str, answer: str, now: Instant) -> None:
        """An operator's later word: a pause that nobody carried out yet is not to come after it."""
        self._endings.answer_pauses(task_id, answer, now)

    # -- pieces --------------------------------------------------------------------------------------------------

    def _go_on(
        self,
        task: Task,
        decision: ResumeDecision,
        by: str,
        data: dict[str, object],
        now: Instant,
        *,
        force: bool,
    ) -> None:
        _require_moved(self._sql.change("resume", **_move(task, decision, now), forced=int(force)), task)
        self._sql.change("save_again", id=task.id)
        faults.tx("task.resume")
        if decision.attempt > task.resume_attempts:
            self._endings.spend(task.id, (Budget.RESUME,), None, now)
        self._events.close_alerts_of_task(task.id, by, now)
        message = f"Task {task.id}: {decision.message}."
        self._events.emit(Event(kind="task.resumed", task_id=task.id, message=message, reason=by, data=data), now)

    def _refuse(self, task: Task, decision: ResumeDecision, data: dict[str, object], now: Instant) -> None:
        """R-RES-04: the event of the refusal, the state, then `task.failed`; the pause fields stay as they were."""
        data["failure_reason"] = "max_resume_attempts_exceeded"
        self._tell("task.resume-refused", task.id, decision, data, now)
        _require_moved(self._sql.change("resume_refused", **_move(task, decision, now)), task)
        faults.tx("task.resume_refused")
        self._tell("task.failed", task.id, decision, data, now)
        self._workspaces.dispose_by_setting(task.spec, TaskState.FAILED, now)
        self._endings.tell_kin(task.id, TaskState.FAILED, now)

    def _tell(self, kind: str, task_id: str, decision: ResumeDecision, data: dict[str, object], now: Instant) -> None:
        self._events.emit(
            Event(
                kind=kind,
                level=Level.WARNING,
                task_id=task_id,
                message=decision.message,
                reason=decision.message,
                data=data,
            ),
            now,
        )


def _move(task: Task, decision: ResumeDecision, now: Instant) -> dict[str, object]:
    return {
        "id": task.id,
        "reason": decision.message,
        "earlier": task.resume_attempts,
        "attempt": task.resume_attempts if faults.skips("resume-count") else decision.attempt,
        "now": now.wall,
    }


def _require_moved(changed: int, task: Task) -> None:
    if changed == 0:
        raise Conflict(f"Task {task.id} was resumed by someone else at the same moment; nothing was spent.")
