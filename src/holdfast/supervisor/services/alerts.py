"""Sends what alerts have to say: at least once, in order per target, one at a time each, never in the loop's way.

The outbox is in the store, so any restart goes on with it. An attempt is counted before it is made: killed between
sending and recording, the next supervisor sends again, with the same key, after the same wait, and not for ever.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from holdfast.alerts.port import Answer, Target
from holdfast.base import faults
from holdfast.base.errors import HoldfastError
from holdfast.core.tasks.alerts import Delivery, NoticeRules, due_in, is_spent, plan, wait_after
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import say
from holdfast.supervisor.service import Service

PIECE = 100  # notices planned per look


class Notifying(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._sending: dict[str, asyncio.Task[None]] = {}  # by target
        self._next: float | None = None  # on the loop's clock: when another attempt may begin
        self._waits = False

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._sending.values())

    @property
    def busy(self) -> bool:
        """Whether something is on its way, or waits for its next attempt. Each has few, so this ends."""
        return self._waits or any(not task.done() for task in self._sending.values())

    async def next_wake(self) -> float:
        """Return the seconds until the next attempt of a delivery."""
        return math.inf if self._next is None else max(0.01, self._next - asyncio.get_running_loop().time())

    async def tick(self) -> None:
        """Plan what is new, and begin one attempt for every target that is free and has one due."""
        outlets = self._context.ports.outlets
        rules, names = outlets.rules(), outlets.names()
        heads = await self._context.writer.write(lambda tx: self._look(tx, rules, names))
        now = self._context.clock()
        waits = []
        for delivery in heads:
            running = self._sending.get(delivery.target)
            if running is not None and not running.done():
                continue
            left = due_in(delivery, now)
            if left > 0:
                waits.append(left)
                continue
            sending = self._attempt(delivery, outlets.target(delivery.target), rules)
            self._sending[delivery.target] = asyncio.create_task(sending, name=f"notice to {delivery.target}")
        self._waits = bool(heads)
        self._next = asyncio.get_running_loop().time() + min(waits) if waits else None

    async def finish(self, patience: float) -> None:
        """What is on its way may arrive; the rest waits in the store for the next supervisor."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=patience)

    def _look(self, tx: Transaction, rules: NoticeRules, targets: Sequence[str]) -> Sequence[Delivery]:
        for notice in tx.notices.unplanned(PIECE):
            tx.notices.plan(notice, plan(notice, targets, rules))
        return tx.notices.heads()

    async def _attempt(self, delivery: Delivery, target: Target | None, rules: NoticeRules) -> None:
        try:
            if target is None:
                await self._give_up(delivery, "the target is no longer configured")
            elif is_spent(delivery, rules):
                why = "the supervisor ended in the last attempt; whether it arrived is not known"
                await self._give_up(delivery, why)
            else:
                await self._send(delivery, target, rules)
        except HoldfastError as trouble:  # the store, or somebody else sends: the next look sees
            say(f"holdfast: a notice could not be dealt with: {trouble}")
        finally:
            self._context.bell.ring()

    async def _send(self, delivery: Delivery, target: Target, rules: NoticeRules) -> None:
        context = self._context
        delay = wait_after(delivery.attempts + 1, rules, context.jitter())
        begun = await context.writer.write(lambda tx: tx.notices.begin(delivery, delay, context.clock()))
        answer = await self._ask(target, begun)
        faults.passed("notice.answered")
        if answer.ok:
            await context.writer.write(lambda tx: tx.notices.sent(begun, answer.told, context.clock()))
        elif is_spent(begun, rules):
            await self._give_up(begun, answer.told)
        else:
            wait = wait_after(begun.attempts, rules, context.jitter(), answer.retry_after)
            await context.writer.write(lambda tx: tx.notices.failed(begun, answer.told, wait, context.clock()))

    async def _ask(self, target: Target, delivery: Delivery) -> Answer:
        try:
            faults.effect("notice.send")
            return await target.send(delivery.notice)
        except Exception as trouble:  # noqa: BLE001 - whatever a target does, it is an attempt that failed
            return Answer(ok=False, told=f"{type(trouble).__name__}: the attempt went wrong")

    async def _give_up(self, delivery: Delivery, why: str) -> None:
        await self._context.writer.write(lambda tx: tx.notices.give_up(delivery, why, self._context.clock()))
