"""Money and tokens in the supervisor: recorded at a run's end, shared budgets begun and ended, what a run may use.

The record, the check and what follows from it for others are one transaction: the one that records the run's end.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.allowances import Meter, held_to
from holdfast.core.caps import Allowance, Cap, Entry, Used, free_in, in_window, labels_of, sum_of
from holdfast.core.model import Instant, Task
from holdfast.core.outcome import RunUsage, Verdict
from holdfast.core.policy import Decision
from holdfast.store.budgeting import SpentBudget
from holdfast.store.port import Transaction
from holdfast.supervisor.context import Context

WORTH_WRITING = 5.0  # seconds by which the end of an episode has to move


def cap_of(task: Task) -> Cap:
    return Cap(usd=task.spec.budget.usd, tokens=task.spec.budget.tokens)


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


def held_to_budgets(context: Context, decision: Decision, task: Task, used: Used, crossed: Sequence[str]) -> Decision:
    """What the policy decided, within what the task may use and what it shares."""
    names = {one.key: one.name for one in context.limits.caps.all()}
    return held_to(decision, cap_of(task).against(used), [names.get(key, f"the budget '{key}'") for key in crossed])


def spent_now(tx: Transaction) -> tuple[bool, frozenset[str]]:
    """For the terms of a claim: whether nothing at all may start, and of which labels nothing may."""
    spent = tx.spending.spent()
    return any(found.label is None for found in spent), frozenset(found.label for found in spent if found.label)


def meter_of(context: Context, tx: Transaction, task: Task) -> Meter | None:
    """What its next run, or the one that runs, may use; None: whatever it wants."""
    cap = cap_of(task)
    if not cap:
        return None
    session = _summed_session(context, task, task.session_id)
    before = RunUsage() if session is None else tx.spending.of_session(task.id, session)
    return Meter(cap=cap, left=cap.left(tx.spending.of_task(task)), before=before)


def _summed_session(context: Context, task: Task, session_id: str | None) -> str | None:
    """The session whose sum its agent tells; None: it tells what one run took."""
    return session_id if context.agents[task.spec.agent].capabilities.session_usage else None


class Allowances:
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
