"""Preserved workspaces whose time is over. The moment stands in the store, so this works after any restart."""

from __future__ import annotations

from functools import partial

from holdfast.core.model import Workspace
from holdfast.supervisor.context import Context


class Expiry:
    """Decides only; the clean-up service then salvages and removes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.due: float | None = None  # wall time of the next one; None: nothing will expire

    async def tick(self) -> None:
        """One look into an index; more only when something is due."""
        context = self._context
        self.due = await context.writer.write(lambda tx: tx.keeps.next_expiry())
        if self.due is None or self.due > context.clock().wall:
            return
        now = context.clock()
        shown = partial(context.timekeeper.shown, now=now)
        for workspace in await context.writer.write(lambda tx: tx.keeps.expired(now, shown)):
            await self._expire(workspace)
        self.due = await context.writer.write(lambda tx: tx.keeps.next_expiry())
        if self.due is not None and self.due <= context.clock().wall:
            self.due = None  # only because the clock was set forward: the slow poll is often enough for it

    async def _expire(self, workspace: Workspace) -> None:
        await self._context.writer.write(lambda tx: tx.keeps.expire(workspace, self._context.clock()))
