"""The lanes of named workers while the supervisor runs: which lanes are free, which workers may continue, which agents
have to end."""

from __future__ import annotations

from holdfast.core.dispatch.terms import Lane
from holdfast.core.dispatch.workers import WorkerState, is_bench_over
from holdfast.core.model import StopWhy
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.accounts import unavailable_accounts
from holdfast.supervisor.log import log_line
from holdfast.supervisor.runs.attempts import Attempts


class WorkerLanes:
    """The lanes of the settings' named workers. At every tick, new names are recorded in the store."""

    def __init__(self, context: Context, attempts: Attempts) -> None:
        self._context = context
        self._attempts = attempts
        self._known: tuple[str, ...] | None = None  # the names that were recorded in the store

    async def tick(self) -> None:
        names = tuple(worker.name for worker in self._context.settings.staff.workers)
        if names != self._known:
            await self._context.writer.write(lambda tx: tx.workers.enrol(names, self._context.clock()))
            if self._known is None and names:
                await self._log_workers()
            self._known = names
        if names:
            await self._release_benched()
        await self._stop_workers_at_once()

    def lanes(self, tx: Transaction) -> list[Lane | None]:
        """Return the lanes that may take a task now. Named workers come first: a task that a named worker takes should
        not go to an anonymous slot."""
        found: list[Lane | None] = []
        busy, shut = self._attempts.workers, None
        for worker in self._context.settings.staff.workers:
            record = None if worker.name in busy else tx.workers.get(worker.name)
            if record is None or record.state is not WorkerState.READY:
                continue
            if worker.lane.account is not None:
                if shut is None:
                    shut = {account.full_name for account in unavailable_accounts(self._context, tx)}
                if f"{worker.lane.agent}/{worker.lane.account}" in shut:
                    continue  # its tasks would get an account that is parked or stopped
            found.append(worker.lane)
        if self._has_free_slot():
            found.append(None)
        return found

    @property
    def may_have_room(self) -> bool:
        """True if some lane is idle. Does not read the store."""
        busy = self._attempts.workers
        idle = any(worker.name not in busy for worker in self._context.settings.staff.workers)
        return idle or self._has_free_slot()

    def _has_free_slot(self) -> bool:
        """True if there is a slot for one more task without a named worker. Slots that members of parallel stages use
        are not free."""
        return (
            self._attempts.count_without_worker + self._context.shared.places.reserved_for_members
            < self._context.settings.agents
        )

    async def _log_workers(self) -> None:
        records = await self._context.writer.write(lambda tx: tx.workers.all())
        words = [
            record.name + ("" if record.state is WorkerState.READY else f" ({record.state}: {record.reason})")
            for record in records
            if record.state is not WorkerState.RETIRED
        ]
        log_line(f"holdfast: {len(words)} named worker(s): {', '.join(words)}")

    async def _release_benched(self) -> None:
        """End the bench of each worker that was quiet for a whole window (R-CRASH-04)."""
        context = self._context

        def look(tx: Transaction) -> None:
            for record in tx.workers.all():
                if record.state is not WorkerState.BENCHED:
                    continue
                if is_bench_over(tx.workers.crashes(record.name), context.limits.crash_window, context.clock()):
                    tx.workers.unbench(record, context.clock())

        await context.writer.write(look)

    async def _stop_workers_at_once(self) -> None:
        """Stop the agents of workers with `worker stop --now`. Each agent gets its grace period. Its task stays queued
        and continues later."""
        at_work = {attempt.task.worker: attempt for attempt in self._attempts.unfrozen if attempt.task.worker}
        if not at_work:
            return
        for record in await self._context.writer.write(lambda tx: tx.workers.all()):
            attempt = at_work.get(record.name)
            if record.at_once and attempt is not None and attempt.requested_stop is None:
                await attempt.stop(StopWhy.WORKER, fast=False, reason=f"worker {record.name} was {record.reason}")
