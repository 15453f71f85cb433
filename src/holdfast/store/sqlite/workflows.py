"""The SQLite side of `StageProgress` and `Results` in store/port/tasks.py: positions in workflows, and results of
stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict, NotFound, UsageError
from holdfast.base.instant import Instant
from holdfast.base.stored_json import stored_data_errors
from holdfast.base.text import one_line
from holdfast.core.model import Event, Level, Strategy, Task, TaskSpec
from holdfast.core.states import TaskState
from holdfast.core.tasks.requests import RequestAnswer, RequestResult
from holdfast.core.workflows.next_stage import (
    NextStep,
    StageStep,
    describe_stage,
    is_workflow_over,
    progress_after_approval,
    progress_after_changes,
    progress_after_retry,
    stage_for_changes,
)
from holdfast.core.workflows.result import GateResult, StageResult
from holdfast.core.workflows.workflow import START, Progress, enter_stage, stage_of
from holdfast.store.port.tasks import approval_alert
from holdfast.store.port.values import Ownership
from holdfast.store.port.workspaces import Checkpoint
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.engine.fence import not_owner, require_owner
from holdfast.store.sqlite.engine.statements import Row, Statements
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.rows import decode, encode_redacted


class SqliteStageProgress:
    """The SQLite adapter of `StageProgress`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "stages")
        self._tasks = Statements(connection, "tasks")
        self._results = Statements(connection, "results")
        self._events = events

    # -- supervisor --------------------------------------------------------------------------------------------------

    def keep(self, ownership: Ownership, progress: Progress, now: Instant) -> None:
        written = rows.encode_progress(progress)
        if self._sql.change("keep", **_ownership_columns(ownership), progress=written, now=now.wall) == 0:
            raise not_owner(ownership)
        faults.tx("stage.keep")

    def move(self, ownership: Ownership, following: NextStep, now: Instant, *, resets_resumes: bool = False) -> None:
        spec = self._get(ownership.task_id).spec
        moved = self._sql.change(
            "move",
            **_ownership_columns(ownership),
            **self._columns_at(spec, self._with_run_count(ownership.task_id, following)),
            resets_resumes=int(resets_resumes),
            now=now.wall,
        )
        if moved == 0:
            raise not_owner(ownership)
        faults.tx("stage.move")
        if following.step is StageStep.WAIT:
            self._raise_approval_alert(ownership.task_id, following, now)

    def _with_run_count(self, task_id: str, following: NextStep) -> Progress:
        if following.step not in (StageStep.NEXT, StageStep.BACK):
            return following.progress
        return replace(following.progress, since=int(self._sql.value("runs_so_far", id=task_id)))

    def _raise_approval_alert(self, task_id: str, following: NextStep, now: Instant) -> None:
        self._events.raise_alert(
            approval_alert(task_id),
            f"Task {task_id} waits for you: {following.reason}.",
            f"Look with `holdfast diff {task_id}` and `holdfast show {task_id}`; then `holdfast approve {task_id}`, or "
            f"`holdfast approve {task_id} --changes TEXT` to send it back, or `holdfast cancel {task_id}`.",
            now,
            task_id=task_id,
            level=Level.WARNING,
        )

    # -- operators ---------------------------------------------------------------------------------------------------

    def approve(
        self, task_id: str, by: str, now: Instant, changes: str | None = None, *, stage: str | None = None
    ) -> str:
        task = self._get(task_id)
        if task.state is not TaskState.PAUSED or not task.progress.awaits:
            raise Conflict(
                f"Task {task_id} is {task.state} and waits for nobody's approval; nothing was changed. "
                f"`holdfast why {task_id}` shows what it waits for."
            )
        stages, done = task.spec.stages, describe_stage(task.spec.stages, task.progress.stage)
        if changes is None:
            after = replace(
                progress_after_approval(stages, task.progress), since=int(self._sql.value("runs_so_far", id=task_id))
            )
            follows = (
                "nothing is left to do"
                if is_workflow_over(stages, after)
                else f"{describe_stage(stages, after.stage)} follows"
            )
            reason = f"{done} approved by {by}; {follows}"
            session: tuple[str | None, str | None] = (None, rows.named_account(_spec_at(task.spec, after)))
        else:
            after, session = self._after_changes(task, by, changes, stage)
            goes = f"back to {describe_stage(stages, after.stage)}"
            reason = f"{done}: {by} asks for changes; {'it goes again' if after.stage == task.progress.stage else goes}"
        standing = self._columns_at(task.spec, after)
        moved = self._sql.change(
            "approve",
            id=task_id,
            reason=reason,
            before=rows.encode_progress(task.progress),
            session_id=session[0],
            account=session[1],
            is_over=int(is_workflow_over(stages, after)),
            now=now.wall,
            **standing,
        )
        if moved == 0:
            raise Conflict(f"Task {task_id} was changed by someone else at the same moment; nothing was changed.")
        answer = RequestAnswer(RequestResult.APPROVED, by)
        self._tasks.change("answer_pauses", id=task_id, answer=answer.text, now=now.wall)
        faults.tx("stage.approve")
        self._events.close_alerts_of_task(task_id, by, now)
        self._events.emit(
            Event(
                kind="task.approved",
                task_id=task_id,
                message=f"Task {task_id}: {reason}.",
                reason=by,
                data={"by": by, "stage": task.progress.stage, "changes": changes, "next": after.stage},
            ),
            now,
        )
        return reason

    def _after_changes(
        self, task: Task, by: str, changes: str, name: str | None
    ) -> tuple[Progress, tuple[str | None, str | None]]:
        """Return the progress of a task to which a person asks for changes, with the session and its account."""
        stages, progress = task.spec.stages, task.progress
        to = stage_for_changes(stages, progress, name)
        if to is None:
            names = ", ".join(stage.name for stage in stages[: progress.stage + 1])
            raise UsageError(
                f"No stage '{one_line(name or '', 60)}' of task {task.id} can make the changes; nothing was changed. "
                f"Choose one with --stage: {names}."
            )
        row = self._results.row("last", task_id=task.id)
        last = None if row is None else _result(row)
        if last is not None and (last.stage, last.visit) != (progress.stage, progress.visit):
            last = None
        after = progress_after_changes(progress, to, by, changes, last)
        if to == progress.stage:
            after = replace(after, paid=self._runs_so_far(task.id) if stages[to].budget else after.paid)
            return after, (task.session_id, task.account)
        after = replace(after, since=self._runs_so_far(task.id))
        session_id, account = self._session_of(task, to)
        return after, (session_id, account if session_id else rows.named_account(_spec_at(task.spec, after)))

    def return_to_checkpoint(self, task_id: str, checkpoint: Checkpoint, now: Instant) -> None:
        task, stage = self._get(task_id), checkpoint.stage_to_resume
        is_there = stage == task.progress.stage and checkpoint.is_within_stage
        if not 0 <= stage < len(task.spec.stages) or (is_there and not task.progress.checks):
            return
        session_id = checkpoint.session_id if checkpoint.is_within_stage else None
        # What the agent did after the checkpoint is gone. Running only the gate would prove nothing about it.
        after = replace(task.progress, checks="") if is_there else self._progress_entering(task, stage)
        standing = self._columns_at(task.spec, after)
        bound = rows.named_account(_spec_at(task.spec, after))
        if self._sql.change("return_to", id=task_id, session_id=session_id, account=bound, **standing) == 0:
            raise Conflict(f"Task {task_id} is {task.state}; it cannot go to another stage.")
        faults.tx("stage.return_to")
        self._events.emit(
            Event(
                kind="task.stage",
                task_id=task_id,
                message=f"Task {task_id} goes back to {describe_stage(task.spec.stages, stage)}, with its checkpoint.",
                reason="checkpoint",
                data={"step": "checkpoint", "stage": stage, "name": task.spec.stages[stage].name, "turn": 0, "try": 1},
            ),
            now,
        )

    def reset_for_retry(self, task: Task, *, fresh: bool) -> None:
        if not task.spec.stages:
            return
        after = START if fresh else progress_after_retry(task.progress)
        bound = rows.named_account(_spec_at(task.spec, after))
        self._sql.change("retried", id=task.id, fresh=int(fresh), account=bound, **self._columns_at(task.spec, after))
        if not fresh:
            self._sql.change("carry_results", id=task.id)
        faults.tx("stage.retried")

    def enter_round(self, task: Task, stage: int, *, keeps_feedback: bool) -> None:
        stays = task.progress.stage == stage
        after = enter_stage(task.progress, stage, task.progress.feedback if keeps_feedback and stays else "")
        after = replace(after, turns={}, since=after.since if stays else self._runs_so_far(task.id))
        session = (task.session_id, task.account) if stays else self._session_of(task, stage)
        self._sql.change(
            "enter_round",
            id=task.id,
            session_id=session[0],
            account=session[1] if session[0] else rows.named_account(_spec_at(task.spec, after)),
            **self._columns_at(task.spec, after),
        )
        faults.tx("stage.enter_round")

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _session_of(self, task: Task, stage: int) -> tuple[str | None, str | None]:
        """Return the newest session of a stage and its account. A session in a container ended with its container."""
        if task.spec.strategy is Strategy.CONTAINER:
            return None, None
        row = self._sql.row("session_of_stage", id=task.id, stage=task.spec.stages[stage].name)
        return (None, None) if row is None else (row["session_id"], row["account"])

    def _runs_so_far(self, task_id: str) -> int:
        return int(self._sql.value("runs_so_far", id=task_id))

    def _columns_at(self, spec: TaskSpec, progress: Progress) -> dict[str, str | None]:
        """Return the columns of a task's row for this position in its workflow."""
        at = _spec_at(spec, progress)
        return {"progress": rows.encode_progress(progress), "agent": at.agent, "settings": rows.encode_settings(at)}

    def _progress_entering(self, task: Task, stage: int) -> Progress:
        """Return the progress of a task that enters a stage. `since` hides the earlier runs of the task from the stage:
        they belonged to other stages, or are undone."""
        return replace(enter_stage(task.progress, stage), since=int(self._sql.value("runs_so_far", id=task.id)))

    def _get(self, task_id: str) -> Task:
        found = self._tasks.tuples("get", id=task_id)
        if not found:
            raise NotFound(f"Task not found: {task_id}")
        return rows.task_from_row(found[0])


def _spec_at(spec: TaskSpec, progress: Progress) -> TaskSpec:
    stage = stage_of(spec.stages, progress)
    if stage is None:
        return spec
    provider = "" if is_workflow_over(spec.stages, progress) else stage.provider  # no agent runs any more
    return replace(spec, agent=stage.agent, agent_options=stage.agent_options, timeout=stage.timeout, provider=provider)


def _ownership_columns(ownership: Ownership) -> dict[str, object]:
    return {"id": ownership.task_id, "fence": ownership.fence, "owner": ownership.owner}


class SqliteResults:
    """The SQLite adapter of `Results`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._sql = Statements(connection, "results")
        self._tasks = Statements(connection, "tasks")

    def record(self, ownership: Ownership, result: StageResult) -> StageResult:
        require_owner(self._tasks, ownership)
        gate = result.gate
        changed = self._sql.change(
            "record",
            task_id=ownership.task_id,
            stage=result.stage,
            stage_name=result.name,
            visit=result.visit,
            attempt=result.attempt,
            member=result.member,
            run_id=result.run_id,
            agent=result.agent,
            outcome=result.outcome,
            reason=result.reason,
            ruling=result.ruling,
            passed=int(result.passed),
            text=result.text,
            files=encode_redacted(list(result.files)),
            changed=result.changed,
            commit_id=result.commit,
            gate=None
            if gate is None
            else encode_redacted(
                {"command": gate.command, "passed": gate.passed, "how": gate.how, "output": gate.output}
            ),
            started_at=result.started_at,
            ended_at=result.ended_at,
        )
        faults.tx("result.record")
        row = (
            self._sql.row("last", task_id=ownership.task_id)
            if changed
            else self._sql.row("of_run", run_id=result.run_id)
        )
        assert row is not None  # just written, or the earlier result of this run, which prevented it
        return _result(row)

    def of_task(self, task_id: str) -> Sequence[StageResult]:
        return [_result(row) for row in self._sql.rows("of_task", task_id=task_id)]


@stored_data_errors
def _result(row: Row) -> StageResult:
    return StageResult(
        number=row["number"],
        stage=row["stage"],
        name=row["name"],
        visit=row["visit"],
        attempt=row["attempt"],
        member=row["member"],
        run_id=row["run_id"],
        agent=row["agent"],
        outcome=row["outcome"],
        reason=row["reason"],
        ruling=row["ruling"],
        passed=bool(row["passed"]),
        text=row["text"],
        files=tuple(decode(row["files"])),
        changed=row["changed"],
        commit=row["commit_id"],
        gate=None if row["gate"] is None else GateResult(**decode(row["gate"])),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )
