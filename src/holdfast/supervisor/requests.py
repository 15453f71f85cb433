"""Operators' durable requests: carried out in order, answered when they are done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from holdfast.core.model import Request, RequestKind, StopWhy
from holdfast.core.resuming import end_of_pause
from holdfast.core.states import TaskState
from holdfast.errors import Conflict
from holdfast.store.port import Transaction
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
            elif request.task_id is not None and request.kind is RequestKind.PAUSE:
                await self._pause(request, request.task_id)
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

    async def _pause(self, request: Request, task_id: str) -> None:
        """Answered by the settle that pauses it (store/sqlite/endings.py), or here."""
        now = self._context.clock()
        until = end_of_pause(request, now)
        if until is not None and until <= now.wall:
            await self.answer(request, "refused: the time for which it was to be paused is over")
            return
        task = await self._context.writer.write(lambda tx: tx.tasks.get(task_id))
        attempt = self._attempts.get(task_id)
        if task.state is not TaskState.RUNNING:
            await self._pause_waiting(request, task_id, until)
        elif attempt is None:
            return  # being started or finished at this moment: the next look finds it
        elif attempt.frozen:
            await self.answer(request, "refused: it is frozen; see `holdfast why`")
        else:
            await attempt.stop(StopWhy.PAUSE, fast=bool(request.data.get("force")))

    async def _pause_waiting(self, request: Request, task_id: str, until: float | None) -> None:
        def pause(tx: Transaction) -> bool:
            """What goes on by itself is paused, everything else told as it is; False: it runs again."""
            now, task = self._context.clock(), tx.tasks.get(task_id)
            if task.state is TaskState.RUNNING:
                return False
            with contextlib.suppress(Conflict):
                tx.tasks.pause_waiting(task_id, request.by, request.why, until, now)
            tx.requests.answer(request.id, f"the task is {tx.tasks.get(task_id).state}", now)
            return True

        if not await self._context.writer.write(pause):
            self._context.bell.ring()  # it moved on between the two looks: look again

    async def answer(self, request: Request, text: str) -> None:
        await self._context.writer.write(lambda tx: tx.requests.answer(request.id, text, self._context.clock()))
