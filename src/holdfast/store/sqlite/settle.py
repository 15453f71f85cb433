"""The end of an attempt or of a task: the fenced settlement, its spends, and the cancelling of tasks that now wait in
vain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict
from holdfast.base.instant import Instant
from holdfast.base.text import as_sentence
from holdfast.core.model import Event, Level, PauseReason, Task
from holdfast.core.runs.crashes import CRASHES
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import CRASH_LOOP, FAILED_BY_LIMIT, Decision, PolicyAction, task_outcome
from holdfast.core.runs.preserve import Disposition, resolve_disposition
from holdfast.core.runs.retry_budgets import RESUMES_SPENT, Budget, ResumeDecision
from holdfast.core.states import TASK_TERMINAL, TaskState
from holdfast.core.tasks.requests import RequestAnswer, RequestResult
from holdfast.store.port.transaction import Ownership
from holdfast.store.sqlite.accounts import SqliteAccounts
from holdfast.store.sqlite.crashes import SqliteCrashes
from holdfast.store.sqlite.engine.fence import require_owner
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.runs import SqliteRuns
from holdfast.store.sqlite.subtasks import SubtaskTree
from holdfast.store.sqlite.workspaces import SqliteWorkspaces

_STATE_AFTER = {
    PolicyAction.COMPLETE: TaskState.COMPLETED,
    PolicyAction.FAIL: TaskState.FAILED,
    PolicyAction.REQUEUE: TaskState.QUEUED,
    PolicyAction.PAUSE: TaskState.PAUSED,
    PolicyAction.CANCEL: TaskState.CANCELLED,
}
_EVENT_OF = {
    TaskState.COMPLETED: ("task.completed", Level.INFO),
    TaskState.FAILED: ("task.failed", Level.WARNING),
    TaskState.QUEUED: ("task.requeued", Level.INFO),
    TaskState.PAUSED: ("task.paused", Level.INFO),
    TaskState.CANCELLED: ("task.cancelled", Level.INFO),
}


class TaskSettlement:
    """The part of the tasks facet about endings. `get`: the function that reads a task."""

    def __init__(
        self,
        connection: apsw.Connection,
        events: SqliteEvents,
        runs: SqliteRuns,
        workspaces: SqliteWorkspaces,
        accounts: SqliteAccounts,
        families: SubtaskTree,
        get: Callable[[str], Task],
    ) -> None:
        self._sql = Statements(connection, "tasks")
        self._events = events
        self._runs = runs
        self._workspaces = workspaces
        self._accounts = accounts
        self._families = families
        self._crashes = SqliteCrashes(connection, events)
        self._get = get

    def settle(
        self,
        ownership: Ownership,
        run_id: str | None,
        verdict: Verdict,
        decision: Decision,
        disposition: Disposition | None,
        now: Instant,
    ) -> TaskState:
        state = _STATE_AFTER.get(decision.action)
        if state is None:
            raise Conflict(
                f"Task {ownership.task_id} cannot be settled: '{decision.action}' means that nothing proves its end."
            )
        refused = decision.refused
        if refused is not None:
            self._emit_refused(ownership, run_id, refused, now)
        changed = self._sql.change(
            "settle",
            id=ownership.task_id,
            fence=ownership.fence,
            owner=ownership.owner,
            run_id=run_id,
            state=str(state),
            reason=decision.reason,
            outcome=str(task_outcome(verdict, decision)),
            failure=decision.failure,
            pause_reason=str(decision.pause) if state is TaskState.PAUSED or refused is not None else None,
            resume_after=decision.resume_after,
            attempt=None if refused is None else refused.attempt,
            returned=int(decision.returns_resume),
            not_before=now.wall + decision.delay if decision.delay > 0 else None,
            keeps_session=decision.keeps_session,
            keeps_worker=decision.keeps_worker and state is TaskState.QUEUED,
            session_id=verdict.session_id,
            now=now.wall,
        )
        if changed == 0:
            require_owner(self._sql, ownership)
            raise Conflict(f"Task {ownership.task_id} has a run that has not ended; it cannot be settled past it.")
        under = None
        if run_id is not None:
            under = self._runs.settle(ownership, run_id, now)
        self.spend(ownership.task_id, decision.spends, run_id, now)
        faults.tx("task.settle")
        self._emit_settled(ownership, run_id, state, verdict, decision, now)
        if decision.pause is PauseReason.OPERATOR:
            # In this transaction: a pause request must not be carried out after a later resume.
            self.answer_pauses(ownership.task_id, RequestAnswer(RequestResult.PAUSED), now)
        if run_id is not None:
            self._crashes.after_settle(ownership.task_id, run_id, verdict, decision, now)
        if under is not None:
            self._accounts.update_after_run(under, ownership.task_id, verdict.outcome, decision.parking, now)
        is_of_account = under is not None and decision.parking is not None and decision.parking.until is None
        if decision.alert and not is_of_account:  # a stopped account has one alert for all its tasks
            self._alert(ownership, state, verdict, decision, disposition, now)
        if state in (TaskState.COMPLETED, TaskState.CANCELLED):
            why = f"the task's end: {state}"
            self._events.close_alerts_of_task(ownership.task_id, why, now, completed=state is TaskState.COMPLETED)
        if state in TASK_TERMINAL:
            if disposition is not None:
                self._workspaces.dispose_of_task(
                    ownership.task_id, self._with_late_keep(ownership, state, disposition), now
                )
            self.settle_dependents(
                ownership.task_id, state, now, spare_children=self._families.keeps_subtasks(ownership.task_id)
            )
        return state

    def settle_member(
        self, ownership: Ownership, run_id: str, verdict: Verdict, decision: Decision, now: Instant
    ) -> None:
        require_owner(self._sql, ownership)
        under = self._runs.settle(ownership, run_id, now)
        self._crashes.after_settle(ownership.task_id, run_id, verdict, decision, now)
        if under is not None:
            self._accounts.update_after_run(under, ownership.task_id, verdict.outcome, decision.parking, now)

    def _with_late_keep(self, ownership: Ownership, state: TaskState, disposition: Disposition) -> Disposition:
        """Return the disposition, or one that preserves the workspace if `holdfast keep` came after the decision. The
        command still counts if it came just before this transaction."""
        spec = self._get(ownership.task_id).spec
        return disposition if disposition.preserve or not spec.keep_workspace else resolve_disposition(spec, state)

    def settle_dependents(self, task_id: str, how: TaskState, now: Instant, *, spare_children: bool = False) -> None:
        """Settle the tasks that depend on an ended task, and in turn those that depend on them. The parent gets an
        event. Tasks that need one that will not complete are cancelled. So are the subtasks of a cancelled task."""
        ended = [(task_id, how)]
        while ended:
            over, how = ended.pop()
            self._families.ended(over, how, now)
            concerned = self._dependents_to_cancel(over, how)
            if not (spare_children and over == task_id):
                concerned += self._families.subtasks_to_cancel(over, how, now)
            for waiting, reason in concerned:
                if self._sql.change("cancel_waiting", id=waiting, reason=reason, now=now.wall):
                    faults.tx("task.cancel_dependent")
                    self.end_wait(waiting, now)
                    self._events.close_alerts_of_task(waiting, "the task's end: cancelled", now)
                    message = f"Task {waiting} cancelled: {reason}."
                    event = Event(kind="task.cancelled", task_id=waiting, message=message, reason=reason)
                    self._events.emit(event, now)
                    self._workspaces.dispose_waiting_task(self._get(waiting).spec, TaskState.CANCELLED, now)
                    ended.append((waiting, TaskState.CANCELLED))

    def _dependents_to_cancel(self, over: str, how: TaskState) -> list[tuple[str, str]]:
        """Return pairs of a task that needs the ended one, and why it waits in vain."""
        if how is TaskState.COMPLETED:
            return []
        reason = f"it needs task {over}, which {'was' if how is TaskState.CANCELLED else 'has'} {how}"
        return [(str(row["id"]), reason) for row in self._sql.rows("waiting_dependents", id=over)]

    def answer_pauses(self, task_id: str, answer: RequestAnswer, now: Instant) -> None:
        """Answer every pending pause request of the task."""
        if self._sql.change("answer_pauses", id=task_id, answer=answer.text, now=now.wall):
            faults.tx("task.answer_pauses")

    def spend(self, task_id: str, budgets: Sequence[Budget], run_id: str | None, now: Instant) -> None:
        """Record spends within the task's current generation."""
        for budget in budgets:
            self._sql.change(
                "spend",
                task_id=task_id,
                budget=str(budget),
                run_id=run_id,
                wall=now.wall,
                boottime=now.boottime,
                boot_id=now.boot_id,
            )
            faults.tx("task.spend")

    def end_wait(self, task_id: str, now: Instant) -> None:
        """Record that the task no longer waits for a limit, although no resume was counted."""
        moment = {"wall": now.wall, "boottime": now.boottime, "boot_id": now.boot_id}
        if self._sql.change("end_wait", task_id=task_id, **moment):
            faults.tx("task.end_wait")

    def _emit_settled(
        self,
        ownership: Ownership,
        run_id: str | None,
        state: TaskState,
        verdict: Verdict,
        decision: Decision,
        now: Instant,
    ) -> None:
        kind, level = _EVENT_OF[state]
        refused = decision.refused
        if decision.stage is not None and state is TaskState.QUEUED:
            kind = "task.stage"
        self._events.emit(
            Event(
                kind=kind,
                level=level,
                task_id=ownership.task_id,
                run_id=run_id,
                message=as_sentence(f"Task {ownership.task_id} {state}: {decision.reason}"),
                reason=decision.reason,
                data={
                    "outcome": str(task_outcome(verdict, decision)),
                    "fence": ownership.fence,
                    "delay": decision.delay,
                    "resume_after": decision.resume_after,
                    "pause_reason": decision.pause,
                    "failure_reason": decision.failure,
                    "spends": [str(budget) for budget in decision.spends],
                    **({"returns_resume": True} if decision.returns_resume else {}),
                    **({} if refused is None else self._data_of_refusal(ownership.task_id, refused)),
                    **(decision.stage or {}),
                },
            ),
            now,
        )

    def _emit_refused(self, ownership: Ownership, run_id: str | None, refused: ResumeDecision, now: Instant) -> None:
        """Emit that the next resume is refused. `task.failed` follows (R-RES-04)."""
        self._events.emit(
            Event(
                kind="task.resume-refused",
                level=Level.WARNING,
                task_id=ownership.task_id,
                run_id=run_id,
                message=as_sentence(refused.message),
                reason=refused.message,
                data=self._data_of_refusal(ownership.task_id, refused),
            ),
            now,
        )

    def _data_of_refusal(self, task_id: str, refused: ResumeDecision) -> dict[str, object]:
        return {
            "resume_attempts": refused.attempt,
            "max_resume_attempts": self._get(task_id).spec.max_resumes,
            "failure_reason": RESUMES_SPENT,
            "by": "the supervisor",
        }

    def _alert(
        self,
        ownership: Ownership,
        state: TaskState,
        verdict: Verdict,
        decision: Decision,
        disposition: Disposition | None,
        now: Instant,
    ) -> None:
        if verdict.outcome in CRASHES and decision.failure == CRASH_LOOP:
            stays = disposition is None or disposition.preserve
            self._crashes.alert(ownership.task_id, verdict, decision, stays, now)
            return
        task_id, is_gate = ownership.task_id, decision.pause is PauseReason.GATE
        command = f"`holdfast {'resume' if state is TaskState.PAUSED else 'retry'} {task_id}`"
        remedy = f"continue with {command}."
        if is_gate:
            remedy = f"fix what the command needs, then {command}: the gate runs again, without the agent."
        elif decision.pause is PauseReason.BUDGET:
            remedy = "it has the command that continues the task."
        cause = decision.pause if decision.pause in (PauseReason.GATE, PauseReason.BUDGET) else verdict.outcome
        is_mild = decision.pause is PauseReason.BUDGET or decision.failure in FAILED_BY_LIMIT
        self._events.raise_alert(
            f"task:{ownership.task_id}:{cause}",
            as_sentence(f"Task {ownership.task_id} {state}: {decision.reason}"),
            f"Look with `holdfast why {task_id}`; {remedy}",
            now,
            task_id=ownership.task_id,
            level=Level.WARNING if is_mild and verdict.outcome is not Outcome.LOST else Level.CRITICAL,
        )
