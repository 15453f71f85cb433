"""The tasks facet: the atomic claim, adoption, pauses, resumes and retries. `settle.py` has the end of an attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict, NotFound, NotOwner
from holdfast.base.instant import Instant
from holdfast.base.text import as_sentence
from holdfast.core.dispatch.accounts import BlockedTasks
from holdfast.core.dispatch.terms import ANY_TERMS, NO_OPERATOR_BLOCKS, ClaimTerms, Lane, OperatorBlocks
from holdfast.core.model import Event, Level, PauseReason, Task, TaskSpec
from holdfast.core.runs.outcome import Verdict
from holdfast.core.runs.policy import Decision
from holdfast.core.runs.preserve import Disposition
from holdfast.core.runs.retry_budgets import RESUMES_SPENT, Budget, ResumeDecision, Spend, decide_resume
from holdfast.core.states import TaskState
from holdfast.core.tasks.requests import RequestAnswer, RequestResult
from holdfast.store.port.transaction import Ownership
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.accounts import SqliteAccounts
from holdfast.store.sqlite.engine.fence import not_owner
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.runs import SqliteRuns
from holdfast.store.sqlite.settle import TaskSettlement
from holdfast.store.sqlite.subtasks import SubtaskTree
from holdfast.store.sqlite.workspaces import SqliteWorkspaces

if TYPE_CHECKING:
    from holdfast.core.tasks.changes import TaskChange
    from holdfast.store.sqlite.workflows import SqliteStageProgress


class Pauses:
    """The part of the tasks facet about pauses: pausing for an operator, and the one method that ends every pause.

    `get`: the function that reads a task.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        events: SqliteEvents,
        workspaces: SqliteWorkspaces,
        endings: TaskSettlement,
        get: Callable[[str], Task],
    ) -> None:
        self._sql = Statements(connection, "tasks")
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
            raise Conflict(_no_resume(task))
        if task.progress.awaits:
            raise Conflict(
                f"Task {task_id} waits for your approval of what its last stage did; nothing was changed. Approve it: "
                f"`holdfast approve {task_id}`. Or run it again: `holdfast approve {task_id} --changes TEXT`."
            )
        maximum = task.spec.max_resumes
        decision = decide_resume(task.resume_attempts, maximum, task_id, task.pause_reason, force=force)
        data = {"resume_attempts": decision.attempt, "max_resume_attempts": maximum, "by": by}
        if decision.allowed:
            self._resume(task, decision, by, data | {"forced": force}, now, force=force)
            if operator:
                self.withdraw_requests(task_id, RequestAnswer(RequestResult.RESUMED, by), now)
        elif not operator:
            self._fail_resume(task, decision, data, now)
        return decision

    def withdraw_requests(self, task_id: str, answer: RequestAnswer, now: Instant) -> None:
        """Answer pause requests that were not carried out yet: an old request must not pause the task after an
        operator's later command."""
        self._endings.answer_pauses(task_id, answer, now)

    # -- pieces --------------------------------------------------------------------------------------------------

    def _resume(
        self,
        task: Task,
        decision: ResumeDecision,
        by: str,
        data: dict[str, object],
        now: Instant,
        *,
        force: bool,
    ) -> None:
        _require_moved(self._sql.change("resume", **_resume_columns(task, decision, now), forced=int(force)), task)
        self._sql.change("save_again", id=task.id)
        faults.tx("task.resume")
        if decision.attempt > task.resume_attempts:
            self._endings.spend(task.id, (Budget.RESUME,), None, now)
        else:
            self._endings.end_wait(task.id, now)
        self._events.close_alerts_of_task(task.id, by, now)
        message = f"Task {task.id}: {decision.message}."
        self._events.emit(Event(kind="task.resumed", task_id=task.id, message=message, reason=by, data=data), now)

    def _fail_resume(self, task: Task, decision: ResumeDecision, data: dict[str, object], now: Instant) -> None:
        """Fail the task because its resumes are used up (R-RES-04). The refusal's event comes first, then the state,
        then `task.failed`. The pause fields stay as they were."""
        data["failure_reason"] = RESUMES_SPENT
        self._tell("task.resume-refused", task.id, decision, data, now)
        _require_moved(self._sql.change("resume_refused", **_resume_columns(task, decision, now)), task)
        faults.tx("task.resume_refused")
        self._endings.end_wait(task.id, now)
        self._events.close_alerts_of_task(task.id, "a refused resume", now)
        self._tell("task.failed", task.id, decision, data, now)
        self._events.raise_alert(
            f"task:{task.id}:resumes",
            as_sentence(f"Task {task.id} failed: {decision.message}"),
            f"Look with `holdfast why {task.id}`; continue with `holdfast retry {task.id}`.",
            now,
            task_id=task.id,
            level=Level.WARNING,
        )
        self._workspaces.dispose_waiting_task(task.spec, TaskState.FAILED, now)
        self._endings.settle_dependents(task.id, TaskState.FAILED, now)

    def _tell(self, kind: str, task_id: str, decision: ResumeDecision, data: dict[str, object], now: Instant) -> None:
        self._events.emit(
            Event(
                kind=kind,
                level=Level.WARNING,
                task_id=task_id,
                message=as_sentence(decision.message),
                reason=decision.message,
                data=data,
            ),
            now,
        )


def _resume_columns(task: Task, decision: ResumeDecision, now: Instant) -> dict[str, object]:
    return {
        "id": task.id,
        "reason": decision.message,
        "earlier": task.resume_attempts,
        "attempt": decision.attempt,
        "now": now.wall,
    }


def _require_moved(changed: int, task: Task) -> None:
    if changed == 0:
        raise Conflict(f"Task {task.id} was resumed by someone else at the same moment; nothing was spent.")


class SqliteTasks:
    """The SQLite adapter of `Tasks`."""

    def __init__(
        self,
        connection: apsw.Connection,
        events: SqliteEvents,
        runs: SqliteRuns,
        workspaces: SqliteWorkspaces,
        accounts: SqliteAccounts,
    ) -> None:
        self._connection = connection
        self._sql = Statements(connection, "tasks")
        self._events = events
        self._runs = runs
        self._workspaces = workspaces
        self._families = SubtaskTree(connection, events, self.get)
        self._endings = TaskSettlement(connection, events, runs, workspaces, accounts, self._families, self.get)
        self._pauses = Pauses(connection, events, workspaces, self._endings, self.get)

    # -- operators -----------------------------------------------------------------------------------------------

    def add(self, spec: TaskSpec, now: Instant, by: str = "") -> Task:
        if spec.parent_id is not None:
            self._families.refuse_too_many(spec.parent_id)
        self.refuse_unreachable_needs(spec.needs)
        try:
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
                settings=rows.encode_settings(spec),
                account=rows.named_account(spec),
                reason="waiting for a free agent",
                now=now.wall,
            )
        except apsw.ConstraintError as error:
            self._workspaces.repo(spec.repo_id)  # raises NotFound for an unknown repository
            raise Conflict(f"Task {spec.id} already exists; nothing was added.") from error
        for needed in spec.needs:
            self._sql.change("add_need", task_id=spec.id, needs_id=needed)
        faults.tx("task.add")
        data = {"priority": spec.priority, **({"by": by} if by else {})}
        self._emit("task.queued", spec.id, f"Task {spec.id} queued{f' by {by}' if by else ''}.", now, data=data)
        if spec.parent_id is not None:
            self._families.emit_added(spec.id, spec.parent_id, now)
        return self.get(spec.id) if spec.needs else rows.new_task(spec)

    def refuse_unreachable_needs(self, needs: Sequence[str]) -> None:
        """Raise Conflict if a needed task will not complete: a task that needs it would wait for ever, without an
        alert."""
        for needed in needs:
            state = self.get(needed).state
            if state in (TaskState.FAILED, TaskState.CANCELLED):
                raise Conflict(
                    f"Task {needed} is {state}, so a task after it could never start. "
                    f"Retry it first: `holdfast retry {needed}`."
                )

    def cancel_waiting(self, task_id: str, by: str, why: str, now: Instant, *, subtasks: bool = True) -> None:
        task = self.get(task_id)
        reason = f"cancelled by {by}: {why}" if why else f"cancelled by {by}"
        if self._sql.change("cancel_waiting", id=task_id, reason=reason, now=now.wall) == 0:
            raise Conflict(f"Task {task_id} is {task.state}, not waiting; nothing was changed.")
        faults.tx("task.cancel_waiting")
        self._endings.end_wait(task_id, now)
        self._events.close_alerts_of_task(task_id, by, now)
        self._emit("task.cancelled", task_id, f"Task {task_id} cancelled by {by}.", now, reason=reason)
        self._workspaces.dispose_waiting_task(task.spec, TaskState.CANCELLED, now)
        self._endings.settle_dependents(task_id, TaskState.CANCELLED, now, spare_children=not subtasks)

    def retry(self, task_id: str, by: str, fresh: bool, now: Instant) -> None:
        task = self.get(task_id)
        if task.state in (TaskState.FAILED, TaskState.CANCELLED):
            self._workspaces.refuse_while_cleaning(task_id)
            self.refuse_unreachable_needs(task.spec.needs)
        how = "from the base" if fresh else "where it stopped"
        reason = f"retried by {by}, {how}"
        if self._sql.change("retry", id=task_id, reason=reason, fresh=int(fresh), now=now.wall) == 0:
            raise Conflict(_no_retry(task))
        if fresh:
            self._sql.change("forget_choice", id=task_id)
        if task.spec.stages:
            self._staging.reset_for_retry(task, fresh=fresh)
        self._pauses.withdraw_requests(task_id, RequestAnswer(RequestResult.RETRIED, by), now)
        faults.tx("task.retry")
        self._events.close_alerts_of_task(task_id, by, now)
        self._emit("task.queued", task_id, f"Task {task_id} {reason}.", now, reason=reason, data={"by": by})

    def update(self, task_id: str, change: TaskChange, by: str, now: Instant) -> Task:
        from holdfast.core.tasks.changes import apply_change, describe_change, may_keep_session  # few commands change

        task = self.get(task_id)
        if task.state is TaskState.RUNNING:
            raise Conflict(
                f"Task {task_id} is running, so it cannot be changed; nothing was changed. Pause it first: "
                f"`holdfast pause {task_id}`. Or tell its agent: `holdfast send {task_id} TEXT`."
            )
        after = apply_change(task.spec, change)
        told = list(describe_change(task.spec, after))
        if not told:
            return task
        changed = self._sql.change(
            "change",
            id=task_id,
            state=str(task.state),
            prompt=after.prompt,
            agent=after.agent,
            priority=after.priority,
            settings=rows.encode_settings(after),
            keeps_session=int(may_keep_session(task.spec, after)),
            keeps_progress=int(bool(task.spec.stages) == bool(after.stages)),
            account=rows.named_account(after),
        )
        if changed == 0:
            raise Conflict(f"Task {task_id} was changed by someone else at the same moment; nothing was changed.")
        faults.tx("task.change")
        words = ", ".join(f"{what} {old} → {new}" for what, old, new in told)
        data: dict[str, object] = {"by": by, "changed": {what: [old, new] for what, old, new in told}}
        self._emit("task.changed", task_id, f"Task {task_id} was changed by {by}: {words}.", now, reason=by, data=data)
        return task

    def pause_waiting(self, task_id: str, by: str, why: str, until: float | None, now: Instant) -> None:
        self._pauses.pause_waiting(task_id, by, why, until, now)

    def resume(
        self, task_id: str, by: str, now: Instant, *, operator: bool = True, force: bool = False
    ) -> ResumeDecision:
        return self._pauses.resume(task_id, by, now, operator=operator, force=force)

    # -- supervisor ----------------------------------------------------------------------------------------------

    def claim(self, host_id: str, now: Instant, terms: ClaimTerms = ANY_TERMS) -> Task | None:
        lease = {"host": host_id, "boottime": now.boottime, "boot_id": now.boot_id}
        if terms.held:
            return None
        if terms:
            found = self._sql.tuples("claim_on_terms", **lease, now=now.wall, **_terms_columns(terms))
        else:
            found = self._sql.tuples("claim", **lease, now=now.wall, lane=None)
        if not found:
            return None
        faults.tx("task.claim")
        task = rows.task_from_row(found[0])
        self._emit(
            "task.claimed",
            task.id,
            f"Task {task.id} claimed{f' by worker {task.worker}' if task.worker else ''} (fence {task.fence}).",
            now,
            data={"host": host_id, "fence": task.fence, **({"worker": task.worker} if task.worker else {})},
        )
        return task

    def adopt(self, task: Task, host_id: str, now: Instant) -> Task:
        found = self._sql.tuples(
            "adopt",
            id=task.id,
            host=host_id,
            from_host=task.owner,
            fence=task.fence,
            now=now.wall,
        )
        if not found:
            raise NotOwner(f"Task {task.id} was taken by someone else while we adopted it.")
        faults.tx("task.adopt")
        adopted = rows.task_from_row(found[0])
        self._emit(
            "task.adopted",
            task.id,
            f"Task {task.id} taken over from supervisor {task.owner} (fence {adopted.fence}).",
            now,
            data={"host": host_id, "from": task.owner, "fence": adopted.fence},
        )
        return adopted

    def set_base(
        self,
        ownership: Ownership,
        base_commit: str | None,
        branch: str | None,
        now: Instant,
        base_ref: str | None = None,
    ) -> None:
        if (
            self._sql.change(
                "set_base",
                id=ownership.task_id,
                fence=ownership.fence,
                owner=ownership.owner,
                base_commit=base_commit,
                branch=branch,
                base_ref=base_ref,
                now=now.wall,
            )
            == 0
        ):
            raise not_owner(ownership)
        faults.tx("task.set_base")

    def settle(
        self,
        ownership: Ownership,
        run_id: str | None,
        verdict: Verdict,
        decision: Decision,
        disposition: Disposition | None,
        now: Instant,
    ) -> TaskState:
        return self._endings.settle(ownership, run_id, verdict, decision, disposition, now)

    def settle_member(
        self, ownership: Ownership, run_id: str, verdict: Verdict, decision: Decision, now: Instant
    ) -> None:
        self._endings.settle_member(ownership, run_id, verdict, decision, now)

    def clear_branch(self, task_id: str, now: Instant) -> None:
        self._sql.change("forget_branch", id=task_id, now=now.wall)
        faults.tx("task.forget_branch")

    def tasks_due_to_resume(self, now: Instant, *, auto: bool = True) -> Sequence[str]:
        return [str(row["id"]) for row in self._sql.rows("due_to_resume", now=now.wall, auto=int(auto))]

    def drop_session(self, ownership: Ownership, account: str, now: Instant) -> None:
        if (
            self._sql.change(
                "leave_session", id=ownership.task_id, fence=ownership.fence, owner=ownership.owner, now=now.wall
            )
            == 0
        ):
            raise not_owner(ownership)
        faults.tx("task.leave_session")
        self._emit(
            "task.session-left",
            ownership.task_id,
            f"Task {ownership.task_id} begins a new session: its account '{account}' is no longer in the settings. "
            "The new agent is told what was done so far.",
            now,
            level=Level.WARNING,
            reason="account_gone",
            data={"account": account},
        )

    def has_claimable_task(self, now: Instant, terms: ClaimTerms = ANY_TERMS) -> bool:
        if terms.held:
            return False
        if terms:
            return self._sql.value("something_waits_on_terms", now=now.wall, **_terms_columns(terms)) is not None
        return self._sql.value("something_waits", now=now.wall, lane=None) is not None

    def next_due_time(self, now: Instant, *, auto: bool = True) -> float | None:
        value = self._sql.value("next_due", now=now.wall, auto=int(auto))
        return None if value is None else float(value)

    def running_elsewhere(self, host_id: str) -> Sequence[Task]:
        return [rows.task_from_row(row) for row in self._sql.tuples("running_elsewhere", host=host_id)]

    def running_here(self, host_id: str) -> Sequence[Task]:
        return [rows.task_from_row(row) for row in self._sql.tuples("running_here", host=host_id)]

    def unfinished_count(self, lasting: OperatorBlocks = NO_OPERATOR_BLOCKS) -> int:
        auto = int(lasting.auto)
        going_on = int(self._sql.value("going_on_count", auto=auto))
        waiting = 0 if lasting.held else int(self._sql.value("waiting_count"))
        if waiting == 0:
            return going_on
        lanes = lasting.lanes
        stuck = self._sql.value(
            "for_operators_count",
            **_account_columns(lasting.blocked),
            spent_labels=rows.encode(sorted(lasting.labels)),
            lanes=None if lanes is None else rows.encode([_lane(lane) for lane in lanes]),
            auto=auto,
        )
        return going_on + waiting - int(stuck)

    def ledger(self, task: Task) -> Sequence[Spend]:
        return [rows.spend_from_row(row) for row in self._sql.rows("ledger", id=task.id, generation=task.generation)]

    def get(self, task_id: str) -> Task:
        found = self._sql.tuples("get", id=task_id)
        if not found:
            raise NotFound(f"Task not found: {task_id}")
        return rows.task_from_row(found[0])

    # -- pieces --------------------------------------------------------------------------------------------------

    @cached_property
    def _staging(self) -> SqliteStageProgress:
        from holdfast.store.sqlite.workflows import SqliteStageProgress

        return SqliteStageProgress(self._connection, self._events)

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


def _no_resume(task: Task) -> str:
    """Return why a task that is not paused is not resumed, and what to type instead."""
    nothing = f"Task {task.id} is {task.state}, not paused; nothing was changed."
    if task.state in (TaskState.FAILED, TaskState.CANCELLED):
        return f"{nothing} Try it again: `holdfast retry {task.id}`."
    if task.state is TaskState.COMPLETED:
        return f"{nothing} To tell it what to do next: `holdfast send {task.id} TEXT`."
    return f"{nothing} `holdfast why {task.id}` shows what it waits for or does."


def _no_retry(task: Task) -> str:
    """Return why a task that has not failed is not retried, and what to type instead."""
    nothing = f"Task {task.id} is {task.state}; only a failed or cancelled task can be retried. Nothing was changed."
    if task.state is TaskState.COMPLETED:
        return f"{nothing} To tell it what to do next: `holdfast send {task.id} TEXT`."
    if task.state is TaskState.PAUSED:
        return f"{nothing} Let it continue: `holdfast resume {task.id}`."
    return f"{nothing} `holdfast why {task.id}` shows what it waits for or does."


def _terms_columns(terms: ClaimTerms) -> dict[str, str | None]:
    lane = terms.lane
    return {
        **_account_columns(terms.blocked),
        "providers_down": rows.encode(sorted(terms.providers_down)),
        "spent_labels": rows.encode(sorted(terms.labels)),
        "full_repos": rows.encode(sorted(terms.full_repos)),
        "lane": lane.name if lane else None,
        "lane_agent": lane.agent if lane else None,
        "lane_account": lane.account if lane else None,
        "lane_labels": rows.encode(dict(lane.labels) if lane else {}),
    }


def _lane(lane: Lane) -> dict[str, object]:
    return {"agent": lane.agent, "account": lane.account, "labels": dict(lane.labels)}


def _account_columns(shut_out: BlockedTasks) -> dict[str, str]:
    return {
        "accounts": rows.encode(sorted(shut_out.accounts)),
        "agents": rows.encode(sorted(shut_out.agents)),
        "still_open": rows.encode(sorted(shut_out.still_open)),
    }
