"""Tasks: the atomic claim, the fenced settle, resumes and retries."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from holdfast import faults
from holdfast.core.model import Event, Instant, Level, Task, TaskSpec
from holdfast.core.outcome import Verdict
from holdfast.core.policy import Action, Budget, Decision, ResumeDecision, Spend, decide_resume
from holdfast.core.preserve import Disposition
from holdfast.core.states import TASK_TERMINAL, TaskState
from holdfast.errors import Conflict, NotFound, NotOwner
from holdfast.store.port import Grip
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.cursor import Cursor
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.guard import refused, refusing_duplicates, require_owner
from holdfast.store.sqlite.runs import SqliteRuns
from holdfast.store.sqlite.workspaces import SqliteWorkspaces

_STATE_AFTER = {
    Action.COMPLETE: TaskState.COMPLETED,
    Action.FAIL: TaskState.FAILED,
    Action.REQUEUE: TaskState.QUEUED,
    Action.PAUSE: TaskState.PAUSED,
    Action.CANCEL: TaskState.CANCELLED,
}
_EVENT_OF = {
    TaskState.COMPLETED: ("task.completed", Level.INFO),
    TaskState.FAILED: ("task.failed", Level.WARNING),
    TaskState.QUEUED: ("task.requeued", Level.INFO),
    TaskState.PAUSED: ("task.paused", Level.INFO),
    TaskState.CANCELLED: ("task.cancelled", Level.INFO),
}


class SqliteTasks:
    def __init__(
        self,
        connection: apsw.Connection,
        events: SqliteEvents,
        runs: SqliteRuns,
        workspaces: SqliteWorkspaces,
    ) -> None:
        self._sql = Cursor(connection, "tasks")
        self._events = events
        self._runs = runs
        self._workspaces = workspaces

    # -- operators -----------------------------------------------------------------------------------------------

    def add(self, spec: TaskSpec, now: Instant) -> Task:
        if spec.parent_id is not None:
            self.get(spec.parent_id)
        self._refuse_hopeless(spec.needs)
        self._workspaces.repo(spec.repo_id)
        with refusing_duplicates(f"There is a task {spec.id} already; nothing was added."):
            self._sql.change(
                "add",
                id=spec.id,
                repo_id=spec.repo_id,
                prompt=spec.prompt,
                agent=spec.agent,
                base_ref=spec.base_ref,
                strategy=str(spec.strategy),
                priority=spec.priority,
                parent_id=spec.parent_id,
                not_before=spec.not_before,
                settings=rows.settings_of(spec),
                reason="waiting for a free agent",
                now=now.wall,
            )
        for needed in spec.needs:
            self._sql.change("add_need", task_id=spec.id, needs_id=needed)
        faults.tx("task.add")
        self._emit("task.queued", spec.id, f"Task {spec.id} queued.", now, data={"priority": spec.priority})
        return self.get(spec.id)

    def _refuse_hopeless(self, needs: Sequence[str]) -> None:
        """A task after one that will not complete would wait for ever, in silence."""
        for needed in needs:
            state = self.get(needed).state
            if state in (TaskState.FAILED, TaskState.CANCELLED):
                raise Conflict(
                    f"Task {needed} is {state}, so a task after it could never start. "
                    f"Retry it first: `holdfast retry {needed}`."
                )

    def cancel_waiting(self, task_id: str, by: str, why: str, now: Instant) -> None:
        task = self.get(task_id)
        reason = f"cancelled by {by}: {why}" if why else f"cancelled by {by}"
        if self._sql.change("cancel_waiting", id=task_id, reason=reason, now=now.wall) == 0:
            raise Conflict(f"Task {task_id} is {task.state}, not waiting; nothing was changed.")
        faults.tx("task.cancel_waiting")
        self._emit("task.cancelled", task_id, f"Task {task_id} cancelled by {by}.", now, reason=reason)
        self._workspaces.dispose_by_setting(task.spec, TaskState.CANCELLED, now)
        self._cancel_dependents(task_id, "cancelled", now)

    def retry(self, task_id: str, by: str, fresh: bool, now: Instant) -> None:
        task = self.get(task_id)
        if task.state in (TaskState.FAILED, TaskState.CANCELLED):
            self._workspaces.refuse_while_cleaning(task_id)
            self._refuse_hopeless(task.spec.needs)
        how = "from the base" if fresh else "where it stopped"
        reason = f"retried by {by}, {how}"
        if self._sql.change("retry", id=task_id, reason=reason, fresh=int(fresh), now=now.wall) == 0:
            raise Conflict(
                f"Task {task_id} is {task.state}; only a failed or cancelled task can be retried. Nothing was changed."
            )
        faults.tx("task.retry")
        self._emit("task.queued", task_id, f"Task {task_id} {reason}.", now, reason=reason, data={"by": by})

    def resume(self, task_id: str, by: str, now: Instant) -> ResumeDecision:
        task = self.get(task_id)
        if task.state is not TaskState.PAUSED:
            raise Conflict(f"Task {task_id} is {task.state}, not paused; nothing was changed.")
        decision = decide_resume(task.resume_attempts, task.spec.max_resumes, task_id, task.pause_reason)
        statement = "resume" if decision.allowed else "resume_refused"
        changed = self._sql.change(
            statement,
            id=task_id,
            reason=decision.message,
            earlier=task.resume_attempts,
            attempt=decision.attempt,
            now=now.wall,
        )
        if changed == 0:
            raise Conflict(f"Task {task_id} was resumed by someone else at the same moment; nothing was spent.")
        faults.tx("task.resume")
        data = {"resume_attempts": decision.attempt, "max_resume_attempts": task.spec.max_resumes, "by": by}
        if decision.allowed:
            if decision.attempt > task.resume_attempts:
                self._spend(task, (Budget.RESUME,), None, now)
            self._emit("task.resumed", task_id, f"Task {task_id}: {decision.message}.", now, reason=by, data=data)
            return decision
        data["failure_reason"] = "max_resume_attempts_exceeded"
        self._emit(
            "task.failed",
            task_id,
            decision.message,
            now,
            level=Level.WARNING,
            reason=decision.message,
            data=data,
        )
        self._workspaces.dispose_by_setting(task.spec, TaskState.FAILED, now)
        self._cancel_dependents(task_id, "failed", now)
        return decision

    # -- supervisor ----------------------------------------------------------------------------------------------

    def claim(self, host_id: str, now: Instant) -> Task | None:
        row = self._sql.row("claim", host=host_id, now=now.wall, boottime=now.boottime, boot_id=now.boot_id)
        if row is None:
            return None
        faults.tx("task.claim")
        task = self._task(row)
        self._emit(
            "task.claimed",
            task.id,
            f"Task {task.id} claimed (fence {task.fence}).",
            now,
            data={"host": host_id, "fence": task.fence},
        )
        return task

    def adopt(self, task: Task, host_id: str, now: Instant) -> Task:
        row = self._sql.row("adopt", id=task.id, host=host_id, from_host=task.owner, fence=task.fence, now=now.wall)
        if row is None:
            raise NotOwner(f"Task {task.id} was taken by someone else while we adopted it.")
        faults.tx("task.adopt")
        adopted = self._task(row)
        self._emit(
            "task.adopted",
            task.id,
            f"Task {task.id} taken over from supervisor {task.owner} (fence {adopted.fence}).",
            now,
            data={"host": host_id, "from": task.owner, "fence": adopted.fence},
        )
        return adopted

    def set_base(self, grip: Grip, base_commit: str | None, branch: str | None, now: Instant) -> None:
        if (
            self._sql.change(
                "set_base",
                id=grip.task_id,
                fence=grip.fence,
                owner=grip.owner,
                base_commit=base_commit,
                branch=branch,
                now=now.wall,
            )
            == 0
        ):
            raise refused(grip)
        faults.tx("task.set_base")

    def settle(
        self,
        grip: Grip,
        run_id: str | None,
        verdict: Verdict,
        decision: Decision,
        disposition: Disposition | None,
        now: Instant,
    ) -> TaskState:
        task = self.get(grip.task_id)
        held = grip
        if faults.skips("fence") and task.owner is not None:
            held = Grip(task_id=task.id, fence=task.fence, owner=task.owner)
        require_owner(self._sql, held)
        state = _STATE_AFTER.get(decision.action)
        if state is None:
            raise Conflict(f"Task {task.id} cannot be settled: '{decision.action}' means that nothing proves its end.")
        if run_id is not None:
            self._runs.settle(grip, run_id, now)
        elif self._runs.open_run(task.id) is not None:
            raise Conflict(f"Task {task.id} has a run that has not ended; it cannot be settled past it.")
        self._spend(task, decision.spends, run_id, now)
        changed = self._sql.change(
            "settle",
            id=task.id,
            fence=held.fence,
            owner=held.owner,
            state=str(state),
            reason=decision.reason,
            outcome=str(verdict.outcome),
            failure=decision.failure,
            pause_reason=str(decision.pause) if state is TaskState.PAUSED else None,
            resume_after=decision.resume_after,
            not_before=now.wall + decision.delay if decision.delay > 0 else None,
            session_id=(verdict.session_id or task.session_id) if decision.keeps_session else None,
            now=now.wall,
        )
        if changed == 0:
            raise refused(grip)
        faults.tx("task.settle")
        self._tell_settled(grip, run_id, state, verdict, decision, now)
        if state in TASK_TERMINAL:
            if disposition is not None:
                self._workspaces.dispose_of_task(task.id, disposition, now)
            if state is not TaskState.COMPLETED:
                self._cancel_dependents(task.id, str(state), now)
        return state

    def forget_branch(self, task_id: str, now: Instant) -> None:
        self._sql.change("forget_branch", id=task_id, now=now.wall)
        faults.tx("task.forget_branch")

    def due_to_resume(self, now: Instant) -> Sequence[str]:
        return [str(row["id"]) for row in self._sql.rows("due_to_resume", now=now.wall)]

    def next_due(self, now: Instant) -> float | None:
        value = self._sql.value("next_due", now=now.wall)
        return None if value is None else float(value)

    def running_elsewhere(self, host_id: str) -> Sequence[Task]:
        return [self._task(row) for row in self._sql.rows("running_elsewhere", host=host_id)]

    def running_here(self, host_id: str) -> Sequence[Task]:
        return [self._task(row) for row in self._sql.rows("running_here", host=host_id)]

    def unfinished_count(self) -> int:
        return int(self._sql.value("unfinished_count"))

    def ledger(self, task: Task) -> Sequence[Spend]:
        return [rows.spend(row) for row in self._sql.rows("ledger", id=task.id, generation=task.generation)]

    def get(self, task_id: str) -> Task:
        row = self._sql.row("get", id=task_id)
        if row is None:
            raise NotFound(f"Task not found: {task_id}")
        return self._task(row)

    # -- pieces --------------------------------------------------------------------------------------------------

    def _task(self, row: rows.Row) -> Task:
        return rows.task(row, [need["needs_id"] for need in self._sql.rows("needs", id=row["id"])])

    def _spend(self, task: Task, budgets: Sequence[Budget], run_id: str | None, now: Instant) -> None:
        for budget in budgets:
            self._sql.change(
                "spend",
                task_id=task.id,
                generation=task.generation,
                budget=str(budget),
                run_id=run_id,
                wall=now.wall,
                boottime=now.boottime,
                boot_id=now.boot_id,
            )
            faults.tx("task.spend")

    def _tell_settled(
        self,
        grip: Grip,
        run_id: str | None,
        state: TaskState,
        verdict: Verdict,
        decision: Decision,
        now: Instant,
    ) -> None:
        kind, level = _EVENT_OF[state]
        self._events.emit(
            Event(
                kind=kind,
                level=level,
                task_id=grip.task_id,
                run_id=run_id,
                message=f"Task {grip.task_id} {state}: {decision.reason}.",
                reason=decision.reason,
                data={
                    "outcome": str(verdict.outcome),
                    "fence": grip.fence,
                    "delay": decision.delay,
                    "resume_after": decision.resume_after,
                    "pause_reason": decision.pause,
                    "failure_reason": decision.failure,
                    "spends": [str(budget) for budget in decision.spends],
                },
            ),
            now,
        )
        if decision.alert:
            self._events.raise_alert(
                f"task:{grip.task_id}:{verdict.outcome}",
                f"Task {grip.task_id} {state}: {decision.reason}.",
                f"Look with `holdfast why {grip.task_id}`; go on with `holdfast retry {grip.task_id}`.",
                now,
                task_id=grip.task_id,
            )

    def _cancel_dependents(self, task_id: str, how: str, now: Instant) -> None:
        """Everything that waited for a task that will not complete, and in turn what waited for those."""
        ended = [(task_id, how)]
        while ended:
            needed, how = ended.pop()
            for row in self._sql.rows("waiting_dependents", id=needed):
                dependent = str(row["id"])
                reason = f"it needs task {needed}, which {'was' if how == 'cancelled' else 'has'} {how}"
                if self._sql.change("cancel_waiting", id=dependent, reason=reason, now=now.wall):
                    faults.tx("task.cancel_dependent")
                    message = f"Task {dependent} cancelled: {reason}."
                    self._emit("task.cancelled", dependent, message, now, reason=reason)
                    self._workspaces.dispose_by_setting(self.get(dependent).spec, TaskState.CANCELLED, now)
                    ended.append((dependent, "cancelled"))

    def _emit(
        self,
        kind: str,
        task_id: str,
        message: str,
        now: Instant,
        *,
        level: Level = Level.INFO,
        reason: str | None = None,
        data: dict[str, object] | None = None,
    ) -> None:
        self._events.emit(
            Event(kind=kind, level=level, task_id=task_id, message=message, reason=reason, data=data or {}),
            now,
        )
