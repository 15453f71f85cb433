"""Putting a workspace away: the one way, for the guard of an attempt, for the clean-up service, and for a task that
starts again. Every step may be repeated."""

from __future__ import annotations

import time

from holdfast.base.errors import HoldfastError
from holdfast.core.model import Repo, Strategy, Task, Workspace
from holdfast.core.runs.preserve import Disposition, decided
from holdfast.core.runs.retry_budgets import backoff
from holdfast.core.states import TaskState, WorkspaceState
from holdfast.store.port.transaction import Transaction
from holdfast.store.port.values import unsaved_alert
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.leases import for_removal
from holdfast.supervisor.workspaces.save import save_work
from holdfast.supervisor.workspaces.setup import tear_down

RETRY_CAP = 3600.0


async def carry_out(
    context: Context,
    task: Task,
    repo: Repo,
    workspace: Workspace,
    interrupted: str | None = None,
    *,
    just_saved: bool = False,
) -> None:
    """What the ledger decided about the workspace of a task that has ended.

    R-CLEAN-06: a failure is a warning on the task and never changes its outcome; it stays in the ledger and is tried
    again. `interrupted`: why whoever does this was itself cut short, if it was. `just_saved`: the ending was a moment
    ago. Otherwise somebody may have worked in it since.
    """
    try:
        preserve = workspace.disposition == "preserve"
        how = decided(task.spec, task.state, workspace.reason, preserve=preserve)
        # `none` is the user's own checkout: there is nothing to keep, as there is nothing to clean (R-CLEAN-05).
        if preserve and workspace.state is not WorkspaceState.INTENDED and workspace.strategy is not Strategy.NONE:
            await _preserve(context, task, workspace, how)
            return
        async with for_removal(context, task, workspace) as may_go:
            if may_go and await _saved(context, task, repo, workspace, just_saved=just_saved):
                await put_away(context, task, repo, workspace, f"cleaned: {how}", interrupted)
    except Exception as error:  # noqa: BLE001 - one workspace must never stop the clean-up of all others
        await note_failure(context, workspace, error)


async def _saved(context: Context, task: Task, repo: Repo, workspace: Workspace, *, just_saved: bool) -> bool:
    """False: its work could not be saved, so it is preserved instead."""
    if workspace.disposition != "salvage" and just_saved:
        return True
    problem = await save_work(context, task.spec, repo, workspace, f"task {task.state}")
    if problem is not None:
        await _preserve(context, task, workspace, Disposition(preserve=True, tier="safety", reason=problem))
    return problem is None


async def put_away(
    context: Context, task: Task, repo: Repo, workspace: Workspace, why: str, interrupted: str | None = None
) -> None:
    """Rename it into the trash, drop our git entry and a branch without work: its path is free. Its work was saved.

    R-TREE-03: what is not there is no trouble; the event says how, how long it took, and what cut the work short.
    """
    began = time.monotonic()
    strategy = context.strategy_of(task.spec)
    await tear_down(context, task, repo, workspace)
    there = await strategy.put_away(repo, workspace)
    method = "rename" if there else "nothing was there"
    try:
        branch_is_gone = await strategy.drop_empty_branch(repo, workspace)
    except OSError as error:
        if error.filename != "git":
            raise
        # R-TREE-04: git is missing, and plain files need none; an empty branch waits for a sweep that has one.
        branch_is_gone, method = False, f"{method}, without git"
    if not there:
        await strategy.delete_trash(workspace)  # nothing to rename (`none`, or it vanished): only our marker is left
    state = WorkspaceState.TRASHED if there else WorkspaceState.GONE
    details = {
        "method": method,
        "duration_ms": round((time.monotonic() - began) * 1000, 1),
        "cancellation_reason": interrupted or _why_cancelled(context, task),
    }

    def record(tx: Transaction) -> None:
        if branch_is_gone and not workspace.member and task.state is not TaskState.RUNNING:
            tx.tasks.forget_branch(task.id, context.clock())
        tx.workspaces.move(workspace, state, why, context.clock(), details)

    await context.writer.write(record)


def _why_cancelled(context: Context, task: Task) -> str | None:
    if task.state is not TaskState.CANCELLED:
        return None
    rows = context.store.view("task", id=task.id)
    return str(rows[0]["reason"]) if rows and rows[0]["reason"] else "cancelled"


async def _preserve(context: Context, task: Task, workspace: Workspace, how: Disposition) -> None:
    if workspace.state is not WorkspaceState.PRESERVED:
        ttl = task.spec.workspace.preserve_ttl
        await context.writer.write(lambda tx: tx.keeps.preserve(workspace, how, task.state, ttl, context.clock()))
        return

    def refuse(tx: Transaction) -> None:
        """Somebody asked to drop it, or it expired, but its work cannot be saved: it stays, and says why."""
        now = context.clock()
        tx.keeps.stays(workspace, how.reason, now)
        tx.events.raise_alert(
            unsaved_alert(workspace.id),
            f"The workspace {workspace.path} stays, because {how.reason}.",
            f"Take what you need, empty it by hand, then `holdfast workspaces clean {workspace.task_id}` again.",
            now,
            task_id=workspace.task_id,
        )

    await context.writer.write(refuse)


async def note_failure(context: Context, workspace: Workspace, error: Exception) -> None:
    """It stays in the ledger, and is tried again later and later."""
    now, why = context.clock(), _words(error)
    delay = backoff(3 + workspace.failures, RETRY_CAP, context.jitter())
    await context.writer.write(lambda tx: tx.workspaces.cleanup_failed(workspace, why, now.wall + delay, now))


def _words(error: Exception) -> str:
    """What a person can use; the kind of error only where its words need it. Empty: nobody knows."""
    if isinstance(error, HoldfastError | OSError) or not str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"
