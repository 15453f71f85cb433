"""A request to stop a run, even while its workspace is still being prepared.

The request has a reason and a requester. While there is no process to stop yet, the request cancels the preparation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.core.model import RequestKind, StopWhy, Task, outranks_stop
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.retry_budgets import end_of_pause
from holdfast.supervisor.context import Context

T = TypeVar("T")
_REQUEST_KINDS = {Outcome.CANCELLED: RequestKind.CANCEL, Outcome.PAUSED: RequestKind.PAUSE}
_UNSTARTED = {StopWhy.CANCEL: Outcome.CANCELLED, StopWhy.PAUSE: Outcome.PAUSED}


class StopRequested(Exception):
    """Raised when a stop arrived while there was no process to stop."""

    def __init__(self, why: StopWhy) -> None:
        super().__init__(str(why))
        self.why = why


class StopRequest:
    """The stop request of a task. The request outlives the try during which it arrived."""

    def __init__(self, why: StopWhy | None = None, reason: str = "", *, fast: bool = False) -> None:
        self.why = why
        self.reason = reason
        self.fast = fast
        self._preparing: asyncio.Task[Any] | None = None

    def add(self, why: StopWhy, reason: str, *, fast: bool) -> None:
        """Add a stop. The stronger reason wins, and a running preparation is cancelled at once."""
        if outranks_stop(why, self.why):
            self.why, self.reason = why, reason
        self.fast = self.fast or fast
        if self._preparing is not None:
            self._preparing.cancel()

    def raise_if_stopped(self) -> None:
        """Raise StopRequested if a stop was requested."""
        if self.why is not None:
            raise StopRequested(self.why)

    async def run_cancellable(self, work: Coroutine[object, None, T]) -> T:
        """Await a preparation, which may take minutes (a large checkout). A stop ends the preparation and its helper
        processes at once."""
        preparing: asyncio.Task[T] = asyncio.create_task(work)
        self._preparing = preparing
        try:
            return await preparing
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self.why is None or (current is not None and current.cancelling()):
                raise
            raise StopRequested(self.why) from None
        finally:
            self._preparing = None
            if not preparing.done():
                preparing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await preparing


async def with_requester(context: Context, task: Task, verdict: Verdict) -> Verdict:
    """Return the verdict with the requester, the reason and the end of a cancel or a pause.

    The request is pending until the task is settled. Of two requests, the later one counts.
    """
    if verdict.outcome not in _REQUEST_KINDS:
        return verdict
    kind = _REQUEST_KINDS[verdict.outcome]
    pending = await context.writer.write(lambda tx: tx.requests.pending())
    asked = [request for request in pending if request.kind is kind and request.task_id == task.id]
    if not asked:
        return verdict
    why = f": {asked[-1].why}" if asked[-1].why else ""
    until = end_of_pause(asked[-1], context.clock())
    return replace(verdict, reason=f"{verdict.outcome} by {asked[-1].by}{why}", resets_at=until)


async def verdict_stopped_before(
    context: Context, task: Task, why: StopWhy, what: str = "the agent started"
) -> Verdict:
    """Return the verdict for a run that was stopped before `what` happened."""
    outcome = _UNSTARTED.get(why, Outcome.STOPPED)
    return await with_requester(context, task, Verdict(outcome=outcome, reason=f"stopped ({why}) before {what}"))
