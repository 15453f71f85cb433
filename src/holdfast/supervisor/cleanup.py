"""The clean-up service: carries out what endings decided. Every step is repeated until it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.core.model import Repo, Strategy, Task, Workspace
from holdfast.core.policy import backoff
from holdfast.core.preserve import Disposition, decided
from holdfast.core.states import WorkspaceState
from holdfast.errors import HoldfastError
from holdfast.store.port import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.saving import save_work

RETRY_CAP = 3600.0
GIVE_UP_AFTER = 5


class Cleanup:
    """Renames first (instant), deletes afterwards, so that a path is free as soon as possible."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._work: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._work is not None and not self._work.done()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [] if self._work is None else [self._work]

    async def tick(self) -> None:
        """Start a background worker if there is something to do; at most one at a time."""
        if not self.busy and await self._waiting():
            self._work = asyncio.create_task(self._until_nothing_is_left(), name="cleanup")

    async def wait_idle(self, timeout: float) -> None:
        if self._work is not None:
            await asyncio.wait([self._work], timeout=timeout)

    def cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def next_retry(self) -> float | None:
        return await self._context.writer.write(lambda tx: tx.workspaces.next_retry(self._context.clock()))

    async def _waiting(self) -> Sequence[Workspace]:
        return await self._context.writer.write(lambda tx: tx.workspaces.to_clean(self._context.clock()))

    async def _until_nothing_is_left(self) -> None:
        while waiting := await self._waiting():
            to_rename = [workspace for workspace in waiting if workspace.state is not WorkspaceState.TRASHED]
            for workspace in to_rename or waiting[:1]:
                await self._one(workspace)
        self._context.bell.ring()

    async def _one(self, workspace: Workspace) -> None:
        try:
            if workspace.state is WorkspaceState.TRASHED:
                await self._delete(workspace)
            else:
                await self._put_away(workspace)
        except Exception as error:  # noqa: BLE001 - one workspace must never stop the clean-up of all others
            await self._failed(workspace, _words(error))

    async def _put_away(self, workspace: Workspace) -> None:
        task, repo = await self._context.writer.write(lambda tx: _owners(tx, workspace))
        preserve = workspace.disposition == "preserve"
        how = decided(task.spec, task.state, workspace.reason, preserve=preserve)
        if workspace.disposition == "salvage":
            problem = await save_work(self._context, task.spec, repo, workspace, f"task {task.state}")
            if problem is not None:
                await self._preserve(task, workspace, Disposition(preserve=True, tier="safety", reason=problem))
                return
        # `none` is the user's own checkout: there is nothing to keep, as there is nothing to clean (R-CLEAN-05).
        if preserve and workspace.state is not WorkspaceState.INTENDED and workspace.strategy is not Strategy.NONE:
            await self._preserve(task, workspace, how)
            return
        strategy = self._context.strategy_of(task.spec)
        there = await strategy.put_away(repo, workspace)
        branch_is_gone = await strategy.drop_empty_branch(repo, workspace)
        # Cleanup that found nothing to rename (`none`, or it vanished) is done; otherwise the trash has to go.
        state = WorkspaceState.TRASHED if there else WorkspaceState.GONE
        if not there:
            await strategy.delete_trash(workspace)

        def record(tx: Transaction) -> None:
            if branch_is_gone:
                tx.tasks.forget_branch(workspace.task_id, self._context.clock())
            tx.workspaces.move(workspace, state, f"cleaned: {how}", self._context.clock())

        await self._context.writer.write(record)

    async def _delete(self, workspace: Workspace) -> None:
        task, _repo = await self._context.writer.write(lambda tx: _owners(tx, workspace))
        await self._context.strategy_of(task.spec).delete_trash(workspace)
        await self._move(workspace, WorkspaceState.GONE, "deleted")

    async def _preserve(self, task: Task, workspace: Workspace, how: Disposition) -> None:
        if workspace.state is not WorkspaceState.PRESERVED:
            ttl = task.spec.workspace.preserve_ttl
            await self._context.writer.write(
                lambda tx: tx.keeps.preserve(workspace, how, task.state, ttl, self._context.clock())
            )
            return

        def refuse(tx: Transaction) -> None:
            """Somebody asked to drop it, or it expired, but its work cannot be saved: it stays, and says why."""
            now = self._context.clock()
            tx.keeps.stays(workspace, how.reason, now)
            tx.events.raise_alert(
                f"unsaved:{workspace.id}",
                f"The workspace {workspace.path} stays, because {how.reason}.",
                f"Take what you need, empty it by hand, then `holdfast workspaces clean {workspace.task_id}` again.",
                now,
                task_id=workspace.task_id,
            )

        await self._context.writer.write(refuse)

    async def _move(self, workspace: Workspace, state: WorkspaceState, reason: str) -> None:
        await self._context.writer.write(lambda tx: tx.workspaces.move(workspace, state, reason, self._context.clock()))

    async def _failed(self, workspace: Workspace, why: str) -> None:
        """R-CLEAN-06: a warning on the task, never a changed outcome; it stays in the ledger and is tried again."""
        now = self._context.clock()
        delay = backoff(3 + workspace.failures, RETRY_CAP, self._context.jitter())
        await self._context.writer.write(lambda tx: tx.workspaces.cleanup_failed(workspace, why, now.wall + delay, now))


def _words(error: Exception) -> str:
    """What a person can use; the kind of error only where its words need it. Empty: nobody knows."""
    if isinstance(error, HoldfastError | OSError) or not str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _owners(tx: Transaction, workspace: Workspace) -> tuple[Task, Repo]:
    return tx.tasks.get(workspace.task_id), tx.workspaces.repo(workspace.repo_id)
