"""Who goes first where dispatch is held back. All of it is part of a transaction: a claim and the place of its probe,
an ending and what it says about what was held back, are one step. core/dispatch/holds.py decides."""

from __future__ import annotations

from dataclasses import replace

from holdfast.base.errors import LaunchError
from holdfast.base.instant import Instant
from holdfast.core.dispatch import holds as rules_of
from holdfast.core.dispatch.accounts import full_name
from holdfast.core.dispatch.holds import OUTAGE, Hold, Scope
from holdfast.core.dispatch.mass_death import after_fleet
from holdfast.core.dispatch.terms import Lane
from holdfast.core.model import PauseReason, Task
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Action, Decision
from holdfast.core.workflows.workflow import stage_of
from holdfast.store.port.dispatch import provider_alert
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.accounts import NoAccountNow, account_for
from holdfast.supervisor.dispatch.mass_death import spared
from holdfast.supervisor.dispatch.terms import terms_now


def claim_next(context: Context, tx: Transaction, lane: Lane | None = None) -> Task | None:
    """The next task that may start, and if it goes first somewhere, its place: at once."""
    now = context.clock()
    task = tx.tasks.claim(context.host_id, now, terms_now(context, tx, lane))
    if task is not None:
        free = [hold for hold in tx.holds.all() if hold.lets_one_go(now)]
        for hold in free:
            if hold.scope is Scope.FLEET or (hold.scope is Scope.PROVIDER and hold.name == task.spec.provider):
                tx.holds.keep(hold.with_probe(task.id, now), now)
        if any(hold.scope is Scope.ACCOUNT for hold in free):
            take_account(context, tx, task, _account_of(context, tx, task))
    return task


def take_account(
    context: Context, tx: Transaction, task: Task, account: str | None, *, has_others: bool = False
) -> None:
    """It will run under this account: it goes first there if somebody has to, and nowhere else. `has_others`: agents of
    the same task, which may go first elsewhere."""
    now, wanted = context.clock(), None if account is None else full_name(task.spec.agent, account)
    for hold in tx.holds.all():
        if hold.scope is not Scope.ACCOUNT:
            continue
        if hold.name == wanted and hold.lets_one_go(now):
            tx.holds.keep(hold.with_probe(task.id, now), now)
        elif hold.name != wanted and hold.is_probe(task.id) and not has_others:
            tx.holds.keep(replace(hold, probe=None), now)


def _account_of(context: Context, tx: Transaction, task: Task) -> str | None:
    try:
        return account_for(context, tx, task).account
    except (NoAccountNow, LaunchError):  # found out again, and told, when its run begins
        return None


def after_end(
    context: Context, tx: Transaction, task: Task, run_id: str | None, verdict: Verdict, decision: Decision
) -> Decision:
    """What a task's ending says about what is held back; and the decision about the task, where that changes it."""
    if run_id is None and verdict.outcome is Outcome.COMPLETED:
        tx.holds.free(task.id)  # no agent ran for it (what members found out is told already): another goes first
        return decision
    now, rules = context.clock(), context.settings.holds
    standing = {hold.full_name: hold for hold in tx.holds.all()}
    provider = task.spec.provider
    breaker = standing.get(f"{Scope.PROVIDER}:{provider}")
    if run_id is None and _has_members(task):  # each of them has told what it met: only places of probes are left
        for hold in standing.values():
            if hold.scope is not Scope.FLEET and hold.is_probe(task.id):
                tx.holds.keep(replace(hold, probe=None), now)
        standing = {name: hold for name, hold in standing.items() if hold.scope is Scope.FLEET}
        provider, breaker = "", None
    if provider and (breaker is not None or verdict.outcome in OUTAGE):
        after = rules_of.after_provider(breaker, provider, task.id, verdict, rules, now, context.jitter())
        _follow(tx, breaker, after, f"it answered task {task.id}", context)
        decision = _let_others_go_first(decision, after, context)
    for hold in standing.values():
        if hold.scope is Scope.ACCOUNT and _is_under(tx, task, run_id, hold):
            after = rules_of.after_account(hold, task.id, verdict)
            if after is None and decision.parking is not None:
                tx.holds.release(hold.scope, hold.name, "it is shut again", now, tell=False)
            else:
                _follow(tx, hold, after, f"task {task.id} got through", context)
        elif hold.scope is Scope.FLEET:
            after = after_fleet(hold, task.id, verdict, rules, now, context.jitter())
            _follow(tx, hold, after, f"the agent of task {task.id} lived", context)
    if decision.pause is PauseReason.OUTAGE and breaker is not None and rules_of.is_outage(breaker):
        alert_outage(tx, provider, verdict.reason, now)
        decision = replace(decision, alert=False)  # one for the provider, not one per task
    death = None if run_id is None else tx.holds.death(run_id)
    return decision if death is None else spared(decision, death[0])


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


def _let_others_go_first(decision: Decision, hold: Hold | None, context: Context) -> Decision:
    """Another task probes the next time, if there is one: what fails for a reason of its own holds up nobody else."""
    if decision.action is not Action.REQUEUE or hold is None or hold.until is None or hold.failures == 0:
        return decision
    left = hold.until - context.clock().wall
    return replace(decision, delay=max(decision.delay, left + 0.25 * left)) if left > 0 else decision
