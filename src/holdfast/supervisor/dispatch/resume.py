"""Paused tasks and parked accounts whose time has come. The times are in the store, so they survive any restart."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.base.errors import Conflict
from holdfast.base.instant import Instant
from holdfast.core.dispatch.accounts import full_name
from holdfast.core.dispatch.holds import Hold, Scope, new_account_hold
from holdfast.core.model import PauseReason
from holdfast.core.states import TaskState
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.holds import HoldUpkeep
from holdfast.supervisor.service import Service, seconds_until
from holdfast.supervisor.workspaces.checkpoint_restore import can_resume

_OF_AN_ACCOUNT = frozenset({PauseReason.USAGE_LIMIT, PauseReason.RATE_LIMIT})


class Resumes(Service):
    def __init__(self, context: Context, holding: HoldUpkeep) -> None:
        self._context = context
        self._holding = holding
        self._looked: Instant | None = None  # what was due by then has been handled

    async def tick(self) -> None:
        now = self._context.clock()
        due = await self._context.writer.write(self._due)
        self._looked = now
        self._holding.written()
        for task_id in due:
            await self._resume(task_id)

    def _due(self, tx: Transaction) -> Sequence[str]:
        """Return the tasks to resume. Accounts come first. For each account that is due, one task is resumed as its
        probe. The account's other tasks stay paused and spend no resume."""
        now = self._context.clock()
        counted = {hold.name: hold for hold in tx.holds.all() if hold.scope is Scope.ACCOUNT}
        for account in tx.accounts.open_due(now):
            tx.holds.keep(new_account_hold(account, now, counted.get(account)), now)
        self._holding.look(tx)
        due = tx.tasks.tasks_due_to_resume(now, auto=self._context.limits.auto_resume)
        if not due:
            return due
        holds = {hold.name: hold for hold in tx.holds.all() if hold.scope is Scope.ACCOUNT}
        return [task_id for task_id in due if self._may_resume(tx, task_id, holds, now)]

    def _may_resume(self, tx: Transaction, task_id: str, holds: dict[str, Hold], now: Instant) -> bool:
        task = tx.tasks.get(task_id)
        if task.pause_reason not in _OF_AN_ACCOUNT:
            return True
        shut = tx.accounts.account_blocking(task, now)
        if shut is not None and shut.until is not None:
            return False  # another run met a limit of this account that lasts longer
        account = tx.holds.account_of(task_id)
        hold = None if account is None else holds.get(full_name(task.spec.agent, account))
        if hold is None:
            return True
        if not hold.may_resume_probe(now):
            return False
        holds[hold.name] = hold.with_probe(task_id, now, TaskState.QUEUED)
        tx.holds.keep(holds[hold.name], now)
        return True

    async def _resume(self, task_id: str) -> None:
        if not await can_resume(self._context, task_id):
            return
        try:
            await self._context.writer.write(
                lambda tx: tx.tasks.resume(
                    task_id, "the supervisor, because it was due", self._context.clock(), operator=False
                )
            )
        except Conflict:
            return  # an operator was faster
        self._context.bell.ring()

    async def next_wake(self) -> float:
        """Return the seconds until the next task or account is due.

        A task that was already due at the last look does not count, because it waits for a probe.
        """
        return seconds_until(await self._context.writer.write(self._next_due), self._context.clock())

    def _next_due(self, tx: Transaction) -> float | None:
        auto = self._context.limits.auto_resume
        due = tx.tasks.next_due_time(self._looked or self._context.clock(), auto=auto)
        moments = (due, self._holding.next_moment(tx))
        return min((at for at in moments if at is not None), default=None)
