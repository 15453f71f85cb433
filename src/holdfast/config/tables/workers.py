"""Named long-lived workers: `[[worker]]` tables with a name and the tasks they take. Only the user's own file may have
them.

[[worker]]
name = "web"
agent = "claude"              # only tasks of this agent; default: of any agent
account = "work"              # the account that its agents use; needs `agent`
labels = { area = "web" }     # only tasks that have all of these labels
restart = true                # replaces `crash.auto_restart` for this worker
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.base.text import is_text
from holdfast.config.per_agent import AGENTS
from holdfast.config.settings import CLI_AGENTS
from holdfast.config.tables.accounts import DEFAULT as OWN_LOGIN
from holdfast.config.tables.accounts import Accounts
from holdfast.config.values import meant, parse_flag, parse_nonempty_text

SECTION = "worker"
KEYS = ("name", "agent", "account", "labels", "restart")
NAMES = "only letters, digits, '.', '_' and '-', begins with a letter or digit, and has at most 64 characters"
MOST = 256
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Complain = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerTable:
    """One worker as written in the file."""

    name: str
    agent: str | None = None
    account: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    restart: bool | None = None  # None: `crash.auto_restart` decides
    number: int = field(default=0, compare=False)  # index of the table in the file, from 0


Workers = tuple[WorkerTable, ...]  # in the order of the file


def worker_place(number: int) -> str:
    """Return the key under which config/problems.py records the lines of the table with this number (from 0)."""
    return f"{SECTION}[{number}]"


def read_workers(tables: object, accounts: Accounts, complain: Complain) -> Workers:
    """Return every worker in the value of `worker`. Mistakes go to `complain(full key, text)`."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        complain(SECTION, f"'{SECTION}' is a list of workers: begin each with a line [[{SECTION}]]")
        return ()
    if len(tables) > MOST:
        complain(SECTION, f"there are {len(tables)} workers, but at most {MOST} are allowed")
        return ()
    found: dict[str, WorkerTable] = {}
    for number, table in enumerate(tables):
        worker = _worker(number, table, accounts, complain)
        if worker is None:
            continue
        if worker.name in found:
            complain(f"{worker_place(number)}.name", f"{SECTION}.name: there is a worker '{worker.name}' above already")
        else:
            found[worker.name] = worker
    return tuple(found.values())


def refuse_workers_in_repository(complain: Complain, user_file: str) -> None:
    """Report workers in a repository's file as a mistake: workers serve all repositories, not only this one."""
    complain(
        SECTION,
        f"'{SECTION}' names workers of the supervisor, so it is not read from a repository's file. Put it into "
        f"{user_file}",
    )


def workers_to_show(workers: Workers) -> dict[str, Any]:
    """Return full key → value for `config show`."""
    found: dict[str, Any] = {}
    for worker in workers:
        place = f"{SECTION}.{worker.name}"
        found[f"{place}.agent"] = worker.agent or "any"
        found[f"{place}.account"] = worker.account
        found[f"{place}.labels"] = dict(worker.labels)
        found[f"{place}.restart"] = worker.restart
    return {key: value for key, value in found.items() if value not in (None, {})}


def _worker(number: int, table: Mapping[str, Any], accounts: Accounts, complain: Complain) -> WorkerTable | None:
    good, place = True, worker_place(number)

    def refuse(key: str, text: str) -> None:
        nonlocal good
        good = False
        complain(f"{place}.{key}" if key else place, text)

    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _READERS:
            refuse(key, f"there is no setting '{SECTION}.{key[:60]}'{meant(key, KEYS, f'{SECTION}.')}")
            continue
        try:
            values[key] = _READERS[key](value)
        except ValueError as error:
            refuse(key, f"{SECTION}.{key}: {error}")
    if "name" not in table:
        refuse("", f"a worker needs a name: {SECTION}.name is missing")
    if good and "account" in values:
        problem = _explain_bad_account(values.get("agent"), values["account"], accounts)
        if problem is not None:
            refuse("account", f"{SECTION}.account: {problem}")
    return WorkerTable(**values, number=number) if good else None


def _explain_bad_account(agent: str | None, account: str, accounts: Accounts) -> str | None:
    """Return why a worker of this agent cannot have this account, or None if it can."""
    if agent is None:
        return f"an account belongs to one agent, so {SECTION}.agent is needed too"
    if agent not in CLI_AGENTS:
        return f"the agent '{agent}' has no accounts; they are for {', '.join(CLI_AGENTS)}"
    known = (OWN_LOGIN, *accounts.get(agent, {}))
    if account not in known:
        return f"there is no account '{account[:60]}' for {agent} (known: {', '.join(known)}){meant(account, known)}"
    return None


# -- values ------------------------------------------------------------------------------------------------------------


def _name(value: object) -> str:
    name = parse_nonempty_text(value)
    if not _NAME.fullmatch(name):
        raise ValueError(f"'{name[:60]}' cannot be the name of a worker: a name has {NAMES}")
    return name


def _agent(value: object) -> str:
    agent = parse_nonempty_text(value)
    if agent not in AGENTS:
        raise ValueError(f"there is no agent '{agent[:60]}' (known: {', '.join(AGENTS)}){meant(agent, AGENTS)}")
    return agent


def _labels(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError('it is not a table of texts, like { area = "web" }')
    for key, word in value.items():
        if not key or not is_text(key):
            raise ValueError("a label has no name")
        if not isinstance(word, str) or not is_text(word):
            raise ValueError(f"the value of '{key[:60]}' is not text; write it in quotes")
    return dict(value)


_READERS: Mapping[str, Callable[[object], Any]] = {
    "name": _name,
    "agent": _agent,
    "account": parse_nonempty_text,
    "labels": _labels,
    "restart": parse_flag,
}
