"""The claim: take waiting tasks while there are slots, one for each named worker and `agents` for all others.

The claim is one atomic statement. Everything after it belongs to the attempt (runs/attempt.py).
"""

from __future__ import annotations

from holdfast.base import faults
from holdfast.base.errors import LaunchError
from holdfast.core.dispatch.holds import Scope
from holdfast.core.dispatch.terms import Lane
from holdfast.core.model import Task
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.claims.pressure_gate import PressureGate
from holdfast.supervisor.claims.worker_lanes import WorkerLanes
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.accounts import NoAccountNow, account_for
from holdfast.supervisor.dispatch.probes import make_probe_of_account
from holdfast.supervisor.dispatch.terms import build_claim_terms
from holdfast.supervisor.runs.attempts import Attempts
from holdfast.supervisor.service import Service


class Claims(Service):
    def __init__(self, context: Context, attempts: Attempts) -> None:
        self._context = context
        self._attempts = attempts
        self._roll = WorkerLanes(context, attempts)
        self._gate = PressureGate(context, self._roll.lanes)
        self.closed = False

    async def tick(self) -> None:
        await self._roll.tick()
        while not self.closed and self._roll.may_have_room:
            if not await self._gate.may_claim():
                return
            with self._context.shared.places.block_during_claim():
                faults.passed("claim.ask")  # a supervisor that stops here may be declared lost before it asks
                task = await self._context.writer.write(self._claim_for_idle_lane)
                if task is None:
                    return
                self._attempts.start(task)

    def _claim_for_idle_lane(self, tx: Transaction) -> Task | None:
        """Claim a task for the first idle lane that finds one."""
        for lane in self._roll.lanes(tx):
            task = claim_next(self._context, tx, lane)
            if task is not None:
                return task
        return None


def claim_next(context: Context, tx: Transaction, lane: Lane | None = None) -> Task | None:
    """Claim the next task that may start. If it is the probe of a hold, record that in the same transaction."""
    now = context.clock()
    task = tx.tasks.claim(context.host_id, now, build_claim_terms(context, tx, lane))
    if task is not None:
        free = [hold for hold in tx.holds.all() if hold.may_start_probe(now)]
        for hold in free:
            if hold.scope is Scope.FLEET or (hold.scope is Scope.PROVIDER and hold.name == task.spec.provider):
                tx.holds.keep(hold.with_probe(task.id, now), now)
        if any(hold.scope is Scope.ACCOUNT for hold in free):
            make_probe_of_account(context, tx, task, _find_account(context, tx, task))
    return task


def _find_account(context: Context, tx: Transaction, task: Task) -> str | None:
    try:
        return account_for(context, tx, task).account
    except (NoAccountNow, LaunchError):  # found again, and reported, when the run begins
        return None
