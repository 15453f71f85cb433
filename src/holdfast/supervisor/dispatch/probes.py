"""Probes: the one task that starts first under a hold, and what its end means for the hold.

Each function is part of a transaction: an end and its effect on holds are one step. core/dispatch/holds.py decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.dispatch import holds as rules_of
from holdfast.core.dispatch.accounts import full_name
from holdfast.core.dispatch.holds import OUTAGE, Hold, Scope
from holdfast.core.dispatch.mass_death import update_fleet_hold
from holdfast.core.model import Task
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision
from holdfast.core.settle import ProviderHold, raises_outage_alert
from holdfast.core.workflows.workflow import stage_of
from holdfast.store.port.dispatch import provider_alert
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context


def make_probe_of_account(
    context: Context, tx: Transaction, task: Task, account: str | None, *, has_others: bool = False
) -> None:
    """Make the task the probe of `account`, and of no other account, if `account` has a hold without a probe.

    `has_others`: other agents of the same task run, and those agents may be probes of other accounts.
    """
    now, wanted = context.clock(), None if account is None else full_name(task.spec.agent, account)
    for hold in tx.holds.all():
        if hold.scope is not Scope.ACCOUNT:
            continue
        if hold.name == wanted and hold.may_start_probe(now):
            tx.holds.keep(hold.with_probe(task.id, now), now)
        elif hold.name != wanted and hold.is_probe(task.id) and not has_others:
            tx.holds.keep(replace(hold, probe=None), now)


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldFacts:
    """The holds that the end of one task concerns."""

    holds: Sequence[Hold] = ()  # accounts and the fleet
    freed: Sequence[Hold] = ()  # holds whose probe was the task, while its members reported for themselves
    provider: str = ""
    provider_hold: ProviderHold | None = None
    ran_no_agent: bool = False
    repeats: int = 0  # how often runs of the account met its limit before


def read_holds(context: Context, tx: Transaction, task: Task, run_id: str | None, verdict: Verdict) -> HoldFacts:
    """Read the holds that a task's end concerns, and what the end means for the hold of its provider."""
    if run_id is None and verdict.outcome is Outcome.COMPLETED:
        return HoldFacts(ran_no_agent=True)
    standing = tx.holds.all()
    # each member reported for itself: only the task's role as a probe is left to free
    if run_id is None and _has_members(task):
        freed = [hold for hold in standing if hold.scope is not Scope.FLEET and hold.is_probe(task.id)]
        return HoldFacts(holds=[hold for hold in standing if hold.scope is Scope.FLEET], freed=freed)
    repeats = max(
        (rules_of.count_repeats(hold, task.id) for hold in standing if _is_of_run(tx, task, run_id, hold)), default=0
    )
    provider = task.spec.provider
    before = next((hold for hold in standing if hold.full_name == f"{Scope.PROVIDER}:{provider}"), None)
    if not provider or (before is None and verdict.outcome not in OUTAGE):
        return HoldFacts(holds=standing, provider=provider, repeats=repeats)
    rules, now = context.settings.holds, context.clock()
    after = rules_of.update_provider_hold(before, provider, task.id, verdict, rules, now, context.jitter())
    held = ProviderHold(before=before, after=after)
    return HoldFacts(holds=standing, provider=provider, provider_hold=held, repeats=repeats)


def record_holds(
    context: Context,
    tx: Transaction,
    task: Task,
    run_id: str | None,
    verdict: Verdict,
    decision: Decision,
    facts: HoldFacts,
) -> None:
    """Record what a task's end means for holds: a hold ends, lasts longer, or waits for another probe."""
    now, rules = context.clock(), context.settings.holds
    if facts.ran_no_agent:
        tx.holds.free(task.id)  # what members found out is already recorded: another task may be the probe
        return
    for hold in facts.freed:
        tx.holds.keep(replace(hold, probe=None), now)
    if facts.provider_hold is not None:
        held = facts.provider_hold
        _apply_hold_change(tx, held.before, held.after, f"it answered task {task.id}", context)
    for hold in facts.holds:
        if _is_of_run(tx, task, run_id, hold):
            after = rules_of.update_account_hold(hold, task.id, verdict)
            if after is None and decision.parking is not None:
                tx.holds.release(hold.scope, hold.name, "it is parked or stopped again", now, tell=False)
            else:
                _apply_hold_change(tx, hold, after, f"task {task.id} got through", context)
        elif hold.scope is Scope.FLEET:
            after = update_fleet_hold(hold, task.id, verdict, rules, now, context.jitter())
            _apply_hold_change(tx, hold, after, f"the agent of task {task.id} stayed alive", context)
    if raises_outage_alert(decision, facts.provider_hold):
        alert_outage(tx, facts.provider, verdict.reason, now)


def _has_members(task: Task) -> bool:
    stage = stage_of(task.spec.stages, task.progress)
    return stage is not None and stage.is_parallel


def alert_outage(tx: Transaction, provider: str, reason: str, now: Instant) -> None:
    """Raise the alert that a provider does not answer, once per provider and episode."""
    tx.events.raise_alert(
        provider_alert(provider),
        f"The provider {provider} did not answer for longer than `outage.max`: {reason}. Tasks that waited for it are "
        "paused.",
        f"When it answers again: `holdfast dispatch release provider:{provider}` lets them continue.",
        now,
    )


def _is_of_run(tx: Transaction, task: Task, run_id: str | None, hold: Hold) -> bool:
    """True if the hold belongs to the account of the task's run."""
    if hold.scope is not Scope.ACCOUNT:
        return False
    if run_id is not None and _has_members(task):  # other members of its task may use another account
        under = tx.runs.account_of_run(run_id)
        return under is not None and hold.name == full_name(*under)
    if hold.is_probe(task.id):
        return True
    account = tx.holds.account_of(task.id)
    return account is not None and hold.name == full_name(task.spec.agent, account)


def _apply_hold_change(tx: Transaction, before: Hold | None, after: Hold | None, why: str, context: Context) -> None:
    if after is None and before is not None:
        tx.holds.release(before.scope, before.name, why, context.clock())
    elif after is not None and after != before:
        tx.holds.keep(after, context.clock())
