"""Taking tasks while there is room. The claim is one atomic statement; everything after it is the attempt's."""

from __future__ import annotations

from holdfast.supervisor.attempts import Attempts
from holdfast.supervisor.context import Context
from holdfast.supervisor.gate import Gate
from holdfast.supervisor.terms import terms_now


class Claims:
    def __init__(self, context: Context, attempts: Attempts) -> None:
        self._context = context
        self._attempts = attempts
        self._gate = Gate(context)
        self.closed = False

    async def tick(self) -> None:
        while not self.closed and self._attempts.running < self._context.settings.agents:
            if not await self._gate.lets_in():
                return
            task = await self._context.writer.write(
                lambda tx: tx.tasks.claim(self._context.host_id, self._context.clock(), terms_now(self._context, tx))
            )
            if task is None:
                return
            self._attempts.start(task)
