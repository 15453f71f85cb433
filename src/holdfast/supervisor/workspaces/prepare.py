"""Giving a task its workspace: made once, kept between attempts, made again when it is gone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial

from holdfast.base.errors import LaunchError, WorkspaceProblem, is_passing
from holdfast.base.ids import new_id
from holdfast.core.model import Repo, Strategy, Task, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.core.workflows.workflow import name_of
from holdfast.store.port.transaction import Grip, Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.checkpoint_restore import choose_last, chosen_for, go_back_anew, go_back_in_place
from holdfast.supervisor.workspaces.remove import put_away
from holdfast.supervisor.workspaces.save import deliver_work, save_work
from holdfast.supervisor.workspaces.setup import furnish
from holdfast.workspaces import names
from holdfast.workspaces.port import Plan


async def ensure_workspace(context: Context, task: Task, grip: Grip) -> Workspace:
    """A workspace in state `ready`. Every step may be repeated after a crash; the ledger row comes first."""
    workspace = await context.writer.write(lambda tx: tx.workspaces.current(task.id))
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    strategy = context.ports.strategy_of(task.spec)
    if task.fresh:
        for old in await context.writer.write(lambda tx: tx.workspaces.all_current(task.id)):
            await _give_up(context, task, repo, old)
        workspace = None
    if workspace is not None and workspace.state is WorkspaceState.INTENDED:
        return await _make(context, task, grip, repo, workspace)
    if workspace is not None and await strategy.is_intact(repo, workspace):
        await strategy.tidy(repo, workspace)
        chosen = await chosen_for(context, task)
        if chosen is not None:
            await go_back_in_place(context, task, grip, repo, workspace, chosen)
        if workspace.state is WorkspaceState.READY:
            return workspace
        return await _ready(context, grip, workspace, "retried in the preserved tree")
    if workspace is not None:
        await choose_last(context, task, workspace)
        await _give_up(context, task, repo, workspace)
    return await _make(context, task, grip, repo, await _intend(context, task, grip, repo))


async def ensure_member_workspace(context: Context, task: Task, grip: Grip, member: str) -> Workspace:
    """One of a member's own, in state `ready`: from where the task's own stands, kept as long as that, and made, put
    away and found again as that is."""
    if task.spec.strategy is Strategy.NONE:
        raise LaunchError("Members of their own need workspaces of their own: `--workspace none` has none to give.")
    stage, since = name_of(task.spec.stages, task.progress), task.progress.since
    workspace = await context.writer.write(lambda tx: tx.workspaces.current(task.id, member))
    goes_on = await context.writer.write(lambda tx: tx.runs.has_had(task.id, stage, member, since))
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    strategy = context.ports.strategy_of(task.spec)
    if workspace is not None and not goes_on:  # of another stage, or of this one before its task went on
        await deliver_work(context, task.spec, repo, workspace)
        await _give_up(context, task, repo, workspace)
        workspace = None
    if workspace is not None and workspace.state is not WorkspaceState.INTENDED:
        if await strategy.is_intact(repo, workspace):
            await strategy.tidy(repo, workspace)
            if workspace.state is WorkspaceState.READY:
                return workspace
            return await _ready(context, grip, workspace, "retried in the preserved tree")
        await _give_up(context, task, repo, workspace)
        workspace = None
    if workspace is None:
        workspace = await _intend_member(context, task, grip, repo, member, goes_on=goes_on)
    async with _failing_the_task():
        await strategy.prepare(repo, workspace, None)
    await furnish(context, task, repo, workspace)
    return await _ready(context, grip, workspace, f"for member {member}")


async def _intend_member(
    context: Context, task: Task, grip: Grip, repo: Repo, member: str, *, goes_on: bool
) -> Workspace:
    """On the branch that it had, if it goes on; else on one of its own for each time that it begins."""
    before = await context.writer.write(lambda tx: tx.workspaces.branches_of(task.id, member))
    branch = before[-1] if before and goes_on else names.branch_of_member(task.id, member, len(before) + 1)
    plan = await _member_plan(context, task, repo, names.of_member(task.id, member), branch)
    workspace = Workspace(
        id=new_id(),
        task_id=task.id,
        repo_id=repo.id,
        strategy=task.spec.strategy,
        path=plan.path,
        branch=plan.branch,
        base_commit=plan.base_commit,
        state=WorkspaceState.INTENDED,
        disposition=None,
        member=member,
    )
    await context.writer.write(lambda tx: tx.workspaces.intend(grip, workspace, context.clock()))
    return workspace


async def _member_plan(context: Context, task: Task, repo: Repo, name: str, branch: str | None) -> Plan:
    """From what the task has committed; if there is nothing, from its base. A clone's commits are brought in first."""
    strategy, now = context.ports.strategy_of(task.spec), await context.writer.write(lambda tx: tx.tasks.get(task.id))
    own = await context.writer.write(lambda tx: tx.workspaces.current(task.id))
    problem = None if own is None else await deliver_work(context, task.spec, repo, own)
    if problem is not None:
        raise LaunchError(f"A member cannot begin at what task {task.id} has committed: {problem}")
    for base in (now.branch, now.base_commit):
        if base is not None:
            with contextlib.suppress(LaunchError):
                return await strategy.plan(repo, name, base, branch, 0)
    return await strategy.plan(repo, name, task.spec.base_ref, branch, 0)


async def _intend(context: Context, task: Task, grip: Grip, repo: Repo) -> Workspace:
    plan, base_ref = await _plan(context, task, repo)
    base = plan.base_commit if task.fresh or task.base_commit is None else task.base_commit
    workspace = Workspace(
        id=new_id(),
        task_id=task.id,
        repo_id=repo.id,
        strategy=task.spec.strategy,
        path=plan.path,
        branch=plan.branch,
        base_commit=base,
        state=WorkspaceState.INTENDED,
        disposition=None,
    )
    now = context.clock()

    def record(tx: Transaction) -> None:
        tx.tasks.set_base(grip, base, plan.branch, now, base_ref)
        tx.workspaces.intend(grip, workspace, now)

    await context.writer.write(record)
    return workspace


async def _plan(context: Context, task: Task, repo: Repo) -> tuple[Plan, str | None]:
    """And where its base was found, if that is its parent's branch."""
    fresh_name = task.generation if task.fresh else 0
    strategy = context.ports.strategy_of(task.spec)
    parent_id = task.spec.parent_id if task.spec.base_from_parent else None
    if parent_id is not None and (task.fresh or task.base_commit is None):
        parent = await context.writer.write(lambda tx: tx.tasks.get(parent_id))
        # An empty branch is deleted at its task's end: then its base has all there was. A clone's comes only then.
        for base in (parent.branch, parent.base_commit) if parent.spec.repo_id == repo.id else ():
            if base is not None:
                with contextlib.suppress(LaunchError):
                    plan = await strategy.plan(repo, task.id, base, task.branch, fresh_name)
                    return plan, base if base == parent.branch else None
    return await strategy.plan(repo, task.id, task.spec.base_ref, task.branch, fresh_name), None


async def _make(context: Context, task: Task, grip: Grip, repo: Repo, workspace: Workspace) -> Workspace:
    """With a checkpoint that was chosen, or with what its last workspace left, if that was salvaged; unless somebody
    wants a fresh start."""
    salvaged = None
    chosen = await chosen_for(context, task)
    if not task.fresh and chosen is None:
        salvaged = await context.writer.write(lambda tx: tx.workspaces.last_salvage(task.id))
    async with _failing_the_task():
        await context.ports.strategy_of(task.spec).prepare(repo, workspace, salvaged.commit if salvaged else None)
        told = None if chosen is None else await go_back_anew(context, task, grip, repo, workspace, chosen)
    await furnish(context, task, repo, workspace)  # before `ready`: a crash in between makes it anew
    how = f"with the work saved as {salvaged.commit[:12]}" if salvaged else "from its base"
    if chosen is None or told is None:
        return await _ready(context, grip, workspace, how)
    return await context.writer.write(partial(_ready_again, context, grip, workspace, chosen.checkpoint.number, told))


@contextlib.asynccontextmanager
async def _failing_the_task() -> AsyncIterator[None]:
    try:
        yield
    except WorkspaceProblem as error:
        if is_passing(error):
            raise  # the machine's trouble, not the task's: it is tried again
        raise LaunchError(f"The workspace could not be made: {error}") from error


def _ready_again(
    context: Context, grip: Grip, workspace: Workspace, number: int, told: str, tx: Transaction
) -> Workspace:
    """At once: a crash in between would go back to it a second time."""
    now = context.clock()
    tx.checkpoints.went_back(grip, number, told, now)
    return tx.workspaces.ready(grip, workspace, f"from checkpoint {number}", now)


async def _ready(context: Context, grip: Grip, workspace: Workspace, reason: str) -> Workspace:
    return await context.writer.write(lambda tx: tx.workspaces.ready(grip, workspace, reason, context.clock()))


async def _give_up(context: Context, task: Task, repo: Repo, workspace: Workspace) -> None:
    """Put a workspace away that the next attempt will not use: damaged, vanished, or a fresh start was asked for."""
    problem = await save_work(context, task.spec, repo, workspace, "its task starts again")
    if problem is not None:
        raise LaunchError(f"The old workspace {workspace.path} stands in the way and {problem}")
    await put_away(context, task, repo, workspace, "given up for a new one")
