"""The terms of a claim: which tasks have to wait. This is the only place that combines everything that holds tasks
back."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.dispatch.holds import held_providers, is_everything_held
from holdfast.core.dispatch.terms import ClaimTerms, Lane, OperatorBlocks
from holdfast.core.dispatch.workers import WorkerState
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.accounts import find_blocked_for_operator, find_blocked_now
from holdfast.supervisor.dispatch.spending import spent_caps_for_claim


def build_claim_terms(context: Context, tx: Transaction, lane: Lane | None = None) -> ClaimTerms:
    """Return the terms of a claim. They are read in the claim's transaction, so they include what another run has just
    recorded."""
    now, holds = context.clock(), tx.holds.all()
    is_spent, labels = spent_caps_for_claim(tx)
    shut_out = find_blocked_now(context, tx, holds)
    if lane is not None and lane.account is not None and lane.agent is not None:
        # The lane has its own account, which is usable, or it would not ask. It does not matter that no other account
        # is left.
        shut_out = replace(shut_out, agents=shut_out.agents - {lane.agent})
    return ClaimTerms(
        blocked=shut_out,
        providers_down=held_providers(holds, now) if holds else frozenset(),
        labels=labels,
        full_repos=frozenset(context.shared.full_repos),
        held=is_spent or is_everything_held(holds, now),
        lane=lane,
    )


def find_operator_blocks(context: Context, tx: Transaction) -> OperatorBlocks:
    """Return what keeps tasks waiting until an operator acts. Tasks that wait for an operator do not keep an idle
    supervisor running (`--idle-exit`)."""
    settings, lanes = context.settings, None
    if settings.agents == 0 and settings.staff.workers:
        stopped = {record.name for record in tx.workers.all() if record.state is WorkerState.STOPPED}
        lanes = tuple(worker.lane for worker in settings.staff.workers if worker.name not in stopped)
    spent = tx.spending.spent()
    return OperatorBlocks(
        blocked=find_blocked_for_operator(context, tx),
        labels=frozenset(found.label for found in spent if found.label and found.until is None),
        held=any(hold.needs_operator for hold in tx.holds.all()),
        lanes=lanes,
        auto=context.limits.auto_resume,
    )
