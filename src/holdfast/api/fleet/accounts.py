"""Accounts: a list with the parked and stopped ones and the reason of each, and the command that opens one again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast import config
from holdfast.api.fleet.dispatch import list_holds
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.errors import NotFound, UsageError
from holdfast.base.text import one_line
from holdfast.config.settings import CLI_AGENTS
from holdfast.core.dispatch.accounts import ClosedAccount, full_name
from holdfast.core.runs.outcome import Outcome
from holdfast.intake.accounts import UserAccounts

if TYPE_CHECKING:
    from holdfast.api.fleet.models import AccountRow, ClosedAccountRow, HoldRow
    from holdfast.api.tasks.models import TaskStateRow
    from holdfast.store.port.transaction import Transaction

SHORT_PAUSE = 10.0  # seconds, before and after the moment at which a task is due


def list_accounts(home: str) -> list[AccountRow]:
    """Return every account that the settings name, or that is parked, stopped or held."""
    settings = config.load_valid_values()
    queries = Queries(home)
    known, shut = UserAccounts(lambda: settings), {account.full_name: account for account in _closed_accounts(queries)}
    held = {row["name"]: row for row in list_holds(queries) if row["scope"] in ("account", "near")}
    found = []
    for agent in CLI_AGENTS:
        of_shut = [account.name for account in shut.values() if account.agent == agent]
        of_shut += [name.partition("/")[2] for name in held if name.partition("/")[0] == agent]
        if agent in settings.accounts or of_shut:
            names = dict.fromkeys((*known.names(agent), *of_shut))
            for name in names:
                whole = full_name(agent, name)
                found.append(_row(agent, name, known, shut.get(whole), held.get(whole)))
    return found


def shut(queries: Queries) -> list[ClosedAccountRow]:
    """Return the accounts that are parked, or stopped until an operator opens them (`until` is None)."""
    return [
        {"account": account.full_name, "until": account.until, "reason": account.reason, "at": account.at}
        for account in _closed_accounts(queries)
    ]


def resume_account(home: str, word: str) -> list[str]:
    """Open the account AGENT/NAME again. Return the tasks that continue. A task without a resume left stays paused."""
    agent, _, name = word.partition("/")
    if not name:
        raise UsageError(f"'{word}' is not an account. Write AGENT/NAME, such as claude/default.")
    if agent not in CLI_AGENTS:
        raise NotFound(f"There is no agent '{agent}' with accounts; they are for {', '.join(CLI_AGENTS)}.")

    known, queries = UserAccounts(_settings_once()).names(agent), Queries(home)
    if name not in known and find_closed_account(queries, agent, name) is None:
        raise NotFound(
            f"There is no account {one_line(word, 60)}. Known: {', '.join(full_name(agent, one) for one in known)}. "
            "`holdfast accounts` lists them all."
        )
    from holdfast.api.commands import change_store, operator_name  # imported here: readers have to start fast

    def open_account(tx: Transaction) -> list[str]:
        waiting = tx.accounts.resume(agent, name, operator_name(), clock.now())
        return [task for task in waiting if tx.tasks.resume(task, operator_name(), clock.now()).allowed]

    return change_store(home, open_account)


def resumes_within_seconds(queries: Queries, task: TaskStateRow) -> bool:
    """True if the pause ends within seconds (a new session, a short limit), so `run` keeps watching."""
    at = task["resume_after"] if task["state"] == "paused" else None
    return at is not None and abs(at - clock.now().wall) < SHORT_PAUSE and queries.supervisor() is not None


def find_missing_accounts(queries: Queries) -> Callable[[str, str | None], list[ClosedAccount]]:
    """Return a function: (agent, bound account of a task) → the parked or stopped accounts that the task waits for.

    The list is empty if the task may use another account. The settings are read once.
    """
    shut, known = _closed_accounts(queries), UserAccounts(_settings_once())
    return lambda agent, bound: _without_another(agent, bound, shut, known)


def find_closed_account(queries: Queries, agent: str, name: str | None) -> ClosedAccount | None:
    """Return the account if it is parked or stopped."""
    wanted = full_name(agent, str(name))
    return next((account for account in _closed_accounts(queries) if account.full_name == wanted), None)


def _without_another(
    agent: str, bound: str | None, shut: Sequence[ClosedAccount], known: UserAccounts
) -> list[ClosedAccount]:
    wanted = [bound] if bound is not None and bound in known.names(agent) else known.choosable(agent)
    found = [account for account in shut if account.agent == agent and account.name in wanted]
    return found if len(found) == len(wanted) else []


def _settings_once() -> Callable[[], config.Config]:
    settings = config.load_valid_values()
    return lambda: settings


def _closed_accounts(queries: Queries) -> list[ClosedAccount]:
    rows = [
        ClosedAccount(
            agent=row["agent"],
            name=row["name"],
            until=row["until"],
            outcome=Outcome(row["outcome"]),
            reason=row["reason"],
            at=row["at"],
            task_id=row["task"],
        )
        for row in queries.view("accounts")
    ]
    return [account for account in rows if account.holds(clock.now())]


_HELD = {"account": "probing", "near": "slowed"}


def _row(agent: str, name: str, known: UserAccounts, shut: ClosedAccount | None, held: HoldRow | None) -> AccountRow:
    if shut is None and held is not None:
        first = f"; task {held['probe']} starts first" if held["probe"] else ""
        return {
            **_row(agent, name, known, None, None),
            "state": _HELD[held["scope"]],
            "until": held["until"],
            "reason": f"{held['reason']}{first}",
            "at": held["since"],
            "task": held["probe"],
        }
    return {
        "account": full_name(agent, name),
        "agent": agent,
        "name": name,
        "state": "open" if shut is None else "stopped" if shut.until is None else "parked",
        "until": shut.until if shut else None,
        "reason": shut.reason if shut else None,
        "outcome": str(shut.outcome) if shut else None,
        "at": shut.at if shut else None,
        "task": shut.task_id if shut else None,
        "configured": name in known.names(agent),
        "auto": name in known.choosable(agent),
    }
