"""Money and tokens in the supervisor: recorded at a run's end, shared budgets begun and ended, what a run may use.

The record, the check and what follows from it for others are one transaction: the one that records the run's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.base.instant import Instant
from holdfast.core.dispatch.spending import Meter, Till, since, used_of
from holdfast.core.dispatch.spending_caps import Allowance, Entry, Used, free_in, in_window, labels_of, sum_of
from holdfast.core.model import Task
from holdfast.core.runs.outcome import RunUsage, Verdict
from holdfast.store.port.dispatch import SpentBudget, purses_of
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.service import Service

WORTH_WRITING = 5.0  # seconds by which the end of an episode has to move


class NothingLeft(Exception):
    """A budget that binds the task is spent before its run begins: by others of its family."""


def record_usage(context: Context, tx: Transaction, task: Task, run_id: str, verdict: Verdict) -> None:
    """In the transaction of the run's end. Which shared budgets it used up is kept with it, for its settlement."""
    if verdict.usage is None:
        return
    now = context.clock()
    if not tx.spending.record(task, run_id, verdict.usage, _summed_session(context, task, verdict.session_id), now):
        return
    mine = [one for one in context.limits.caps.all() if one.concerns(labels_of(task.spec.labels))]
    if not mine:
        return
    spent, lately = {found.key for found in tx.spending.spent()}, tx.spending.lately(now)
    crossed = [one for one in mine if one.key not in spent and _begins(tx, one, lately, now)]
    if crossed:
        tx.spending.crosses(run_id, [one.key for one in crossed])


def spent_of(tx: Transaction, task: Task) -> str:
    """Which budget that binds it is spent, in words; empty: none."""
    return next((purse.spent for purse in purses_of(tx, task) if purse.spent), "")


def refuse_spent(tx: Transaction, task: Task) -> None:
    """In the transaction of the run's intent."""
    if spent_of(tx, task):
        raise NothingLeft


def names_of_caps(context: Context, keys: Sequence[str]) -> list[str]:
    """Return the names of shared caps, for people."""
    names = {one.key: one.name for one in context.limits.caps.all()}
    return [names.get(key, f"the budget '{key}'") for key in keys]


def spent_now(tx: Transaction) -> tuple[bool, frozenset[str]]:
    """For the terms of a claim: whether nothing at all may start, and of which labels nothing may."""
    spent = tx.spending.spent()
    return any(found.label is None for found in spent), frozenset(found.label for found in spent if found.label)


def meter_of(context: Context, tx: Transaction, task: Task) -> Meter | None:
    """What its next run, or the one that runs, may use; None: whatever it wants."""
    purses = purses_of(tx, task)
    if not purses:
        return None
    session = _summed_session(context, task, task.session_id)
    before = RunUsage() if session is None else tx.spending.of_session(task.id, session)
    family = tx.spending.root_of(task) if any(purse.is_shared for purse in purses) else None
    return Meter(purses=purses, before=before, family=family)


def at_work(context: Context, meter: Meter | None, run_id: str) -> Meter | None:
    """While it runs it sees what others of its family use beside it."""
    if meter is None or meter.family is None:
        return meter
    till = context.shared.tills.setdefault(meter.family, Till())
    till.at_work[run_id] = Used()
    return replace(meter, run_id=run_id, till=till, mark=till.ended)


def at_rest(context: Context, meter: Meter | None, told: RunUsage | None = None) -> None:
    """It ended; with `told` what it took is recorded. Others of its family that are at work have so much less."""
    if meter is None or meter.till is None or meter.family is None:
        return
    meter.till.over(meter.run_id, None if told is None else used_of(since(told, meter.before)))
    if not meter.till.at_work and context.shared.tills.get(meter.family) is meter.till:
        del context.shared.tills[meter.family]


def _summed_session(context: Context, task: Task, session_id: str | None) -> str | None:
    """The session whose sum its agent tells; None: it tells what one run took."""
    return session_id if context.ports.agents[task.spec.agent].capabilities.session_usage else None


class Allowances(Service):
    """A service: shared budgets that are spent come back when their window slides on, or when they are raised."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: object = None  # the caps that were looked at: another one may be spent, or not any more

    async def tick(self) -> None:
        caps = self._context.limits.caps
        if self._seen == caps and not await self._context.writer.write(lambda tx: tx.spending.spent()):
            return
        await self._context.writer.write(self._look)
        self._seen = caps

    def _look(self, tx: Transaction) -> None:
        now = self._context.clock()
        caps = {one.key: one for one in self._context.limits.caps.all()}
        spent = {found.key: found for found in tx.spending.spent()}
        lately = tx.spending.lately(now) if caps else ()
        for key in spent.keys() - caps.keys():
            tx.spending.end(key, "there is no such limit any more", now)
        for key, one in caps.items():
            if not _begins(tx, one, lately, now, spent.get(key)) and key in spent:
                tx.spending.end(key, "its window slid on" if one.is_sliding else "it was raised", now)


def _begins(
    tx: Transaction, one: Allowance, lately: Sequence[Entry], now: Instant, before: SpentBudget | None = None
) -> bool:
    """Whether it is spent; then that is recorded (the first time with an event and an alert)."""
    used, until = _used(tx, one, lately, now)
    if not one.cap.is_reached(used):
        return False
    if before is None or abs((before.until or 0.0) - (until or 0.0)) > WORTH_WRITING:
        tx.spending.begin(one, used, until, now)
    return True


def _used(tx: Transaction, one: Allowance, lately: Sequence[Entry], now: Instant) -> tuple[Used, float | None]:
    if not one.is_sliding:
        return tx.spending.total_of(one.label or ""), None
    mine = in_window(lately, now, one.label)
    return sum_of(mine), now.wall + free_in(mine, one.cap, now)
