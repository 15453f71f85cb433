"""Operators' durable requests: carried out in order, answered when they are done."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.model import Request, RequestKind, StopWhy
from holdfast.core.states import TaskState
from holdfast.errors import Conflict
from holdfast.supervisor.attempts import Attempts
from holdfast.supervisor.context import Context


class Requests:
    def __init__(self, context: Context, attempts: Attempts) -> None:
        self._context = context
        self._attempts = attempts
        self.down: Request | None = None  # the supervisor's loop looks here
        self.on_sweep: Callable[[Request], None] = lambda _request: None  # who carries a sweep out, and answers it

    async def tick(self) -> None:
        for request in await self._context.writer.write(lambda tx: tx.requests.pending()):
            if request.kind is RequestKind.DOWN:
                self.down = request
            elif request.kind is RequestKind.SWEEP:
                self.on_sweep(request)
            elif request.task_id is not None:
                await self._cancel(request, request.task_id)

    async def _cancel(self, request: Request, task_id: str) -> None:
        task = await self._context.writer.write(lambda tx: tx.tasks.get(task_id))
        if task.state is not TaskState.RUNNING:
            await self._cancel_waiting(request, task_id, task.state)
            return
        attempt = self._attempts.get(task_id)
        if attempt is None:
            return  # being started or finished at this moment: the next look finds it
        if attempt.frozen:
            if request.data.get("assume_dead"):
                if await self._attempts.assume_dead(attempt):
                    await self.answer(request, "cancelled on the operator's word")
                else:
                    await self.answer(request, "refused: a keeper of it still lives; end that first")
            else:
                await self.answer(request, "refused: it is frozen; see `holdfast why`")
            return
        await attempt.stop(StopWhy.CANCEL, fast=True)

    async def _cancel_waiting(self, request: Request, task_id: str, state: TaskState) -> None:
        if state in (TaskState.QUEUED, TaskState.PAUSED):
            try:
                await self._context.writer.write(
                    lambda tx: tx.tasks.cancel_waiting(task_id, request.by, request.why, self._context.clock())
                )
            except Conflict:
                self._context.bell.ring()  # it moved on between the two looks: look again
                return
            state = TaskState.CANCELLED
            self._context.bell.ring()
        await self.answer(request, f"the task is {state}")

    async def answer(self, request: Request, text: str) -> None:
        await self._context.writer.write(lambda tx: tx.requests.answer(request.id, text, self._context.clock()))
