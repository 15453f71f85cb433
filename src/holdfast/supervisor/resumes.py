"""Paused tasks whose time has come. The due time is in the store, so this works after any restart."""

from __future__ import annotations

from holdfast.errors import Conflict
from holdfast.supervisor.context import Context


class Resumes:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def tick(self) -> None:
        for task_id in await self._context.writer.write(lambda tx: tx.tasks.due_to_resume(self._context.clock())):
            await self._resume(task_id)

    async def _resume(self, task_id: str) -> None:
        try:
            await self._context.writer.write(
                lambda tx: tx.tasks.resume(task_id, "the supervisor, because it was due", self._context.clock())
            )
        except Conflict:
            return  # an operator was faster
        self._context.bell.ring()

    async def next_due(self) -> float | None:
        return await self._context.writer.write(lambda tx: tx.tasks.next_due(self._context.clock()))
