"""The one tail of every ending: save work, decide, settle. Crashed and normal runs share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holdfast.base import faults
from holdfast.core.model import Event, Level, Repo, Strategy, Task, Workspace
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Action, Decision, decide, with_the_clock
from holdfast.core.runs.preserve import Disposition, resolve
from holdfast.core.states import TASK_TERMINAL, TaskState, WorkspaceState
from holdfast.core.workflows.next_stage import Following, place
from holdfast.core.workflows.result import Result
from holdfast.core.workflows.workflow import stage_of
from holdfast.store.port.transaction import Grip, Transaction
from holdfast.store.port.values import unsaved_alert
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.mass_death import spared
from holdfast.supervisor.dispatch.probes import after_end
from holdfast.supervisor.dispatch.spending import held_to_budgets, spent_of
from holdfast.supervisor.dispatch.workers import for_worker, keeps_worker, tell_worker
from holdfast.supervisor.runs.result import result_at_end
from holdfast.supervisor.runs.stages import Ended, advance, move
from holdfast.supervisor.workspaces.save import deliver_work, litter_of, save_work

_TERMINAL = {
    Action.COMPLETE: TaskState.COMPLETED,
    Action.FAIL: TaskState.FAILED,
    Action.CANCEL: TaskState.CANCELLED,
}


async def settle(
    context: Context, task: Task, grip: Grip, run_id: str | None, verdict: Verdict, ended: Ended | None = None
) -> bool:
    """The tree is proven empty. Work is saved before the task moves; what becomes of its workspace is decided here.
    `ended`: what the stage of its workflow came to.

    True: the task has ended. Otherwise it goes on later, in the same place.
    """
    ledger, spent, crossed, death = await context.writer.write(
        lambda tx: (
            tx.tasks.ledger(task),
            spent_of(tx, task),
            tx.spending.crossed(run_id or ""),
            None if run_id is None else tx.holds.death(run_id),
        )
    )
    decided = context.clock()
    decision = decide(verdict, ledger, context.limits, decided, context.jitter())
    if death is not None:
        decision = spared(decision, death[0])
    decision, following = advance(task, decision, ended, verdict, ledger, context.limits)
    decision = held_to_budgets(context, decision, spent, crossed)
    if task.spec.strategy is Strategy.CONTAINER and context.accounts.names(task.spec.agent):
        decision = _after_container(decision)
    disposition = await _save(context, task, decision)
    result = None
    if decision.action in _TERMINAL and not task.spec.stages:
        result = await result_at_end(context, task, run_id, verdict)
    stage = stage_of(task.spec.stages, task.progress)
    has_run = run_id is not None or following is not None or (stage is not None and stage.is_parallel)
    if has_run and decision.action not in _TERMINAL:
        await _checkpoint(context, task, grip, run_id, verdict, decision, following)
    if run_id is not None:
        context.processes.forget(run_id)  # before: nothing may fail after the task is settled
    faults.passed("settle.ask")  # who comes to a halt here may be declared lost before it settles
    state = await context.writer.write(
        lambda tx: _settle(
            context,
            tx,
            task,
            grip,
            run_id,
            verdict,
            with_the_clock(decision, decided, context.clock()),
            disposition,
            _telling(context, task, grip, result, ended, following),
        )
    )
    context.bell.ring()
    if context.checkpoints is not None and state in TASK_TERMINAL:
        context.checkpoints.ended(task.id)
    return state in TASK_TERMINAL


def _settle(
    context: Context,
    tx: Transaction,
    task: Task,
    grip: Grip,
    run_id: str | None,
    verdict: Verdict,
    decision: Decision,
    disposition: Disposition | None,
    also: Callable[[Transaction, Decision], None],
) -> TaskState:
    """The task, the named worker that had it, and the claim of the issue that it came from: at once."""
    decision = after_end(context, tx, task, run_id, verdict, decision)
    crash = for_worker(context, tx, task, verdict, decision)
    decision = keeps_worker(context, task, decision, crash)
    also(tx, decision)
    state = tx.tasks.settle(grip, run_id, verdict, decision, disposition, context.clock())
    tell_worker(context, tx, task, run_id, verdict, decision, crash)
    if context.settings.staff.release_claims:
        tx.links.after_settle(task.id, state, verdict.outcome, context.clock())
    return state


def _telling(
    context: Context, task: Task, grip: Grip, result: Result | None, ended: Ended | None, following: Following | None
) -> Callable[[Transaction, Decision], None]:
    """What is recorded besides, while the task is still ours: its result, or its stage's and where it stands then."""

    def record(tx: Transaction, decision: Decision) -> None:
        if result is not None:
            tx.results.record(grip, result)
        move(context, tx, task, grip, decision, ended, following)

    return record


async def _checkpoint(
    context: Context,
    task: Task,
    grip: Grip,
    run_id: str | None,
    verdict: Verdict,
    decision: Decision,
    following: Following | None,
) -> None:
    """R-RES-11: at every stage's end, and whenever a run ends that goes on later."""
    if context.checkpoints is None:
        return
    session_id = (verdict.session_id or task.session_id) if decision.keeps_session else None
    if following is None:
        word = "paused" if decision.action is Action.PAUSE else "requeued"
        await context.checkpoints.at_end(task, grip, run_id, session_id, f"{word}: {verdict.outcome}")
        return
    why = f"at the end of {place(task.spec.stages, task.progress.stage)}"
    follows = None if following.keeps_session else following.progress.stage
    await context.checkpoints.at_end(task, grip, run_id, session_id, why, always=True, next_stage=follows)


def _after_container(decision: Decision) -> Decision:
    """Each run has a container of its own, with which its session goes. And a login or a bill that failed in there may
    be fine outside: the account's own directory was not there."""
    is_stopped = decision.parking is not None and decision.parking.until is None
    return replace(decision, keeps_session=False, parking=None if is_stopped else decision.parking)


async def _save(context: Context, task: Task, decision: Decision) -> Disposition | None:
    """Between attempts the workspace stays as it is; only a terminal state saves and disposes."""
    ending = _TERMINAL.get(decision.action)
    if ending is None:
        return None
    disposition = resolve(task.spec, ending)
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    for workspace in await context.writer.write(lambda tx: tx.workspaces.all_current(task.id)):
        if workspace.state is not WorkspaceState.INTENDED:
            disposition = await _save_one(context, task, repo, workspace, ending, disposition)
    return disposition


async def _save_one(
    context: Context, task: Task, repo: Repo, workspace: Workspace, ending: TaskState, disposition: Disposition
) -> Disposition:
    """Its own, or that of a member of a parallel stage. What cannot be saved of one preserves all of them."""
    await context.strategy_of(task.spec).tidy(repo, workspace)
    if ending is TaskState.COMPLETED and not workspace.member:  # a member's are committed when it completes
        await commit_leftovers(context, task, repo, workspace)
    problem = await deliver_work(context, task.spec, repo, workspace)
    if problem is None and disposition.preserve:
        return disposition
    if problem is None:
        problem = await save_work(context, task.spec, repo, workspace, f"task {ending}")
    if problem is None:
        return disposition
    await _alert_unsaved(context, task, workspace, problem)
    return Disposition(preserve=True, tier="safety", reason=problem)


async def commit_leftovers(context: Context, task: Task, repo: Repo, workspace: Workspace) -> None:
    title = task.spec.prompt.strip().splitlines()[0][:60] if task.spec.prompt.strip() else task.id
    message = f"{title} (leftovers)\n\nLeft uncommitted by the agent of Holdfast task {task.id}; committed by Holdfast."
    leave = (*task.spec.workspace.copy, *litter_of(context, task.spec))
    commit = await context.strategy_of(task.spec).commit_leftovers(
        repo, workspace, task.spec.commit_leftovers, message, leave
    )
    if commit is not None:
        await context.writer.write(
            lambda tx: tx.events.emit(
                Event(
                    kind="workspace.kept",
                    component="workspaces",
                    task_id=task.id,
                    message=f"What task {task.id} left uncommitted is now commit {commit[:12]} on {workspace.branch}.",
                    data={"commit": commit, "branch": workspace.branch},
                ),
                context.clock(),
            )
        )


async def _alert_unsaved(context: Context, task: Task, workspace: Workspace, problem: str) -> None:
    await context.writer.write(
        lambda tx: tx.events.raise_alert(
            unsaved_alert(workspace.id),
            f"The workspace {workspace.path} of task {task.id} is preserved because {problem}.",
            f"Look into it; drop it with `holdfast workspaces clean {task.id}` when you have what you need.",
            context.clock(),
            task_id=task.id,
        )
    )


async def freeze(context: Context, grip: Grip, run_id: str | None, verdict: Verdict) -> None:
    """Nothing proves that the tree is empty: not requeued, not cleaned, told loudly."""
    assert verdict.outcome is Outcome.UNKNOWN

    def record(tx: Transaction) -> None:
        now = context.clock()
        tx.holds.free(grip.task_id)
        tx.events.emit(
            Event(
                kind="task.frozen",
                level=Level.CRITICAL,
                task_id=grip.task_id,
                run_id=run_id,
                message=f"Task {grip.task_id} is frozen: {verdict.reason}.",
                reason=verdict.reason,
            ),
            now,
        )
        tx.events.raise_alert(
            f"frozen:{run_id}",
            f"Task {grip.task_id} is frozen: {verdict.reason}. It is neither run again nor cleaned.",
            f"Make sure that nothing of run {run_id} lives, then `holdfast cancel {grip.task_id} --assume-dead`.",
            now,
            task_id=grip.task_id,
        )

    await context.writer.write(record)
