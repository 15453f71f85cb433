"""Which account a run gets, and which tasks have to wait for one."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.agents.port import DEFAULT_ACCOUNT
from holdfast.base.errors import LaunchError
from holdfast.core.dispatch.accounts import Choice, ShutAccount, ShutOut, choose, shut_out
from holdfast.core.dispatch.holds import Hold, Scope, accounts_held
from holdfast.core.model import Task
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context


class NoAccountNow(Exception):
    """Every account that the task may have was shut since it was claimed."""


def account_for(context: Context, tx: Transaction, task: Task) -> Choice:
    """In the transaction of the run's intent: what another run has just found out counts."""
    agent, options = task.spec.agent, task.spec.agent_options
    names, choosable = context.ports.accounts.names(agent), context.ports.accounts.choosable(agent)
    named = options.get("account")
    bound = task.account or (DEFAULT_ACCOUNT if task.session_id else None)  # a session from before there were accounts
    if bound is None:
        bound = _of_its_worker(context, task, names)
    closed = () if task.forced else closed_accounts(context, tx, task.id)
    shut = [account.name for account in closed if account.agent == agent]
    choice = choose(bound, named if isinstance(named, str) else None, shut, names, choosable)
    if choice is None:
        raise NoAccountNow
    if names and choice.account is None:
        raise LaunchError(
            f"No account of {agent} may be chosen: all have `auto = false`. Name one with --account "
            f"(known: {', '.join(names)}), or set `{agent}.account`."
        )
    return choice


def _of_its_worker(context: Context, task: Task, names: Sequence[str]) -> str | None:
    """A worker with an account gives it to tasks that name none."""
    worker = context.settings.staff.get(task.worker)
    if worker is None or worker.lane.agent != task.spec.agent or worker.lane.account not in names:
        return None
    return worker.lane.account


def closed_accounts(
    context: Context, tx: Transaction, task_id: str | None = None, holds: Sequence[Hold] | None = None
) -> Sequence[ShutAccount]:
    """Those that are shut, and those where somebody else than this task goes first, or enough are at work."""
    now, holds = context.clock(), tx.holds.all() if holds is None else holds
    shut = tx.accounts.shut(now)
    return [*shut, *accounts_held(holds, _crowded(context, tx, holds), now, task_id)] if holds else shut


def shut_out_now(context: Context, tx: Transaction, holds: Sequence[Hold]) -> ShutOut:
    """Who cannot start at the moment."""
    shut = closed_accounts(context, tx, None, holds)
    return shut_out(shut, context.ports.accounts.names, context.ports.accounts.choosable)


def stopped_accounts(context: Context, tx: Transaction) -> ShutOut:
    """Whom only an operator can help, as far as accounts go."""
    shut = [account for account in tx.accounts.shut(context.clock()) if account.until is None]
    return shut_out(shut, context.ports.accounts.names, context.ports.accounts.choosable)


def _crowded(context: Context, tx: Transaction, holds: Sequence[Hold]) -> list[str]:
    """Accounts near their limit on which enough agents have begun since."""
    most = context.settings.holds.near_starts
    near = [hold for hold in holds if hold.scope is Scope.NEAR and hold.is_waiting(context.clock())]
    return [hold.name for hold in near if most and tx.holds.crowd(hold.name, hold.since) >= most]
