"""Money and tokens in the supervisor: usage recorded at a run's end, shared spending caps begun and ended, and the
amount that a run may use.

The usage, the check of the caps and the effects on other tasks are recorded in one transaction, which also records the
run's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.base.instant import Instant
from holdfast.core.dispatch.spending import FamilyUsage, SpendingMeter, usage_since, usage_to_used
from holdfast.core.dispatch.spending_caps import (
    SharedCap,
    UsageEntry,
    UsedSpending,
    entries_in_window,
    format_labels,
    seconds_until_free,
    sum_entries,
)
from holdfast.core.model import Task
from holdfast.core.runs.outcome import RunUsage, Verdict
from holdfast.store.port.dispatch import SpentBudget, allowance_of_stage, allowances_of
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.service import Service

WORTH_WRITING = 5.0  # seconds by which the end of an episode has to move to be recorded


class SpendingCapReached(Exception):
    """Raised before a run begins if other tasks of its family have used up a spending cap of its task."""


def record_usage(context: Context, tx: Transaction, task: Task, run_id: str, verdict: Verdict) -> None:
    """Record the usage of a run, in the transaction of its end. The shared caps that the run used up are stored with
    the run, for its settlement."""
    if verdict.usage is None:
        return
    now = context.clock()
    if not tx.spending.record(
        task, run_id, verdict.usage, _session_with_totals(context, task, verdict.session_id), now
    ):
        return
    mine = [one for one in context.limits.caps.all() if one.applies_to(format_labels(task.spec.labels))]
    if not mine:
        return
    spent, lately = {found.key for found in tx.spending.spent()}, tx.spending.last_day(now)
    crossed = [one for one in mine if one.key not in spent and _record_if_spent(tx, one, lately, now)]
    if crossed:
        tx.spending.record_crossed_caps(run_id, [one.key for one in crossed])


def describe_spent_cap(tx: Transaction, task: Task) -> str:
    """Describe, for people, the used-up spending cap of the task. Empty: none is used up."""
    return next((allowance.spent for allowance in allowances_of(tx, task) if allowance.spent), "")


def describe_spent_stage(tx: Transaction, task: Task) -> str:
    """Describe, for people, the used-up spending cap of the task's stage. Empty: none is used up."""
    stage = allowance_of_stage(tx, task)
    return "" if stage is None else stage.spent


def raise_if_cap_spent(tx: Transaction, task: Task) -> None:
    """Raise SpendingCapReached if a spending cap of the task is used up. Called when the run's intent is recorded."""
    if describe_spent_cap(tx, task):
        raise SpendingCapReached


def cap_names(context: Context, keys: Sequence[str]) -> list[str]:
    """Return the names of shared caps, for people."""
    names = {one.key: one.name for one in context.limits.caps.all()}
    return [names.get(key, f"the budget '{key}'") for key in keys]


def spent_caps_for_claim(tx: Transaction) -> tuple[bool, frozenset[str]]:
    """Return two parts of a claim's terms: whether no task at all may start, and the labels whose tasks cannot
    start."""
    spent = tx.spending.spent()
    return any(found.label is None for found in spent), frozenset(found.label for found in spent if found.label)


def make_meter(context: Context, tx: Transaction, task: Task) -> SpendingMeter | None:
    """Return the meter with the amount that the current or next run of the task may use. None: there is no limit."""
    allowances, stage = allowances_of(tx, task), allowance_of_stage(tx, task)
    allowances += [] if stage is None else [stage]
    if not allowances:
        return None
    session = _session_with_totals(context, task, task.session_id)
    before = RunUsage() if session is None else tx.spending.of_session(task.id, session)
    family = tx.spending.root_of(task) if any(allowance.is_shared for allowance in allowances) else None
    return SpendingMeter(caps=allowances, before=before, family=family)


def start_metering(context: Context, meter: SpendingMeter | None, run_id: str) -> SpendingMeter | None:
    """Start metering a run. While it runs, its meter includes what other runs of its family use."""
    if meter is None or meter.family is None:
        return meter
    till = context.shared.family_usage.setdefault(meter.family, FamilyUsage())
    till.at_work[run_id] = UsedSpending()
    return replace(meter, run_id=run_id, family_usage=till, mark=till.ended)


def stop_metering(context: Context, meter: SpendingMeter | None, told: RunUsage | None = None) -> None:
    """Stop metering a run that ended. `told`: the final usage of the run. It is added to the total of the family, so
    other runs of the family may spend less."""
    if meter is None or meter.family_usage is None or meter.family is None:
        return
    meter.family_usage.over(meter.run_id, None if told is None else usage_to_used(usage_since(told, meter.before)))
    if not meter.family_usage.at_work and context.shared.family_usage.get(meter.family) is meter.family_usage:
        del context.shared.family_usage[meter.family]


def _session_with_totals(context: Context, task: Task, session_id: str | None) -> str | None:
    """Return the session whose total the agent reports. None: the agent reports the usage of one run."""
    return session_id if context.ports.agents[task.spec.agent].capabilities.session_usage else None


class SpendingCapService(Service):
    """The service that reopens shared spending caps when their window moves on, or when they are raised."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: object = None  # the caps at the last look: after a change, others may be used up

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
        lately = tx.spending.last_day(now) if caps else ()
        for key in spent.keys() - caps.keys():
            tx.spending.end(key, "this cap is no longer set", now)
        for key, one in caps.items():
            if not _record_if_spent(tx, one, lately, now, spent.get(key)) and key in spent:
                tx.spending.end(key, "its window moved on" if one.is_sliding else "it was raised", now)


def _record_if_spent(
    tx: Transaction, one: SharedCap, lately: Sequence[UsageEntry], now: Instant, before: SpentBudget | None = None
) -> bool:
    """Return whether the cap is used up. A used-up cap is recorded, the first time with an event and an alert."""
    used, until = _usage_of_cap(tx, one, lately, now)
    if not one.cap.is_reached(used):
        return False
    if before is None or abs((before.until or 0.0) - (until or 0.0)) > WORTH_WRITING:
        tx.spending.begin(one, used, until, now)
    return True


def _usage_of_cap(
    tx: Transaction, one: SharedCap, lately: Sequence[UsageEntry], now: Instant
) -> tuple[UsedSpending, float | None]:
    if not one.is_sliding:
        return tx.spending.total_of(one.label or ""), None
    mine = entries_in_window(lately, now, one.label)
    return sum_entries(mine), now.wall + seconds_until_free(mine, one.cap, now)
