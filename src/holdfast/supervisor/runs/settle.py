"""The end of every run, crashed or not: save work, decide by core/settle.py, record the settlement."""

from __future__ import annotations

from dataclasses import replace

from holdfast.base import faults
from holdfast.core.dispatch.mass_death import Death
from holdfast.core.model import Event, Level, Repo, Strategy, Task, Workspace
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.core.runs.preserve import Disposition, resolve_disposition
from holdfast.core.settle import SettleFacts, Settlement
from holdfast.core.settle import settle as decide_settlement
from holdfast.core.states import TASK_TERMINAL, TaskState, WorkspaceState
from holdfast.core.workflows.advance import StageOutcome
from holdfast.core.workflows.next_stage import describe_stage
from holdfast.core.workflows.result import StageResult
from holdfast.core.workflows.workflow import stage_of
from holdfast.store.port.transaction import Ownership, Transaction
from holdfast.store.port.values import unsaved_alert
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.accounts import has_other_account
from holdfast.supervisor.dispatch.probes import read_holds, record_holds
from holdfast.supervisor.dispatch.spending import cap_names, describe_spent_cap, describe_spent_stage
from holdfast.supervisor.dispatch.workers import read_worker_facts, record_worker_crash
from holdfast.supervisor.runs.result import collect_final_result
from holdfast.supervisor.runs.stages import record_stage_move
from holdfast.supervisor.workspaces.prepare import compare_rebased, describe_conflicts
from holdfast.supervisor.workspaces.save import (
    SaveProblem,
    commit_leftovers,
    deliver_work,
    is_gone,
    report_vanished,
    salvage_work,
    save_lost_stashes,
)

_TERMINAL = {
    PolicyAction.COMPLETE: TaskState.COMPLETED,
    PolicyAction.FAIL: TaskState.FAILED,
    PolicyAction.CANCEL: TaskState.CANCELLED,
}


async def settle(
    context: Context,
    task: Task,
    ownership: Ownership,
    run_id: str | None,
    verdict: Verdict,
    stage: StageOutcome | None = None,
) -> bool:
    """Save work, decide what becomes of the task, and record it. The run's process tree is proven empty.

    `stage`: the outcome of the stage of the task's workflow. Return True if the task has ended. Otherwise it continues
    later in the same workspace.
    """
    facts = await context.writer.write(lambda tx: _read_facts(context, tx, task, run_id, verdict, stage))
    expected = decide_settlement(facts)
    disposition, is_whole = await _save_workspaces(context, task, expected.decision)
    rebased, base = None, None
    if expected.decision.action is PolicyAction.COMPLETE:
        rebased = await compare_rebased(context, task)
        conflict = "" if rebased is None else describe_conflicts(task.spec.base_ref, rebased.conflicts)
        facts = replace(facts, conflict=conflict)
        base = None if rebased is None or rebased.conflicts else rebased.fork  # `diff` shows the task's work alone
    result = None
    if (expected.decision.action in _TERMINAL or expected.decision.begins_round) and not task.spec.stages:
        result = await collect_final_result(context, task, run_id, verdict, is_committed=is_whole, base=base)
    await _save_checkpoint(context, task, ownership, run_id, verdict, expected)
    if run_id is not None:
        context.ports.processes.forget(run_id)  # before: nothing may fail after the task is settled
    faults.passed("settle.ask")  # a supervisor that stops here may be declared lost before it settles

    def record(tx: Transaction) -> TaskState:
        if base is not None:
            tx.tasks.set_base(ownership, base, tx.tasks.get(task.id).branch, context.clock())
        return _record(context, tx, ownership, run_id, facts, disposition, result)

    state = await context.writer.write(record)
    context.bell.ring()
    if state in TASK_TERMINAL:
        context.services.checkpoints.ended(task.id)
    return state in TASK_TERMINAL


def _read_facts(
    context: Context, tx: Transaction, task: Task, run_id: str | None, verdict: Verdict, stage: StageOutcome | None
) -> SettleFacts:
    """Read everything that the settlement depends on, in one transaction."""
    now = context.clock()
    return SettleFacts(
        task=task,
        verdict=verdict,
        ledger=tx.tasks.ledger(task),
        limits=context.limits,
        decided=now,
        recorded=now,
        jitter=context.jitter(),
        stage=stage,
        messages=tx.messages.waiting_count(task.id),
        spent=describe_spent_cap(tx, task),
        stage_spent=describe_spent_stage(tx, task),
        crossed=cap_names(context, tx.spending.crossed(run_id or "")),
        death=_read_death(tx, run_id),
        other_account=has_other_account(context, tx, task, run_id, verdict),
        loses_session=task.spec.strategy is Strategy.CONTAINER and bool(context.ports.accounts.names(task.spec.agent)),
    )


def _read_death(tx: Transaction, run_id: str | None) -> Death | None:
    found = None if run_id is None else tx.holds.death(run_id)
    return None if found is None else found[0]


def _record(
    context: Context,
    tx: Transaction,
    ownership: Ownership,
    run_id: str | None,
    facts: SettleFacts,
    disposition: Disposition | None,
    result: StageResult | None,
) -> TaskState:
    """Settle the task, the named worker that had it and the claim of its tracker issue in one transaction.

    Holds, deaths and workers may have changed while work was saved, so their facts are read again here.
    """
    task, verdict = facts.task, facts.verdict
    holds = read_holds(context, tx, task, run_id, verdict)
    facts = replace(
        facts,
        recorded=context.clock(),
        messages=tx.messages.waiting_count(task.id),
        death=_read_death(tx, run_id),
        provider=holds.provider_hold,
        repeats=holds.repeats,
        worker=read_worker_facts(context, tx, task),
    )
    settlement = decide_settlement(facts)
    decision = settlement.decision
    record_holds(context, tx, task, run_id, verdict, decision, holds)
    if result is not None:
        tx.results.record(ownership, result)
    record_stage_move(context, tx, task, ownership, decision, facts.stage, settlement.following)
    state = tx.tasks.settle(ownership, run_id, verdict, decision, disposition, context.clock())
    if decision.begins_round:
        tx.messages.begin_round(task.id, context.clock())
    record_worker_crash(context, tx, run_id, facts, settlement)
    if context.settings.staff.release_claims:
        tx.issue_links.after_settle(task.id, state, verdict.outcome, context.clock())
    return state


async def _save_checkpoint(
    context: Context, task: Task, ownership: Ownership, run_id: str | None, verdict: Verdict, expected: Settlement
) -> None:
    """Keep the tree at the end of every stage, and when a run ends that continues later (R-RES-11)."""
    decision, following = expected.decision, expected.following
    stage = stage_of(task.spec.stages, task.progress)
    has_run = run_id is not None or following is not None or (stage is not None and stage.is_parallel)
    if not has_run or decision.action in _TERMINAL:
        return
    session_id = (verdict.session_id or task.session_id) if decision.keeps_session else None
    if following is None:
        word = "paused" if decision.action is PolicyAction.PAUSE else "requeued"
        await context.services.checkpoints.save_at_end(
            task, ownership, run_id, session_id, f"{word}: {verdict.outcome}"
        )
        return
    why = f"at the end of {describe_stage(task.spec.stages, task.progress.stage)}"
    follows = None if following.keeps_session else following.progress.stage
    await context.services.checkpoints.save_at_end(
        task, ownership, run_id, session_id, why, always=True, next_stage=follows
    )


async def _save_workspaces(context: Context, task: Task, decision: Decision) -> tuple[Disposition | None, bool]:
    """Save the work of a task that ends. Between attempts the workspace stays as it is.

    Return the disposition, and True if the task's branch is known to hold everything that was in its workspace.
    """
    ending = _TERMINAL.get(decision.action)
    if decision.begins_round:
        await _commit_round(context, task)
    if ending is None:
        return None, False
    disposition = resolve_disposition(task.spec, ending)
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    there = await context.writer.write(lambda tx: tx.workspaces.all_current(task.id))
    if there and all(map(is_gone, there)):
        disposition = Disposition(preserve=False, tier="safety", reason="its workspace was gone")
    whole = False
    for workspace in there:
        if workspace.state is not WorkspaceState.INTENDED:
            disposition, is_whole = await _save_one(context, task, repo, workspace, ending, disposition)
            whole = whole or (is_whole and not workspace.member)
    return disposition, whole


async def _commit_round(context: Context, task: Task) -> None:
    """Commit what a successful agent left uncommitted. The task continues, and its next round may fail."""
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    workspace = await context.writer.write(lambda tx: tx.workspaces.current(task.id))
    if workspace is not None and workspace.state is WorkspaceState.READY and not is_gone(workspace):
        await commit_leftovers(context, task, repo, workspace)


async def _save_one(
    context: Context, task: Task, repo: Repo, workspace: Workspace, ending: TaskState, disposition: Disposition
) -> tuple[Disposition, bool]:
    """Save one workspace: the task's own, or that of a member of a parallel stage. If the work in one workspace cannot
    be saved, all workspaces of the task are preserved. The second value: True if the workspace's branch is known to
    hold everything."""
    await context.ports.strategy_of(task.spec).drop_stale_locks(repo, workspace)
    problem = None
    if ending is TaskState.COMPLETED and not workspace.member:  # a member's are committed when it completes
        problem = await commit_leftovers(context, task, repo, workspace)
    problem = problem or await deliver_work(context, task.spec, repo, workspace)
    has_vanished = is_gone(workspace)
    if problem is None and not has_vanished and not workspace.member:
        problem = await save_lost_stashes(context, task, repo, workspace)
    is_whole = False
    if problem is None and disposition.preserve and not has_vanished:
        return disposition, is_whole
    if problem is None:
        problem, is_whole = await salvage_work(context, task.spec, repo, workspace, f"task {ending}")
    if has_vanished:
        await report_vanished(context, task, repo, workspace)
    if problem is None:
        return disposition, is_whole and workspace.branch is not None and not has_vanished
    await _alert_unsaved(context, task, workspace, problem)
    return problem.disposition, False


async def _alert_unsaved(context: Context, task: Task, workspace: Workspace, problem: SaveProblem) -> None:
    remedy = f"Copy what you need from it, then remove it with `holdfast workspaces clean {task.id}`."
    if problem.is_passing:
        remedy = f"Holdfast tries again by itself. To try at once: `holdfast workspaces clean {task.id}`."
    await context.writer.write(
        lambda tx: tx.events.raise_alert(
            unsaved_alert(workspace.id),
            f"The workspace {workspace.path} of task {task.id} is preserved because {problem}.",
            remedy,
            context.clock(),
            task_id=task.id,
        )
    )


async def freeze_task(context: Context, ownership: Ownership, run_id: str | None, verdict: Verdict) -> None:
    """Freeze a task whose process tree is not proven empty. It is not requeued and not cleaned, and a critical alert is
    raised."""
    assert verdict.outcome is Outcome.UNKNOWN

    def record(tx: Transaction) -> None:
        now = context.clock()
        tx.holds.free(ownership.task_id)
        tx.events.emit(
            Event(
                kind="task.frozen",
                level=Level.CRITICAL,
                task_id=ownership.task_id,
                run_id=run_id,
                message=f"Task {ownership.task_id} is frozen: {verdict.reason}.",
                reason=verdict.reason,
            ),
            now,
        )
        tx.events.raise_alert(
            f"frozen:{run_id}",
            f"Task {ownership.task_id} is frozen: {verdict.reason}. It is neither run again nor cleaned.",
            f"Make sure that no process of run {run_id} is alive, then `holdfast cancel {ownership.task_id} "
            f"--assume-dead`.",
            now,
            task_id=ownership.task_id,
        )

    await context.writer.write(record)
