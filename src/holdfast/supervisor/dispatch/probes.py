"""Probes: the one task that tries first where dispatch is held, and what its ending means for the hold.

Each function is part of a transaction: an ending and its effect on holds are one step. core/dispatch/holds.py decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.base.instant import Instant
from holdfast.core.dispatch import holds as rules_of
from holdfast.core.dispatch.accounts import full_name
from holdfast.core.dispatch.holds import OUTAGE, Hold, Scope
from holdfast.core.dispatch.mass_death import after_fleet
from holdfast.core.model import Task
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision
from holdfast.core.settle import ProviderHold, raises_outage_alert
from holdfast.core.workflows.workflow import stage_of
from holdfast.store.port.dispatch import provider_alert
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context


def take_account(
    context: Context, tx: Transaction, task: Task, account: str | None, *, has_others: bool = False
) -> None:
    """Make the task the probe of `account` if that has a hold without one, and of no other account.

    `has_others`: other agents of the same task run, which may be probes of other accounts.
    """
    now, wanted = context.clock(), None if account is None else full_name(task.spec.agent, account)
    for hold in tx.holds.all():
        if hold.scope is not Scope.ACCOUNT:
            continue
        if hold.name == wanted and hold.lets_one_go(now):
            tx.holds.keep(hold.with_probe(task.id, now), now)
        elif hold.name != wanted and hold.is_probe(task.id) and not has_others:
            tx.holds.keep(replace(hold, probe=None), now)


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldFacts:
    """The holds that one ending concerns."""

    standing: Sequence[Hold] = ()  # accounts and the fleet
    freed: Sequence[Hold] = ()  # holds whose probe was the task, while its members reported for themselves
    provider: str = ""
    provider_hold: ProviderHold | None = None
    ran_no_agent: bool = False


def read_holds(context: Context, tx: Transaction, task: Task, run_id: str | None, verdict: Verdict) -> HoldFacts:
    """Read the holds that a task's ending concerns, and what the ending makes of its provider's."""
    if run_id is None and verdict.outcome is Outcome.COMPLETED:
        return HoldFacts(ran_no_agent=True)
    standing = tx.holds.all()
    if run_id is None and _has_members(task):  # each member reported what it met: only the places of probes are left
        freed = [hold for hold in standing if hold.scope is not Scope.FLEET and hold.is_probe(task.id)]
        return HoldFacts(standing=[hold for hold in standing if hold.scope is Scope.FLEET], freed=freed)
    provider = task.spec.provider
    before = next((hold for hold in standing if hold.full_name == f"{Scope.PROVIDER}:{provider}"), None)
    if not provider or (before is None and verdict.outcome not in OUTAGE):
        return HoldFacts(standing=standing, provider=provider)
    rules, now = context.settings.holds, context.clock()
    after = rules_of.after_provider(before, provider, task.id, verdict, rules, now, context.jitter())
    return HoldFacts(standing=standing, provider=provider, provider_hold=ProviderHold(before=before, after=after))


def record_holds(
    context: Context,
    tx: Transaction,
    task: Task,
    run_id: str | None,
    verdict: Verdict,
    decision: Decision,
    facts: HoldFacts,
) -> None:
    """Record what a task's ending means for holds: they end, last longer, or wait for another probe."""
    now, rules = context.clock(), context.settings.holds
    if facts.ran_no_agent:
        tx.holds.free(task.id)  # what members found out is recorded already: another task may be the probe
        return
    for hold in facts.freed:
        tx.holds.keep(replace(hold, probe=None), now)
    if facts.provider_hold is not None:
        held = facts.provider_hold
        _follow(tx, held.before, held.after, f"it answered task {task.id}", context)
    for hold in facts.standing:
        if hold.scope is Scope.ACCOUNT and _is_under(tx, task, run_id, hold):
            after = rules_of.after_account(hold, task.id, verdict)
            if after is None and decision.parking is not None:
                tx.holds.release(hold.scope, hold.name, "it is shut again", now, tell=False)
            else:
                _follow(tx, hold, after, f"task {task.id} got through", context)
        elif hold.scope is Scope.FLEET:
            after = after_fleet(hold, task.id, verdict, rules, now, context.jitter())
            _follow(tx, hold, after, f"the agent of task {task.id} lived", context)
    if raises_outage_alert(decision, facts.provider_hold):
        alert_outage(tx, facts.provider, verdict.reason, now)


def _has_members(task: Task) -> bool:
    stage = stage_of(task.spec.stages, task.progress)
    return stage is not None and stage.is_parallel


def alert_outage(tx: Transaction, provider: str, reason: str, now: Instant) -> None:
    """One per provider and episode."""
    tx.events.raise_alert(
        provider_alert(provider),
        f"The provider {provider} stayed away for longer than `outage.max`: {reason}. Tasks that waited for it are "
        "paused.",
        f"When it answers again: `holdfast dispatch release provider:{provider}` lets them go on.",
        now,
    )


def _is_under(tx: Transaction, task: Task, run_id: str | None, hold: Hold) -> bool:
    if run_id is not None and _has_members(task):  # others of its task may be under another one
        under = tx.runs.under(run_id)
        return under is not None and hold.name == full_name(*under)
    if hold.is_probe(task.id):
        return True
    account = tx.holds.account_of(task.id)
    return account is not None and hold.name == full_name(task.spec.agent, account)


def _follow(tx: Transaction, before: Hold | None, after: Hold | None, why: str, context: Context) -> None:
    if after is None and before is not None:
        tx.holds.release(before.scope, before.name, why, context.clock())
    elif after is not None and after != before:
        tx.holds.keep(after, context.clock())
