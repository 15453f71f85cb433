"""Logins of agents: from the tables in the user's settings to the environment of an agent.

Secrets are looked up here, when an agent starts. They are put only into the environment of the agent's process, never
into the store, a file or a log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from holdfast import config
from holdfast.agents.port import DEFAULT_ACCOUNT, Account
from holdfast.base.errors import LaunchError, UsageError
from holdfast.config.settings import CLI_AGENTS
from holdfast.config.tables.accounts import AUTO, AccountTable
from holdfast.secrets.redact import learn, secrets_in
from holdfast.secrets.references import SecretMissing, look_up_secret


class UserAccounts:
    """The accounts in the user's current settings. Implements supervisor.ports.AgentAccounts."""

    def __init__(self, held: Callable[[], config.Config]) -> None:
        self._held = held

    def names(self, agent: str) -> Sequence[str]:
        return account_names(self._held(), agent)

    def choosable(self, agent: str) -> Sequence[str]:
        tables = self._held().accounts.get(agent, {})
        return [name for name in account_names(self._held(), agent) if name not in tables or tables[name].auto]

    def look_up(self, agent: str, name: str) -> Account:
        table = self._held().accounts.get(agent, {}).get(name)
        if table is None:  # perhaps written a moment ago, and not loaded yet
            table = config.load_valid_values().accounts.get(agent, {}).get(name)
        if table is None and name != DEFAULT_ACCOUNT:
            raise LaunchError(_unknown(agent, name, self.names(agent)))
        return load_account(agent, name, table or AccountTable())


def account_names(settings: config.Config, agent: str) -> list[str]:
    """Return an agent's accounts in the order of choice: the user's own login first. Some agents have no accounts."""
    if agent not in CLI_AGENTS:
        return []
    return list(dict.fromkeys((DEFAULT_ACCOUNT, *settings.accounts.get(agent, {}))))


def choose_named_account(settings: config.Config, agent: str, given: str | None) -> str | None:
    """Return the account that a new task is bound to. None: Holdfast chooses. Raise UsageError for an impossible
    choice."""
    if agent not in CLI_AGENTS:
        if given is not None:
            raise UsageError(
                f"The agent '{agent}' has no accounts, so --account cannot be given; accounts are for "
                f"{', '.join(CLI_AGENTS)}."
            )
        return None
    wanted = given or str(settings[f"{agent}.account"])
    known = account_names(settings, agent)
    if wanted in ("", AUTO):
        if not UserAccounts(lambda: settings).choosable(agent):
            raise UsageError(
                f"No account of {agent} may be chosen: all have `auto = false`. Name one with --account "
                f"(known: {', '.join(known)}). Nothing was queued."
            )
        return None
    if wanted not in known:
        raise UsageError(f"{_unknown(agent, wanted, known)} Nothing was queued.")
    return wanted


def load_account(agent: str, name: str, table: AccountTable, environment: Mapping[str, str] = os.environ) -> Account:
    """Return the account ready for use. Raise LaunchError if a secret cannot be looked up. The message of that error
    never contains a secret."""
    place = f"accounts.{agent}.{name}.env"
    return Account(
        name=name,
        config_dir=table.config_dir,
        base_url=table.base_url,
        env={key: _secret(f"{place}.{key}", value, environment) for key, value in table.env.items()},
    )


def _secret(key: str, value: str, environment: Mapping[str, str]) -> str:
    try:
        found = look_up_secret(value, environment)
    except SecretMissing as missing:
        set_it = (
            " Set it and start the supervisor again, then `holdfast retry` the task." if value[:4] == "env:" else ""
        )
        raise LaunchError(f"The account cannot be used: {key} {missing}.{set_it}") from None
    learn({key: found} if found != value else secrets_in({key.rpartition(".")[2]: found}))
    return found


def _unknown(agent: str, name: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return (
        f"There is no account '{name}' for {agent}.{hint} Known: {', '.join(known)}; "
        f"more are tables [accounts.{agent}.NAME] in {config.user_file_path()}."
    )
