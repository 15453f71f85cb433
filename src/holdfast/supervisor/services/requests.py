"""The service that carries out operators' durable requests in order, and answers each one when it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from holdfast.base.errors import Conflict
from holdfast.core.model import Request, RequestKind, StopWhy
from holdfast.core.runs.resume import end_of_pause
from holdfast.core.states import TaskState
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.runs.attempts import Attempts
from holdfast.supervisor.service import Service


class Requests(Service):
    def __init__(self, context: Context, attempts: Attempts) -> None:
        self._context = context
        self._attempts = attempts
        self.down: Request | None = None  # read by the supervisor's loop
        self.on_sweep: Callable[[Request], None] = lambda _request: None  # carries out a sweep and answers the request

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
                    await self.answer(request, "cancelled: an operator vouched that it is dead")
                else:
                    await self.answer(request, "refused: a keeper of it still lives; end that first")
            else:
                await self.answer(request, "refused: it is frozen; see `holdfast why`")
            return
        await attempt.stop(StopWhy.CANCEL, fast=True)

    async def _cancel_waiting(self, request: Request, task_id: str, state: TaskState) -> None:
        if state in (TaskState.QUEUED, TaskState.PAUSED):
            try:
                await self._context.writer.write(lambda tx: self._cancel_now(tx, request, task_id))
            except Conflict:
                self._context.bell.ring()  # the task changed state between the two looks: look again
                return
            state = TaskState.CANCELLED
            self._context.bell.ring()
        await self.answer(request, f"the task is {state}")

    def _cancel_now(self, tx: Transaction, request: Request, task_id: str) -> None:
        """Cancel a task that does not run. Its subtasks are cancelled too, unless all requests ask to keep them (as in
        store/sqlite/tasks.py)."""
        asked = [one for one in tx.requests.pending() if one.kind is RequestKind.CANCEL and one.task_id == task_id]
        subtasks = any(one.data.get("subtasks", True) for one in (asked or [request]))
        tx.tasks.cancel_waiting(task_id, request.by, request.why, self._context.clock(), subtasks=subtasks)

    async def _pause(self, request: Request, task_id: str) -> None:
        """Pause a task.

        The request is answered by the settle that pauses the task (store/sqlite/settle.py), or here.
        """
        now = self._context.clock()
        until = end_of_pause(request, now)
        attempt = self._attempts.get(task_id)
        is_under_way = attempt is not None and attempt.stop_wanted is StopWhy.PAUSE
        if until is not None and until <= now.wall and not is_under_way:
            await self._refuse_late(request, task_id)
            return
        task = await self._context.writer.write(lambda tx: tx.tasks.get(task_id))
        if task.state is not TaskState.RUNNING:
            await self._pause_waiting(request, task_id, until)
        elif attempt is None:
            return  # being started or finished at this moment: the next look finds it
        elif attempt.frozen:
            await self.answer(request, "refused: it is frozen; see `holdfast why`")
        else:
            await attempt.stop(StopWhy.PAUSE, fast=bool(request.data.get("force")))

    async def _refuse_late(self, request: Request, task_id: str) -> None:
        """Refuse a pause whose end has passed, unless the agent was already asked to end for it, perhaps by an earlier
        supervisor.

        In that case the settle that follows needs the request. Without it, the settle would not know that the pause has
        an end.
        """

        def refuse(tx: Transaction) -> None:
            if not any(run.stop_why is StopWhy.PAUSE for run in tx.runs.open_runs(task_id)):
                over = "refused: the time for which it was to be paused is over"
                tx.requests.answer(request.id, over, self._context.clock())

        await self._context.writer.write(refuse)

    async def _pause_waiting(self, request: Request, task_id: str, until: float | None) -> None:
        def pause(tx: Transaction) -> bool:
            """Pause a task that would go on by itself, and answer with the task's state. Return False if the task runs
            again."""
            now, task = self._context.clock(), tx.tasks.get(task_id)
            if task.state is TaskState.RUNNING:
                return False
            with contextlib.suppress(Conflict):
                tx.tasks.pause_waiting(task_id, request.by, request.why, until, now)
            tx.requests.answer(request.id, f"the task is {tx.tasks.get(task_id).state}", now)
            return True

        if not await self._context.writer.write(pause):
            self._context.bell.ring()  # the task changed state between the two looks: look again

    async def answer(self, request: Request, text: str) -> None:
        await self._context.writer.write(lambda tx: tx.requests.answer(request.id, text, self._context.clock()))
