"""The preparation of a task's workspace: it is made once, kept between attempts, and made again when it is gone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial

from holdfast.base.errors import HoldfastError, LaunchError, WorkspaceProblem, is_transient
from holdfast.base.ids import new_id
from holdfast.base.text import one_line
from holdfast.core.model import Repo, Strategy, Task, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.core.tasks.messages import is_rebase_request
from holdfast.core.workflows.workflow import name_of
from holdfast.store.port.transaction import Ownership, Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.checkpoint_restore import (
    choose_last_checkpoint,
    read_chosen_checkpoint,
    restore_in_new_workspace,
    restore_in_place,
)
from holdfast.supervisor.workspaces.remove import remove_workspace
from holdfast.supervisor.workspaces.save import deliver_work, save_work
from holdfast.supervisor.workspaces.setup import set_up_workspace
from holdfast.workspaces import names
from holdfast.workspaces.port import BaseComparison, WorkspacePlan


async def ensure_workspace(context: Context, task: Task, ownership: Ownership) -> Workspace:
    """Return a workspace in state `ready`. The ledger row comes first, so every step may be repeated after a crash."""
    workspace = await context.writer.write(lambda tx: tx.workspaces.current(task.id))
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    strategy = context.ports.strategy_of(task.spec)
    if task.fresh:
        for old in await context.writer.write(lambda tx: tx.workspaces.all_current(task.id)):
            await _remove_old_workspace(context, task, repo, old)
        workspace = None
    if workspace is not None and workspace.state is WorkspaceState.INTENDED:
        return await _make_workspace(context, task, ownership, repo, workspace)
    if workspace is not None and await strategy.is_intact(repo, workspace):
        await strategy.drop_stale_locks(repo, workspace)
        chosen = await read_chosen_checkpoint(context, task)
        if chosen is not None:
            await restore_in_place(context, task, ownership, repo, workspace, chosen)
        if workspace.state is WorkspaceState.READY:
            return workspace
        return await _record_ready(context, ownership, workspace, "retried in the preserved tree")
    if workspace is not None:
        await choose_last_checkpoint(context, task, workspace)
        await _remove_old_workspace(context, task, repo, workspace)
    return await _make_workspace(context, task, ownership, repo, await _record_intent(context, task, ownership, repo))


async def ensure_member_workspace(context: Context, task: Task, ownership: Ownership, member: str) -> Workspace:
    """Return a member's own workspace in state `ready`.

    It starts from the current commit of the task's workspace, and is kept as long as the task's workspace. Both are
    made, removed and found again in the same way.
    """
    if task.spec.strategy is Strategy.NONE:
        raise LaunchError("Members with `apart = true` need workspaces of their own: `--workspace none` has none.")
    stage, since = name_of(task.spec.stages, task.progress), task.progress.since
    workspace = await context.writer.write(lambda tx: tx.workspaces.current(task.id, member))
    goes_on = await context.writer.write(lambda tx: tx.runs.has_member_run(task.id, stage, member, since))
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    strategy = context.ports.strategy_of(task.spec)
    if workspace is not None and not goes_on:  # it belongs to another stage, or to this stage of an earlier start
        await deliver_work(context, task.spec, repo, workspace)
        await _remove_old_workspace(context, task, repo, workspace)
        workspace = None
    if workspace is not None and workspace.state is not WorkspaceState.INTENDED:
        if await strategy.is_intact(repo, workspace):
            await strategy.drop_stale_locks(repo, workspace)
            if workspace.state is WorkspaceState.READY:
                return workspace
            return await _record_ready(context, ownership, workspace, "retried in the preserved tree")
        await _remove_old_workspace(context, task, repo, workspace)
        workspace = None
    if workspace is None:
        workspace = await _record_member_intent(context, task, ownership, repo, member, goes_on=goes_on)
    async with _problems_as_launch_errors():
        await strategy.prepare(repo, workspace, None)
    await set_up_workspace(context, task, repo, workspace)
    return await _record_ready(context, ownership, workspace, f"for member {member}")


async def _record_member_intent(
    context: Context, task: Task, ownership: Ownership, repo: Repo, member: str, *, goes_on: bool
) -> Workspace:
    """Record the intent of a member's workspace. Reuse the member's branch when it resumes, otherwise create a new
    numbered branch."""
    before = await context.writer.write(lambda tx: tx.workspaces.branches_of(task.id, member))
    branch = before[-1] if before and goes_on else names.member_branch(task.id, member, len(before) + 1)
    plan = await _member_plan(context, task, repo, names.member_workspace_name(task.id, member), branch)
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
    await context.writer.write(lambda tx: tx.workspaces.intend(ownership, workspace, context.clock()))
    return workspace


async def _member_plan(context: Context, task: Task, repo: Repo, name: str, branch: str | None) -> WorkspacePlan:
    """Plan a member's workspace from the task's commits, or from its base if there are none. If the task works in a
    clone, its commits are fetched first."""
    strategy, now = context.ports.strategy_of(task.spec), await context.writer.write(lambda tx: tx.tasks.get(task.id))
    own = await context.writer.write(lambda tx: tx.workspaces.current(task.id))
    problem = None if own is None else await deliver_work(context, task.spec, repo, own)
    if problem is not None:
        raise LaunchError(f"A member cannot start from the commits of task {task.id}: {problem}")
    for base in (now.branch, now.base_commit):
        if base is not None:
            with contextlib.suppress(LaunchError):
                return await strategy.plan(repo, name, base, branch, 0)
    return await strategy.plan(repo, name, task.spec.base_ref, branch, 0)


async def _record_intent(context: Context, task: Task, ownership: Ownership, repo: Repo) -> Workspace:
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
        tx.tasks.set_base(ownership, base, plan.branch, now, base_ref)
        tx.workspaces.intend(ownership, workspace, now)

    await context.writer.write(record)
    return workspace


async def _plan(context: Context, task: Task, repo: Repo) -> tuple[WorkspacePlan, str | None]:
    """Return the plan of a task's workspace, and the parent's branch if the base was found there."""
    fresh_name = task.generation if task.fresh else 0
    strategy = context.ports.strategy_of(task.spec)
    parent_id = task.spec.parent_id if task.spec.base_from_parent else None
    if parent_id is not None and (task.fresh or task.base_commit is None):
        parent = await context.writer.write(lambda tx: tx.tasks.get(parent_id))
        # An empty branch is deleted at its task's end: then the base has everything. The branch of a clone is fetched
        # only then.
        for base in (parent.branch, parent.base_commit) if parent.spec.repo_id == repo.id else ():
            if base is not None:
                with contextlib.suppress(LaunchError):
                    plan = await strategy.plan(repo, task.id, base, task.branch, fresh_name)
                    return plan, base if base == parent.branch else None
    return await strategy.plan(repo, task.id, task.spec.base_ref, task.branch, fresh_name), None


async def _make_workspace(
    context: Context, task: Task, ownership: Ownership, repo: Repo, workspace: Workspace
) -> Workspace:
    """Make the workspace of a task, from the chosen checkpoint or else from the salvage of its last workspace. A fresh
    start uses neither."""
    salvaged = None
    chosen = await read_chosen_checkpoint(context, task)
    if not task.fresh and chosen is None:
        salvaged = await context.writer.write(lambda tx: tx.workspaces.last_salvage(task.id))
    async with _problems_as_launch_errors():
        await context.ports.strategy_of(task.spec).prepare(repo, workspace, salvaged.commit if salvaged else None)
        told = (
            None
            if chosen is None
            else await restore_in_new_workspace(context, task, ownership, repo, workspace, chosen)
        )
    await set_up_workspace(context, task, repo, workspace)  # before `ready`: after a crash in between it is made again
    how = f"with the work saved as {salvaged.commit[:12]}" if salvaged else "from its base"
    if chosen is None or told is None:
        return await _record_ready(context, ownership, workspace, how)
    return await context.writer.write(
        partial(_record_restored, context, ownership, workspace, chosen.checkpoint.number, told)
    )


@contextlib.asynccontextmanager
async def _problems_as_launch_errors() -> AsyncIterator[None]:
    try:
        yield
    except WorkspaceProblem as error:
        if is_transient(error):
            raise  # the machine failed, not the task: it is tried again
        raise LaunchError(f"The workspace could not be made: {error}") from error


def _record_restored(
    context: Context, ownership: Ownership, workspace: Workspace, number: int, told: str, tx: Transaction
) -> Workspace:
    """Record the restored checkpoint and the ready workspace in one transaction. A crash between two transactions would
    restore it a second time."""
    now = context.clock()
    tx.checkpoints.record_restored(ownership, number, workspace.id, told, now)
    return tx.workspaces.ready(ownership, workspace, f"from checkpoint {number}", now)


async def _record_ready(context: Context, ownership: Ownership, workspace: Workspace, reason: str) -> Workspace:
    return await context.writer.write(lambda tx: tx.workspaces.ready(ownership, workspace, reason, context.clock()))


async def _remove_old_workspace(context: Context, task: Task, repo: Repo, workspace: Workspace) -> None:
    """Remove a workspace that the next attempt will not use: it is damaged, vanished, or a fresh start was
    requested."""
    problem = await save_work(context, task.spec, repo, workspace, "its task starts again")
    if problem is not None:
        raise LaunchError(f"The old workspace {workspace.path} cannot be removed: {problem}")
    await remove_workspace(context, task, repo, workspace, "given up for a new one")


# -- a rebase that a person asked for ----------------------------------------------------------------------------------

MOST_NAMED = 5  # files with conflicts in a reason


async def bring_base(context: Context, task: Task) -> None:
    """Make the present commit of the base available in the workspace of a task that is asked to rebase."""
    found = await context.writer.write(lambda tx: _read_request(tx, task.id))
    if found is not None:
        repo, workspace, base = found
        async with _problems_as_launch_errors():
            await context.ports.strategy_of(task.spec).bring_base(repo, workspace, base)


async def compare_rebased(context: Context, task: Task) -> BaseComparison | None:
    """Compare the saved branch of a task that was asked to rebase with its base. None: no rebase was asked for, or the
    comparison failed."""
    found = await context.writer.write(lambda tx: _read_request(tx, task.id))
    if found is None:
        return None
    repo, workspace, base = found
    try:
        return await context.ports.strategy_of(task.spec).compare_with_base(repo, workspace, base)
    except (HoldfastError, OSError):
        return None  # the repository cannot be read: the settlement does not depend on it


def _read_request(tx: Transaction, task_id: str) -> tuple[Repo, Workspace, str] | None:
    """Return the repository, the workspace and the base, if the newest message of the task asks for a rebase."""
    messages, workspace = tx.messages.of_task(task_id), tx.workspaces.current(task_id)
    if not messages or not is_rebase_request(messages[-1].text) or workspace is None or workspace.branch is None:
        return None
    spec = tx.tasks.get(task_id).spec
    return tx.workspaces.repo(spec.repo_id), workspace, spec.base_ref


def describe_conflicts(base: str, names: Sequence[str]) -> str:
    """Return a text like "its branch still conflicts with main: a.py, b.py"."""
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"its branch still conflicts with {base}: {', '.join(one_line(name, 80) for name in names[:MOST_NAMED])}{more}"
    )
