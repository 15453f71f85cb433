"""Paused tasks and parked accounts whose time has come. The due times are in the store, so any restart finds them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import Conflict
from holdfast.store.port import Transaction
from holdfast.supervisor.context import Context


class Resumes:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def tick(self) -> None:
        for task_id in await self._context.writer.write(self._due):
            await self._resume(task_id)

    def _due(self, tx: Transaction) -> Sequence[str]:
        """Accounts first. A task that waited for one may start as soon as it is open: the claim sees it."""
        now = self._context.clock()
        tx.accounts.open_due(now)
        return tx.tasks.due_to_resume(now, auto=self._context.limits.auto_resume)

    async def _resume(self, task_id: str) -> None:
        try:
            await self._context.writer.write(
                lambda tx: tx.tasks.resume(
                    task_id, "the supervisor, because it was due", self._context.clock(), operator=False
                )
            )
        except Conflict:
            return  # an operator was faster
        self._context.bell.ring()

    async def next_due(self) -> float | None:
        auto = self._context.limits.auto_resume
        return await self._context.writer.write(lambda tx: tx.tasks.next_due(self._context.clock(), auto=auto))
