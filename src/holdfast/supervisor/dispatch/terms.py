"""The terms of a claim: which tasks have to wait. This is the only place that combines everything that holds tasks
back."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.dispatch.holds import is_everything_held, providers_down
from holdfast.core.dispatch.terms import ForOperators, Lane, Terms
from holdfast.core.dispatch.workers import WorkerState
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.accounts import shut_out_now, stopped_accounts
from holdfast.supervisor.dispatch.spending import spent_now


def terms_now(context: Context, tx: Transaction, lane: Lane | None = None) -> Terms:
    """Return the terms, in the transaction of the claim, so that what another run has just found counts."""
    now, holds = context.clock(), tx.holds.all()
    is_spent, labels = spent_now(tx)
    shut_out = shut_out_now(context, tx, holds)
    if lane is not None and lane.account is not None and lane.agent is not None:
        # The lane has its own account, which is usable, or it would not ask. It does not matter that no other account
        # is left.
        shut_out = replace(shut_out, agents=shut_out.agents - {lane.agent})
    return Terms(
        shut_out=shut_out,
        providers_down=providers_down(holds, now) if holds else frozenset(),
        labels=labels,
        held=is_spent or is_everything_held(holds, now),
        lane=lane,
    )


def for_operators(context: Context, tx: Transaction) -> ForOperators:
    """Return what keeps tasks waiting until an operator acts. None of that keeps an idle supervisor running
    (`--idle-exit`)."""
    settings, lanes = context.settings, None
    if settings.agents == 0 and settings.staff.workers:
        stopped = {record.name for record in tx.workers.all() if record.state is WorkerState.STOPPED}
        lanes = tuple(worker.lane for worker in settings.staff.workers if worker.name not in stopped)
    spent = tx.spending.spent()
    return ForOperators(
        shut_out=stopped_accounts(context, tx),
        labels=frozenset(found.label for found in spent if found.label and found.until is None),
        held=any(hold.for_operator for hold in tx.holds.all()),
        lanes=lanes,
        auto=context.limits.auto_resume,
    )
