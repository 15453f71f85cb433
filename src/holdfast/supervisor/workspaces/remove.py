"""The removal of a workspace. The guard of an attempt, the clean-up service, and a task that starts again all use this
code. Every step may be repeated.

A workspace that is in use is not removed. Its removal waits until no user is left, and an event is emitted once
(R-CLEAN-08).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator

from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import HoldfastError
from holdfast.base.instant import Instant
from holdfast.core.model import Repo, Strategy, Task, Workspace
from holdfast.core.runs.preserve import RETRY_TIER, Disposition, parse_disposition, resolve_disposition
from holdfast.core.runs.retry_budgets import backoff
from holdfast.core.states import TaskState, WorkspaceState
from holdfast.store.port.transaction import Transaction
from holdfast.store.port.values import unsaved_alert
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.save import commit_leftovers, save_work
from holdfast.supervisor.workspaces.setup import tear_down_workspace
from holdfast.workspaces.removal.in_use import lock_exclusive

SOON, LATER = 1.0, 15.0  # seconds between two looks: at first, and in the end


@contextlib.asynccontextmanager
async def lock_for_removal(context: Context, task: Task, workspace: Workspace) -> AsyncIterator[bool]:
    """Yield True if the workspace may be removed: no process can enter it while this context lasts. Yield False if the
    workspace is in use: then the wait is recorded."""
    if workspace.strategy is Strategy.NONE or workspace.state is WorkspaceState.INTENDED:
        yield True  # the user's own checkout, which stays, or a workspace that was never finished
        return
    with lock_exclusive(context.home, workspace.id) as alone:
        why = await _describe_users(context, task, workspace, alone=alone)
        if why:
            await _postpone_removal(context, workspace, why)
        else:
            context.shared.in_use.pop(workspace.id, None)
        yield not why


async def _describe_users(context: Context, task: Task, workspace: Workspace, *, alone: bool) -> str:
    users = [] if alone else ["a `holdfast shell` (or `diff`)"]
    users += await run_in_thread(context.ports.workspace_users.of, workspace.path)
    subtasks = await context.writer.write(lambda tx: tx.preserved.running_subtasks(task.id))
    users += [f"its subtask {subtask}" for subtask in subtasks]
    return ", ".join(users)


async def _postpone_removal(context: Context, workspace: Workspace, why: str) -> None:
    """Postpone the removal. Changes made in the workspace until then are saved before it is removed."""
    looks = context.shared.in_use.get(workspace.id, 0)
    context.shared.in_use[workspace.id] = looks + 1
    now = context.clock()
    retry_at = now.wall + min(LATER, SOON * 1.5**looks)
    await context.writer.write(lambda tx: tx.preserved.postpone(workspace, why, retry_at, now, tell=looks == 0))


RETRY_CAP = 3600.0


async def carry_out_disposition(
    context: Context,
    task: Task,
    repo: Repo,
    workspace: Workspace,
    interrupted: str | None = None,
    *,
    just_saved: bool = False,
) -> None:
    """Carry out what the ledger decided about the workspace of a task that has ended.

    A failure is a warning on the task and never changes its outcome (R-CLEAN-06). The decision stays in the ledger and
    is tried again. `interrupted`: the reason why the caller itself was cut short, or None. `just_saved`: the work was
    saved a moment ago. Otherwise the workspace may have changed since.
    """
    try:
        preserve = workspace.disposition == "preserve"
        how = parse_disposition(task.spec, task.state, workspace.reason, preserve=preserve)
        # With `none` the workspace is the user's own checkout: there is nothing to preserve and nothing to clean
        # (R-CLEAN-05).
        if preserve and workspace.state is not WorkspaceState.INTENDED and workspace.strategy is not Strategy.NONE:
            await _preserve(context, task, workspace, how)
            return
        async with lock_for_removal(context, task, workspace) as may_go:
            if may_go and await _save_or_preserve(context, task, repo, workspace, just_saved=just_saved):
                await remove_workspace(context, task, repo, workspace, f"cleaned: {how}", interrupted)
    except Exception as error:  # noqa: BLE001 - one workspace must never stop the clean-up of all others
        await record_cleanup_failure(context, workspace, error)


async def _save_or_preserve(
    context: Context, task: Task, repo: Repo, workspace: Workspace, *, just_saved: bool
) -> bool:
    """Save the work, or preserve the workspace if it cannot be saved. Return False if it could not be saved."""
    if workspace.disposition != "salvage" and just_saved:
        return True
    is_retry = parse_disposition(task.spec, task.state, workspace.reason, preserve=False).tier == RETRY_TIER
    problem = None
    if is_retry and task.state is TaskState.COMPLETED and not workspace.member:
        problem = await commit_leftovers(context, task, repo, workspace)
    problem = problem or await save_work(context, task.spec, repo, workspace, f"task {task.state}")
    if problem is not None:
        await _preserve(context, task, workspace, problem.disposition)
        return False
    wanted = resolve_disposition(task.spec, task.state)
    if is_retry and wanted.preserve:
        await context.writer.write(lambda tx: _record_saved(tx, workspace, wanted, context.clock()))
        return False
    return True


def _record_saved(tx: Transaction, workspace: Workspace, wanted: Disposition, now: Instant) -> None:
    """Record that the work of a workspace was saved at last. The workspace stays, as its task's settings require."""
    tx.workspaces.dispose(workspace, "preserve", str(wanted), now)
    tx.events.close_alert(unsaved_alert(workspace.id), "its workspace: its work is saved now", now)


async def remove_workspace(
    context: Context, task: Task, repo: Repo, workspace: Workspace, why: str, interrupted: str | None = None
) -> None:
    """Rename a workspace into the trash, and remove Holdfast's git entry for it and a branch without work. Its path is
    then free. Its work must be saved before.

    A workspace that does not exist is not an error (R-TREE-03). The event names the method, the duration, and the
    reason if the removal was cut short.
    """
    began = time.monotonic()
    strategy = context.ports.strategy_of(task.spec)
    await tear_down_workspace(context, task, repo, workspace)
    there = await strategy.put_away(repo, workspace)
    method = "rename" if there else "nothing was there"
    try:
        branch_is_gone = await strategy.drop_empty_branch(repo, workspace)
    except OSError as error:
        if error.filename != "git":
            raise
        # git is missing, and plain files do not need it (R-TREE-04). An empty branch waits for a sweep with git.
        branch_is_gone, method = False, f"{method}, without git"
    if not there:
        await strategy.delete_trash(workspace)  # nothing to rename (`none`, or it vanished): only our marker is left
    state = WorkspaceState.TRASHED if there else WorkspaceState.GONE
    details = {
        "method": method,
        "duration_ms": round((time.monotonic() - began) * 1000, 1),
        "cancellation_reason": interrupted or _cancellation_reason(context, task),
    }

    def record(tx: Transaction) -> None:
        if branch_is_gone and not workspace.member and task.state is not TaskState.RUNNING:
            tx.tasks.clear_branch(task.id, context.clock())
        tx.workspaces.move(workspace, state, why, context.clock(), details)

    await context.writer.write(record)


def _cancellation_reason(context: Context, task: Task) -> str | None:
    if task.state is not TaskState.CANCELLED:
        return None
    rows = context.store.view("task", id=task.id)
    return str(rows[0]["reason"]) if rows and rows[0]["reason"] else "cancelled"


async def _preserve(context: Context, task: Task, workspace: Workspace, how: Disposition) -> None:
    if workspace.state is not WorkspaceState.PRESERVED:
        ttl = task.spec.workspace.preserve_ttl

        def preserve(tx: Transaction) -> None:
            tx.preserved.preserve(workspace, how, task.state, ttl, context.clock())
            if how.tier == RETRY_TIER:
                _save_later(context, tx, workspace, how)

        await context.writer.write(preserve)
        return
    if how.tier == RETRY_TIER:
        await context.writer.write(lambda tx: _save_later(context, tx, workspace, how))
        return

    def refuse(tx: Transaction) -> None:
        """Keep a workspace that should be dropped or has expired, because its work cannot be saved. Raise an alert with
        the reason."""
        now = context.clock()
        tx.preserved.stays(workspace, how.reason, now)
        tx.events.raise_alert(
            unsaved_alert(workspace.id),
            f"The workspace {workspace.path} stays, because {how.reason}.",
            f"Take what you need, empty it by hand, then `holdfast workspaces clean {workspace.task_id}` again.",
            now,
            task_id=workspace.task_id,
        )

    await context.writer.write(refuse)


def _save_later(context: Context, tx: Transaction, workspace: Workspace, how: Disposition) -> None:
    """Record that the save of the work is tried again later. The delays grow up to RETRY_CAP, and the alert stays open
    meanwhile."""
    now = context.clock()
    retry_at = now.wall + backoff(workspace.failures, RETRY_CAP, context.jitter())
    tx.preserved.save_later(workspace, how.reason, retry_at, now)


async def record_cleanup_failure(context: Context, workspace: Workspace, error: Exception) -> None:
    """Record a failed clean-up in the ledger. The clean-up is tried again, with growing delays."""
    now, why = context.clock(), _error_text(error)
    delay = backoff(3 + workspace.failures, RETRY_CAP, context.jitter())
    await context.writer.write(lambda tx: tx.workspaces.record_cleanup_failure(workspace, why, now.wall + delay, now))


def _error_text(error: Exception) -> str:
    """Return the text of an error for people. The kind of error is included only if the text alone is unclear. Empty:
    the error has no text."""
    if isinstance(error, HoldfastError | OSError) or not str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"
