"""The clean-up service carries out what settlements decided about workspaces. Every step is repeated until it succeeds.

The expiry service marks preserved workspaces whose time is over. The expiry time is in the store, so it survives any
restart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

from holdfast.core.dispatch.pressure import is_short_of_disk
from holdfast.core.model import Repo, Task, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import log_error
from holdfast.supervisor.service import Service, seconds_until
from holdfast.supervisor.workspaces.remove import carry_out_disposition, record_cleanup_failure

LOOK_AGAIN = 0.25  # seconds of deleting after which we check whether something waits to be renamed

TROUBLE_PAUSE = 1.0  # seconds of pause after a failure that could not even be recorded


class CleanupService(Service):
    """The clean-up service. It renames a workspace first, which is instant, and deletes it afterwards. So the path is
    free as soon as possible."""

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
        """Start a background task if there is something to do, at most one at a time."""
        if not self.busy and await self._waiting() and not self.busy:  # the sweep asks too, while we look
            self._work = asyncio.create_task(self._clean_up(), name="cleanup")

    async def wait_idle(self, timeout: float) -> None:
        if self._work is not None:
            await asyncio.wait([self._work], timeout=timeout)

    def cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def next_wake(self) -> float:
        """Return the seconds until a failed clean-up is tried again."""
        retry_at = await self._context.writer.write(lambda tx: tx.workspaces.next_retry_time(self._context.clock()))
        return seconds_until(retry_at, self._context.clock())

    async def _waiting(self) -> Sequence[Workspace]:
        # A workspace that a guard owns is removed by that guard. The guards are read before the ledger. A guard that
        # was left earlier has done its part, which the ledger shows. A guard that is entered later settles its task
        # after this reading.
        in_hand = frozenset(self._context.shared.in_hand)
        waiting = await self._context.writer.write(lambda tx: tx.workspaces.to_clean(self._context.clock()))
        return [one for one in waiting if one.state is WorkspaceState.TRASHED or one.task_id not in in_hand]

    async def _clean_up(self) -> None:
        try:
            await self._clean_all()
        except Exception as trouble:  # noqa: BLE001 - no failure could be recorded: logged, and tried again
            log_error("clean-up waits: ", trouble)
            await asyncio.sleep(TROUBLE_PAUSE)
        self._context.bell.ring()

    async def _clean_all(self) -> None:
        while waiting := await self._waiting():
            to_rename = [workspace for workspace in waiting if workspace.state is not WorkspaceState.TRASHED]
            trash = [workspace for workspace in waiting if workspace.state is WorkspaceState.TRASHED]
            if trash and self._is_short_of_disk():
                to_rename = []  # deleting makes room for what is saved (R-TREE-14)
            looked = time.monotonic()
            for workspace in to_rename or trash:
                await self._clean_one(workspace)
                if not to_rename and time.monotonic() - looked > LOOK_AGAIN:
                    break

    def _is_short_of_disk(self) -> bool:
        return is_short_of_disk(self._context.settings.pressure, self._context.ports.pressure(), ("disk",))

    async def _clean_one(self, workspace: Workspace) -> None:
        try:
            task, repo = await self._context.writer.write(lambda tx: _owners(tx, workspace))
            if workspace.state is WorkspaceState.TRASHED:
                await self._delete(task, workspace)
            else:
                await carry_out_disposition(self._context, task, repo, workspace)
        except Exception as error:  # noqa: BLE001 - one workspace must never stop the clean-up of all others
            await record_cleanup_failure(self._context, workspace, error)

    async def _delete(self, task: Task, workspace: Workspace) -> None:
        began = time.monotonic()
        await self._context.ports.strategy_of(task.spec).delete_trash(workspace)
        details = {"method": "delete", "duration_ms": round((time.monotonic() - began) * 1000, 1)}
        await self._context.writer.write(
            lambda tx: tx.workspaces.move(workspace, WorkspaceState.GONE, "deleted", self._context.clock(), details)
        )


def _owners(tx: Transaction, workspace: Workspace) -> tuple[Task, Repo]:
    return tx.tasks.get(workspace.task_id), tx.workspaces.repo(workspace.repo_id)


class ExpiryService(Service):
    """The service that decides which preserved workspaces expire. The clean-up service then salvages and removes
    them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._due: float | None = None  # wall time of the next expiry; None: nothing will expire

    async def next_wake(self) -> float:
        return seconds_until(self._due, self._context.clock())

    async def tick(self) -> None:
        """Mark the preserved workspaces whose time is over. A tick costs one index look-up while none is due."""
        context = self._context
        self._due = await context.writer.write(lambda tx: tx.preserved.next_expiry())
        if self._due is None or self._due > context.clock().wall:
            return
        now = context.clock()
        shown = partial(context.services.timekeeper.shown, now=now)
        for workspace in await context.writer.write(lambda tx: tx.preserved.expired(now, shown)):
            await self._expire(workspace)
        self._due = await context.writer.write(lambda tx: tx.preserved.next_expiry())
        if self._due is not None and self._due <= context.clock().wall:
            self._due = None  # This happens only after the clock was set forward: the slow poll is often enough then.

    async def _expire(self, workspace: Workspace) -> None:
        await self._context.writer.write(lambda tx: tx.preserved.expire(workspace, self._context.clock()))
