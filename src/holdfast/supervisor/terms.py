"""Who has to wait, from everything that holds tasks back: the one place where the terms of a claim are put together."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.dispatch import Lane, Terms
from holdfast.core.holds import is_everything_held, providers_down
from holdfast.store.port import Transaction
from holdfast.supervisor.allowances import spent_now
from holdfast.supervisor.choosing import shut_out_now
from holdfast.supervisor.context import Context


def terms_now(context: Context, tx: Transaction, lane: Lane | None = None) -> Terms:
    """In the transaction of the claim: what another run has just found out counts."""
    now, holds = context.clock(), tx.holds.all()
    is_spent, labels = spent_now(tx)
    shut_out = shut_out_now(context, tx, holds)
    if lane is not None and lane.account is not None and lane.agent is not None:
        # It brings its own account, which is open, or it would not ask: that no other is left does not matter.
        shut_out = replace(shut_out, agents=shut_out.agents - {lane.agent})
    return Terms(
        shut_out=shut_out,
        providers_down=providers_down(holds, now) if holds else frozenset(),
        labels=labels,
        held=is_spent or is_everything_held(holds, now),
        lane=lane,
    )
