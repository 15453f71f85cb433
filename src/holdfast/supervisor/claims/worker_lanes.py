"""Named workers while the supervisor runs: whose lane is free, who may go on again, whose agent has to end."""

from __future__ import annotations

from holdfast.core.dispatch.terms import Lane
from holdfast.core.dispatch.workers import WorkerState, bench_is_over
from holdfast.core.model import StopWhy
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.accounts import closed_accounts
from holdfast.supervisor.log import say
from holdfast.supervisor.runs.attempts import Attempts


class Roll:
    """The workers of the settings against those of the store, at every look."""

    def __init__(self, context: Context, attempts: Attempts) -> None:
        self._context = context
        self._attempts = attempts
        self._known: tuple[str, ...] | None = None  # the names that the store was told of

    async def tick(self) -> None:
        names = tuple(worker.name for worker in self._context.settings.staff.workers)
        if names != self._known:
            await self._context.writer.write(lambda tx: tx.workers.enrol(names, self._context.clock()))
            if self._known is None and names:
                await self._introduce()
            self._known = names
        if names:
            await self._let_go_on()
        await self._end_at_once()

    def lanes(self, tx: Transaction) -> list[Lane | None]:
        """Who may take a task now, named workers first: what is made for one should not go to just anybody."""
        found: list[Lane | None] = []
        busy, shut = self._attempts.workers, None
        for worker in self._context.settings.staff.workers:
            record = None if worker.name in busy else tx.workers.get(worker.name)
            if record is None or record.state is not WorkerState.READY:
                continue
            if worker.lane.account is not None:
                if shut is None:
                    shut = {account.full_name for account in closed_accounts(self._context, tx)}
                if f"{worker.lane.agent}/{worker.lane.account}" in shut:
                    continue  # it would give its tasks an account that nobody may have
            found.append(worker.lane)
        if self._has_place():
            found.append(None)
        return found

    @property
    def may_have_room(self) -> bool:
        """Without a look into the store: whether anybody is idle."""
        busy = self._attempts.workers
        idle = any(worker.name not in busy for worker in self._context.settings.staff.workers)
        return idle or self._has_place()

    def _has_place(self) -> bool:
        """For one more that no named worker has, beside those of parallel stages."""
        return self._attempts.anonymous + self._context.shared.places.for_groups < self._context.settings.agents

    async def _introduce(self) -> None:
        records = await self._context.writer.write(lambda tx: tx.workers.all())
        words = [
            record.name + ("" if record.state is WorkerState.READY else f" ({record.state}: {record.reason})")
            for record in records
            if record.state is not WorkerState.RETIRED
        ]
        say(f"holdfast: {len(words)} named worker(s): {', '.join(words)}")

    async def _let_go_on(self) -> None:
        """Benched workers that were quiet for a whole window (R-CRASH-04)."""
        context = self._context

        def look(tx: Transaction) -> None:
            for record in tx.workers.all():
                if record.state is not WorkerState.BENCHED:
                    continue
                if bench_is_over(tx.workers.crashes(record.name), context.limits.crash_window, context.clock()):
                    tx.workers.quiet(record, context.clock())

        await context.writer.write(look)

    async def _end_at_once(self) -> None:
        """`worker stop --now`: the agent at work gets its grace, and its task stays queued to continue."""
        at_work = {attempt.task.worker: attempt for attempt in self._attempts.living if attempt.task.worker}
        if not at_work:
            return
        for record in await self._context.writer.write(lambda tx: tx.workers.all()):
            attempt = at_work.get(record.name)
            if record.at_once and attempt is not None and attempt.stop_wanted is None:
                await attempt.stop(StopWhy.WORKER, fast=False, reason=f"worker {record.name} was {record.reason}")
