"""Putting a workspace away: the one way, for the guard of an attempt, for the clean-up service, and for a task that
starts again. Every step may be repeated."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator

from holdfast.base.concurrency import in_thread
from holdfast.base.errors import HoldfastError
from holdfast.core.model import Repo, Strategy, Task, Workspace
from holdfast.core.runs.preserve import Disposition, decided
from holdfast.core.runs.retry_budgets import backoff
from holdfast.core.states import TaskState, WorkspaceState
from holdfast.store.port.transaction import Transaction
from holdfast.store.port.values import unsaved_alert
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.save import save_work
from holdfast.supervisor.workspaces.setup import tear_down
from holdfast.workspaces.removal.in_use import sole_use

SOON, LATER = 1.0, 15.0  # seconds between two looks: at first, and in the end


@contextlib.asynccontextmanager
async def for_removal(context: Context, task: Task, workspace: Workspace) -> AsyncIterator[bool]:
    """Whether the workspace may go; while this lasts, nobody enters it. False: that waits, and it is noted."""
    if workspace.strategy is Strategy.NONE or workspace.state is WorkspaceState.INTENDED:
        yield True  # the user's own checkout, which stays; or nobody was ever let in
        return
    with sole_use(context.home, workspace.id) as alone:
        why = await _in_use(context, task, workspace, alone=alone)
        if why:
            await _wait(context, workspace, why)
        else:
            context.shared.in_use.pop(workspace.id, None)
        yield not why


async def _in_use(context: Context, task: Task, workspace: Workspace, *, alone: bool) -> str:
    users = [] if alone else ["a `holdfast shell` (or `diff`)"]
    users += await in_thread(context.ports.users.of, workspace.path)
    subtasks = await context.writer.write(lambda tx: tx.keeps.running_subtasks(task.id))
    users += [f"its subtask {subtask}" for subtask in subtasks]
    return ", ".join(users)


async def _wait(context: Context, workspace: Workspace, why: str) -> None:
    """What is done in it meanwhile is saved too, when it goes."""
    looks = context.shared.in_use.get(workspace.id, 0)
    context.shared.in_use[workspace.id] = looks + 1
    now = context.clock()
    retry_at = now.wall + min(LATER, SOON * 1.5**looks)
    await context.writer.write(lambda tx: tx.keeps.postpone(workspace, why, retry_at, now, tell=looks == 0))


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
    strategy = context.ports.strategy_of(task.spec)
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
