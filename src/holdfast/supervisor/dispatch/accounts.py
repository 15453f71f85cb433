"""The account that a run gets, and the tasks that have to wait for an account."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.agents.port import DEFAULT_ACCOUNT
from holdfast.base.errors import LaunchError
from holdfast.core.dispatch.accounts import (
    PARKING,
    STOPPING,
    AccountChoice,
    BlockedTasks,
    ClosedAccount,
    choose_account,
    find_blocked_tasks,
)
from holdfast.core.dispatch.holds import Hold, Scope, held_accounts
from holdfast.core.model import Task
from holdfast.core.runs.outcome import Verdict
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context


class NoAccountNow(Exception):
    """Raised when every account that the task may use was parked or stopped since it was claimed."""


def account_for(context: Context, tx: Transaction, task: Task) -> AccountChoice:
    """Choose the account of a run. It is called in the transaction of the run's intent, so it knows the accounts that
    another run has just parked or stopped."""
    agent, options = task.spec.agent, task.spec.agent_options
    names, choosable = context.ports.accounts.names(agent), context.ports.accounts.choosable(agent)
    named = options.get("account")
    bound = task.account or (DEFAULT_ACCOUNT if task.session_id else None)  # a session from before there were accounts
    if bound is None:
        bound = _account_of_worker(context, task, names)
    closed = () if task.forced else unavailable_accounts(context, tx, task.id)
    shut = [account.name for account in closed if account.agent == agent]
    choice = choose_account(bound, named if isinstance(named, str) else None, shut, names, choosable)
    if choice is None:
        raise NoAccountNow
    if names and choice.account is None:
        raise LaunchError(
            f"No account of {agent} may be chosen: all have `auto = false`. Name one with --account "
            f"(known: {', '.join(names)}), or set `{agent}.account`."
        )
    return choice


def _account_of_worker(context: Context, task: Task, names: Sequence[str]) -> str | None:
    """Return the account of the task's worker, for a task that names none."""
    worker = context.settings.staff.get(task.worker)
    if worker is None or worker.lane.agent != task.spec.agent or worker.lane.account not in names:
        return None
    return worker.lane.account


def has_other_account(context: Context, tx: Transaction, task: Task, run_id: str | None, verdict: Verdict) -> bool:
    """True if the run parks or stops its account, and the task may use another account that is open now."""
    own = None if run_id is None or verdict.outcome not in PARKING | STOPPING else tx.runs.account_of_run(run_id)
    if own is None or task.spec.agent_options.get("account") is not None:
        return False
    agent, name = own
    if _account_of_worker(context, task, context.ports.accounts.names(agent)) is not None:
        return False
    shut = {account.name for account in unavailable_accounts(context, tx) if account.agent == agent}
    return any(other != name and other not in shut for other in context.ports.accounts.choosable(agent))


def unavailable_accounts(
    context: Context, tx: Transaction, task_id: str | None = None, holds: Sequence[Hold] | None = None
) -> Sequence[ClosedAccount]:
    """Return the accounts that the task cannot use now: parked, stopped and held accounts.

    An account is held while another task is its probe, or while enough agents use it near its limit.
    """
    now, holds = context.clock(), tx.holds.all() if holds is None else holds
    shut = tx.accounts.unavailable()
    return [*shut, *held_accounts(holds, _find_crowded_accounts(context, tx, holds), now, task_id)] if holds else shut


def find_blocked_now(context: Context, tx: Transaction, holds: Sequence[Hold]) -> BlockedTasks:
    """Return the agents and accounts whose tasks cannot start at the moment."""
    shut = unavailable_accounts(context, tx, None, holds)
    return find_blocked_tasks(shut, context.ports.accounts.names, context.ports.accounts.choosable)


def find_blocked_for_operator(context: Context, tx: Transaction) -> BlockedTasks:
    """Return the agents and accounts whose tasks cannot start until an operator acts."""
    shut = [account for account in tx.accounts.unavailable() if account.until is None]
    return find_blocked_tasks(shut, context.ports.accounts.names, context.ports.accounts.choosable)


def _find_crowded_accounts(context: Context, tx: Transaction, holds: Sequence[Hold]) -> list[str]:
    """Return the accounts near their limit on which enough agents have started since the limit came near."""
    most = context.settings.holds.near_starts
    near = [hold for hold in holds if hold.scope is Scope.NEAR and hold.is_waiting(context.clock())]
    return [hold.name for hold in near if most and tx.holds.count_agents_since(hold.name, hold.since) >= most]
