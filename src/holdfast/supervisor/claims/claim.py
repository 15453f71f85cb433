"""Taking tasks while there is room: each named worker one, and anonymous agents up to their number.

The claim is one atomic statement; everything after it is the attempt's.
"""

from __future__ import annotations

from holdfast.base import faults
from holdfast.core.model import Task
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.claims.pressure_gate import Gate
from holdfast.supervisor.claims.worker_lanes import Roll
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.probes import claim_next
from holdfast.supervisor.runs.attempts import Attempts


class Claims:
    def __init__(self, context: Context, attempts: Attempts) -> None:
        self._context = context
        self._attempts = attempts
        self._roll = Roll(context, attempts)
        self._gate = Gate(context, self._roll.lanes)
        self.closed = False

    async def tick(self) -> None:
        await self._roll.tick()
        while not self.closed and self._roll.may_have_room:
            if not await self._gate.lets_in():
                return
            with self._context.places.claiming():
                faults.passed("claim.ask")  # who comes to a halt here may be declared lost before it asks
                task = await self._context.writer.write(self._take)
                if task is None:
                    return
                self._attempts.start(task)

    def _take(self, tx: Transaction) -> Task | None:
        """For the first idle lane that finds something."""
        for lane in self._roll.lanes(tx):
            task = claim_next(self._context, tx, lane)
            if task is not None:
                return task
        return None
