"""Accounts: which there are, which are shut and why, who waits for one; and opening one again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast import config
from holdfast.api.fleet.dispatch import holds
from holdfast.api.format import moment
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.errors import NotFound, UsageError
from holdfast.config.settings import CLI_AGENTS
from holdfast.core.dispatch.accounts import ShutAccount, full_name
from holdfast.core.runs.outcome import Outcome
from holdfast.intake.accounts import UserAccounts

if TYPE_CHECKING:
    from holdfast.store.port.transaction import Transaction

Row = dict[str, Any]
SHORT_PAUSE = 10.0  # seconds; as long for a task that should have gone on already


def accounts(home: str) -> list[Row]:
    """Every account that the settings name or that is shut; of agents with neither, nothing."""
    settings = config.best_effort()
    queries = Queries(home)
    known, shut = UserAccounts(lambda: settings), {account.full_name: account for account in _shut(queries)}
    held = {row["name"]: row for row in holds(queries) if row["scope"] in ("account", "near")}
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


def shut(queries: Queries) -> list[Row]:
    """Those that are not used for a while, or until somebody mends them (`until` is None)."""
    return [
        {"account": account.full_name, "until": account.until, "reason": account.reason, "at": account.at}
        for account in _shut(queries)
    ]


def resume_account(home: str, word: str) -> list[str]:
    """Open the account AGENT/NAME again. Return the tasks that go on."""
    agent, _, name = word.partition("/")
    if not name:
        raise UsageError(f"'{word}' is no account: write AGENT/NAME, such as claude/default.")
    if agent not in CLI_AGENTS:
        raise NotFound(f"There is no agent '{agent}' with accounts; they are for {', '.join(CLI_AGENTS)}.")

    from holdfast.api.commands import change_store, who  # imported here: readers have to start fast

    def open_account(tx: Transaction) -> list[str]:
        waiting = tx.accounts.resume(agent, name, who(), clock.now())
        for task_id in waiting:
            tx.tasks.resume(task_id, who(), clock.now())
        return list(waiting)

    return change_store(home, open_account)


def waits_for_account(queries: Queries, task: Row) -> str | None:
    """Why a queued task cannot have an account now, if that is so, and what to type."""
    shut = _keeping_back(queries, task)
    if not shut:
        return None
    words = "; ".join(f"{account.full_name} is {_how(account)} ({account.reason})" for account in shut)
    which = f"account {shut[0].full_name}" if len(shut) == 1 else f"an account of {task['agent']}"
    mend = [account for account in shut if account.until is None]
    first = (mend or shut)[0].full_name
    remedy = (
        f"When its login works again: `holdfast accounts resume {first}`."
        if len(mend) == len(shut)
        else (f"It starts by itself then; `holdfast accounts resume {first}` opens it now.")
    )
    return f"It waits for {which}: {words}. {remedy}"


def waits_for_operator(queries: Queries, task: Row) -> bool:
    """Whether nothing but a person can let a queued task start."""
    shut = _keeping_back(queries, task)
    return bool(shut) and all(account.until is None for account in shut)


def goes_on_soon(queries: Queries, task: Row) -> bool:
    """Whether its pause ends by itself at once (a new session, a limit of seconds): none to whoever watches it."""
    at = task["resume_after"] if task["state"] == "paused" else None
    return at is not None and abs(at - clock.now().wall) < SHORT_PAUSE and queries.supervisor() is not None


def held_words(queries: Queries) -> Callable[[str, str | None], str | None]:
    """For `ps`: (agent, account that it is bound to) → what it waits for, if it does."""
    shut, known = _shut(queries), UserAccounts(_settings_once())

    def words(agent: str, bound: str | None) -> str | None:
        kept = _without_another(agent, bound, shut, known)
        return "; ".join(f"account {account.full_name} is {_how(account)}" for account in kept) or None

    return words


def kept_back(queries: Queries, task: Row) -> str | None:
    """What a paused task waits for, if that is its account."""
    if task["state"] != "paused" or task["pause_reason"] not in ("usage_limit", "rate_limit", "auth", "billing"):
        return None
    shut = {account.full_name: account for account in _shut(queries)}
    account = shut.get(full_name(str(task["agent"]), str(task["account"])))
    return (
        None
        if account is None
        else (
            f"Its account {account.full_name} is {_how(account)}; "
            f"`holdfast accounts resume {account.full_name}` opens it, and its tasks go on."
        )
    )


def _keeping_back(queries: Queries, task: Row) -> list[ShutAccount]:
    """The shut accounts, if a queued task may have no other."""
    if task["state"] != "queued":
        return []
    shut = _shut(queries)
    if not shut:
        return []
    bound = queries.state(task["id"])["bound"]
    return _without_another(str(task["agent"]), bound, shut, UserAccounts(_settings_once()))


def _without_another(
    agent: str, bound: str | None, shut: Sequence[ShutAccount], known: UserAccounts
) -> list[ShutAccount]:
    wanted = [bound] if bound is not None and bound in known.names(agent) else known.choosable(agent)
    found = [account for account in shut if account.agent == agent and account.name in wanted]
    return found if len(found) == len(wanted) else []


def _settings_once() -> Callable[[], config.Config]:
    settings = config.best_effort()
    return lambda: settings


def _shut(queries: Queries) -> list[ShutAccount]:
    rows = [
        ShutAccount(
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


def _row(agent: str, name: str, known: UserAccounts, shut: ShutAccount | None, held: Row | None) -> Row:
    if shut is None and held is not None:
        first = f"; task {held['probe']} goes first" if held["probe"] else ""
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


def _how(account: ShutAccount) -> str:
    return "stopped" if account.until is None else f"parked until {moment(account.until)}"
