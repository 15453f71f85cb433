"""The service that sends deliveries of alerts: at least once, in order per target, one at a time per target. The
service never delays the daemon's loop.

The outbox is in the store, so it survives any restart. An attempt is counted before it is made. If the supervisor is
killed between sending and recording, the next one sends again. It uses the same key and the same wait, and attempts
stay limited.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from holdfast.alerts.port import AlertTarget, SendResult
from holdfast.base import faults
from holdfast.base.errors import HoldfastError
from holdfast.core.tasks.alerts import (
    Delivery,
    DeliveryPlan,
    DeliveryRules,
    RecentNotices,
    is_out_of_attempts,
    plan_notices,
    seconds_after_attempt,
    seconds_until_due,
)
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import log_line
from holdfast.supervisor.service import Service

PIECE = 1000  # notices and endings planned per look


class DeliveryService(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._sending: dict[str, asyncio.Task[None]] = {}  # by target
        self._next: float | None = None  # on the loop's clock: when another attempt may begin
        self._waits = False
        self.is_last = False  # the supervisor stops: gathered endings are sent at once

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._sending.values())

    @property
    def busy(self) -> bool:
        """True while a delivery is on its way or waits for its next attempt. Each delivery has few attempts, so this
        ends."""
        return self._waits or any(not task.done() for task in self._sending.values())

    async def next_wake(self) -> float:
        """Return the seconds until a delivery's next attempt is due."""
        return math.inf if self._next is None else max(0.01, self._next - asyncio.get_running_loop().time())

    async def tick(self) -> None:
        """Plan the deliveries of new notices and endings, and begin one attempt for every free target with a delivery
        that is due."""
        outlets = self._context.ports.alert_targets
        rules, names = outlets.rules(), outlets.names()
        heads, gathers = await self._context.writer.write(lambda tx: self._look(tx, rules, names))
        now = self._context.clock()
        waits = [] if gathers is None else [gathers]
        for delivery in heads:
            running = self._sending.get(delivery.target)
            if running is not None and not running.done():
                continue
            left = seconds_until_due(delivery, now)
            if left > 0:
                waits.append(left)
                continue
            sending = self._attempt(delivery, outlets.target(delivery.target), rules)
            self._sending[delivery.target] = asyncio.create_task(sending, name=f"notice to {delivery.target}")
        self._waits = bool(heads) or gathers is not None
        self._next = asyncio.get_running_loop().time() + min(waits) if waits else None

    async def finish(self, patience: float) -> None:
        """Wait up to `patience` seconds for deliveries that are on their way. All others stay in the store for the next
        supervisor."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=patience)

    def _look(
        self, tx: Transaction, rules: DeliveryRules, targets: Sequence[str]
    ) -> tuple[Sequence[Delivery], float | None]:
        """Plan the deliveries of new notices and endings. Return the deliveries that come next, and the seconds until
        gathered endings are sent."""
        now, outbox = self._context.clock(), tx.deliveries
        unplanned, endings = outbox.find_unplanned(PIECE), outbox.find_endings(PIECE)
        if not unplanned and not endings:
            return outbox.next_deliveries(), None
        recent = outbox.read_recent(rules.gather, now)
        if self.is_last:
            recent = RecentNotices(alerts=recent.alerts, is_idle=True)
        plan = plan_notices(unplanned, endings, targets, rules, recent, now.wall)
        for notice, where in plan.singles:
            outbox.plan(notice, where)
        if plan.together is not None:
            outbox.put_together(plan.together, now)
            for notice in plan.together.alerts:
                outbox.plan(notice, DeliveryPlan(targets=(), why=f"it is told in {plan.together.key}"))
            self._context.bell.ring()
        if plan.seen is not None:
            outbox.see_endings(plan.seen)
        return outbox.next_deliveries(), plan.wait

    async def _attempt(self, delivery: Delivery, target: AlertTarget | None, rules: DeliveryRules) -> None:
        try:
            if target is None:
                await self._give_up(delivery, "the target is no longer configured")
            elif is_out_of_attempts(delivery, rules):
                why = "the supervisor ended during the last attempt, so it is not known whether it arrived"
                await self._give_up(delivery, why)
            else:
                await self._send(delivery, target, rules)
        except HoldfastError as trouble:  # the store failed, or another supervisor sends: the next look finds out
            log_line(f"holdfast: a delivery could not be handled, and is tried again: {trouble}")
        finally:
            self._context.bell.ring()

    async def _send(self, delivery: Delivery, target: AlertTarget, rules: DeliveryRules) -> None:
        context = self._context
        delay = seconds_after_attempt(delivery.attempts + 1, rules, context.jitter())
        begun = await context.writer.write(lambda tx: tx.deliveries.begin(delivery, delay, context.clock()))
        answer = await self._call_target(target, begun)
        faults.passed("notice.answered")
        if answer.ok:
            await context.writer.write(lambda tx: tx.deliveries.record_sent(begun, answer.told, context.clock()))
        elif is_out_of_attempts(begun, rules):
            await self._give_up(begun, answer.told)
        else:
            wait = seconds_after_attempt(begun.attempts, rules, context.jitter(), answer.retry_after)
            await context.writer.write(lambda tx: tx.deliveries.failed(begun, answer.told, wait, context.clock()))

    async def _call_target(self, target: AlertTarget, delivery: Delivery) -> SendResult:
        try:
            faults.effect("notice.send")
            return await target.send(delivery.notice)
        except Exception as trouble:  # noqa: BLE001 - whatever a target does, it is a failed attempt
            return SendResult(ok=False, told=f"{type(trouble).__name__}: the attempt failed")

    async def _give_up(self, delivery: Delivery, why: str) -> None:
        await self._context.writer.write(lambda tx: tx.deliveries.give_up(delivery, why, self._context.clock()))
