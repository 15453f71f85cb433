"""Requests of operators: each is carried out in its order, and answered when it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from holdfast.base.errors import Conflict
from holdfast.core.model import Request, RequestKind, StopWhy
from holdfast.core.runs.retry_budgets import end_of_pause
from holdfast.core.states import TaskState
from holdfast.core.tasks.requests import RequestAnswer, RequestResult
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.runs.attempts import Attempts
from holdfast.supervisor.service import Service


class RequestService(Service):
    """Reads the pending requests, carries each out, and records its answer."""

    def __init__(self, context: Context, attempts: Attempts) -> None:
        self._context = context
        self._attempts = attempts
        self.down: Request | None = None  # read by the loop of the supervisor
        self.on_sweep: Callable[[Request], None] = lambda _request: None  # the sweep carries it out and answers it
        self.on_take_over: Callable[[Request], Awaitable[None]]  # the supervisor sets it

    async def tick(self) -> None:
        for request in await self._context.writer.write(lambda tx: tx.requests.pending()):
            if request.kind is RequestKind.DOWN:
                self.down = request
            elif request.kind is RequestKind.SWEEP:
                self.on_sweep(request)
            elif request.kind is RequestKind.TAKE_OVER:
                await self.on_take_over(request)
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
            return  # the attempt starts or ends at this moment: the next tick finds it
        if attempt.frozen:
            if request.data.get("assume_dead"):
                if await self._attempts.assume_dead(attempt):
                    await self._answer(request, RequestResult.ASSUMED_DEAD)
                else:
                    await self._answer(request, RequestResult.KEEPER_LIVES)
            else:
                await self._answer(request, RequestResult.FROZEN)
            return
        await attempt.stop(StopWhy.CANCEL, fast=True)

    async def _cancel_waiting(self, request: Request, task_id: str, state: TaskState) -> None:
        if state in (TaskState.QUEUED, TaskState.PAUSED):
            try:
                await self._context.writer.write(lambda tx: self._cancel_now(tx, request, task_id))
            except Conflict:
                self._context.bell.ring()  # the task changed between the two transactions: try again
                return
            state = TaskState.CANCELLED
            self._context.bell.ring()
        await self.record(request, RequestAnswer.from_state(state))

    def _cancel_now(self, tx: Transaction, request: Request, task_id: str) -> None:
        """Cancel the task and its subtasks. Subtasks continue only if every pending request leaves them out."""
        pending = [one for one in tx.requests.pending() if one.kind is RequestKind.CANCEL and one.task_id == task_id]
        subtasks = any(one.data.get("subtasks", True) for one in (pending or [request]))
        tx.tasks.cancel_waiting(task_id, request.by, request.why, self._context.clock(), subtasks=subtasks)

    async def _pause(self, request: Request, task_id: str) -> None:
        """Stop the running task. The settlement that pauses the task also answers the request
        (store/sqlite/settle.py)."""
        now = self._context.clock()
        until = end_of_pause(request, now)
        attempt = self._attempts.get(task_id)
        is_under_way = attempt is not None and attempt.requested_stop is StopWhy.PAUSE
        if until is not None and until <= now.wall and not is_under_way:
            await self._refuse_expired_pause(request, task_id)
            return
        task = await self._context.writer.write(lambda tx: tx.tasks.get(task_id))
        if task.state is not TaskState.RUNNING:
            await self._pause_waiting(request, task_id, until)
        elif attempt is None:
            return  # the attempt starts or ends at this moment: the next tick finds it
        elif attempt.frozen:
            await self._answer(request, RequestResult.FROZEN)
        else:
            await attempt.stop(StopWhy.PAUSE, fast=bool(request.data.get("force")))

    async def _refuse_expired_pause(self, request: Request, task_id: str) -> None:
        """Refuse a request for a pause whose end has passed, unless a run was stopped for this pause, perhaps by an
        earlier supervisor. In that case the settlement reads the end of the pause from the request."""

        def refuse(tx: Transaction) -> None:
            if not any(run.stop_why is StopWhy.PAUSE for run in tx.runs.open_runs(task_id)):
                tx.requests.answer(request.id, RequestAnswer(RequestResult.PAUSE_IS_OVER), self._context.clock())

        await self._context.writer.write(refuse)

    async def _pause_waiting(self, request: Request, task_id: str, until: float | None) -> None:
        def pause(tx: Transaction) -> bool:
            """Pause the task if it would continue by itself, and answer the request with its state. Return False if the
            task runs again."""
            now, task = self._context.clock(), tx.tasks.get(task_id)
            if task.state is TaskState.RUNNING:
                return False
            with contextlib.suppress(Conflict):
                tx.tasks.pause_waiting(task_id, request.by, request.why, until, now)
            tx.requests.answer(request.id, RequestAnswer.from_state(tx.tasks.get(task_id).state), now)
            return True

        if not await self._context.writer.write(pause):
            self._context.bell.ring()  # the task changed between the two transactions: try again

    async def answer_down(self, request: Request, mode: str | None) -> None:
        """Answer a `down` request. `mode`: the mode in which the supervisor stops."""
        await self.record(request, RequestAnswer(RequestResult.STOPPED, str(mode)))

    async def _answer(self, request: Request, result: RequestResult) -> None:
        await self.record(request, RequestAnswer(result))

    async def record(self, request: Request, answer: RequestAnswer) -> None:
        """Record the answer to a request."""
        await self._context.writer.write(lambda tx: tx.requests.answer(request.id, answer, self._context.clock()))
