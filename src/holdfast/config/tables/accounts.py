"""Accounts: more logins per agent, as in `[accounts.claude.work] config_dir = "~/.claude-work"`.

Only the user's own file may have them. `default` is the user's own login, and a table of that name refines it. A value
of `env` may be the place of a secret instead of the secret: "env:NAME" or "file:PATH". The secret is looked up when an
agent starts (secrets/references.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.base.text import is_text
from holdfast.config.settings import CLI_AGENTS
from holdfast.config.values import OWN_VARIABLES, meant, parse_flag, parse_nonempty_text

SECTION = "accounts"
DEFAULT = "default"
AUTO = "auto"  # not an account: Holdfast chooses one
KEYS = ("config_dir", "base_url", "env", "auto")
NAMES = "only letters, digits, '.', '_' and '-', begins with a letter or digit, and has at most 64 characters"
PLACE_PREFIXES = ("env:", "file:")  # a value with such a prefix is the place of a secret
HIDDEN = "…"
ADDRESS_IN_ARGUMENT = ("codex",)  # agents whose CLI gets `base_url` as an argument, which must not hold a secret
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOGIN_IN_URL = re.compile(r"(?<=://)[^/]*@")
Complain = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountTable:
    """One account as written in the file, before its secrets are looked up."""

    config_dir: str | None = None
    base_url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    auto: bool = True  # Holdfast may choose this account for tasks that do not name one


Accounts = dict[str, dict[str, AccountTable]]  # agent → name → table, in the order of the file


def read_accounts(tables: object, complain: Complain) -> Accounts:
    """Return every account in the value of `accounts`. Mistakes go to `complain(full key, text)`."""
    found: Accounts = {}
    example = f"'{SECTION}.claude.work'"
    if not isinstance(tables, dict):
        complain(SECTION, f"'{SECTION}' is a section of tables, such as {example}, and cannot be set itself")
        return found
    for agent, accounts in tables.items():
        place = f"{SECTION}.{agent}"
        if agent not in CLI_AGENTS:
            known = f"accounts are for {', '.join(CLI_AGENTS)}"
            complain(place, f"there is no agent '{agent[:60]}' with accounts ({known}){meant(agent, CLI_AGENTS)}")
        elif not isinstance(accounts, dict):
            complain(place, f"'{place}' is a section of accounts, such as {example}, and cannot be set itself")
        else:
            for name, table in accounts.items():
                account = _account(f"{place}.{name}", name, table, complain)
                if account is not None and agent in ADDRESS_IN_ARGUMENT and _has_login(account.base_url):
                    complain(
                        f"{place}.{name}.base_url",
                        f"{place}.{name}.base_url: it has a login in it, and {agent} takes its address on its command "
                        "line, which everybody on this machine can read; put the secret into `env`",
                    )
                elif account is not None:
                    found.setdefault(agent, {})[name] = account
    return found


def refuse_accounts_in_repository(complain: Complain, user_file: str) -> None:
    """Report accounts in a repository's file as a mistake, even if the file is trusted.

    Otherwise a cloned repository could send the user's prompts and keys to any address.
    """
    complain(
        SECTION,
        f"'{SECTION}' names logins and could show secrets, so it is never read from a repository's file, trusted or "
        f"not. Put it into {user_file}",
    )


def accounts_to_show(accounts: Accounts, *, reveal: bool) -> dict[str, Any]:
    """Return full key → value for `config show`. Values that are or may be secrets are hidden."""
    found: dict[str, Any] = {}
    for agent, tables in accounts.items():
        for name, table in tables.items():
            place = f"{SECTION}.{agent}.{name}"
            found[f"{place}.config_dir"] = table.config_dir
            found[f"{place}.base_url"] = table.base_url if reveal else _without_login(table.base_url)
            found[f"{place}.env"] = {key: value if reveal else _hidden(value) for key, value in table.env.items()}
            found[f"{place}.auto"] = table.auto
    return {key: value for key, value in found.items() if value not in (None, {})}


def holds_secrets(accounts: Accounts) -> bool:
    """True if the file itself contains a secret, not only the place of one."""
    return any(
        not value.startswith(PLACE_PREFIXES)
        for tables in accounts.values()
        for table in tables.values()
        for value in table.env.values()
    ) or any(_has_login(table.base_url) for tables in accounts.values() for table in tables.values())


def _account(place: str, name: str, table: object, complain: Complain) -> AccountTable | None:
    if not _NAME.fullmatch(name) or name == AUTO:
        why = f"'{AUTO}' means that Holdfast chooses" if name == AUTO else f"a name has {NAMES}"
        complain(place, f"'{name[:60]}' cannot be the name of an account: {why}")
        return None
    if not isinstance(table, dict):
        complain(place, f"'{place}' is an account, a table with {', '.join(KEYS)}, and cannot be set itself")
        return None
    good = True

    def refuse(key: str, text: str) -> None:
        nonlocal good
        good = False
        complain(f"{place}.{key}", text)

    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _READERS:
            refuse(key, f"there is no setting '{place}.{key[:60]}'{meant(key, KEYS, f'{place}.')}")
            continue
        try:
            values[key] = _READERS[key](value)
        except ValueError as error:
            refuse(key, f"{place}.{key}: {error}")
    return AccountTable(**values) if good else None


# -- values: messages never quote them, because they may be secrets ----------------------------------------------------


def _folder(value: object) -> str:
    path = os.path.expanduser(parse_nonempty_text(value))
    if not os.path.isabs(path):
        raise ValueError(f"'{path[:60]}' is not a whole path; begin it with / or ~")
    return os.path.normpath(path)


def _url(value: object) -> str:
    url = parse_nonempty_text(value)
    if not url.startswith(("http://", "https://")) or any(letter.isspace() for letter in url):
        raise ValueError("it is not an address that begins with http:// or https://")
    return url


def _variables(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError('it is not a table of texts, like { NAME = "env:OTHER_NAME" }')
    for name, word in value.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"'{name[:60]}' cannot be the name of an environment variable")
        if name.startswith(OWN_VARIABLES):
            raise ValueError(f"{name[:60]} is a variable of Holdfast itself")
        if not isinstance(word, str) or not is_text(word):
            raise ValueError(f"the value of {name} is not text; write it in quotes")
        place, _, rest = word.partition(":")
        if place == "env" and not _VARIABLE.fullmatch(rest):
            raise ValueError(f'{name}: after "env:" the name of a variable is expected')
        if place == "file" and not os.path.isabs(os.path.expanduser(rest)):
            raise ValueError(f'{name}: after "file:" a whole path is expected, which begins with / or ~')
    return dict(value)


_READERS: Mapping[str, Callable[[object], Any]] = {
    "config_dir": _folder,
    "base_url": _url,
    "env": _variables,
    "auto": parse_flag,
}


def _hidden(value: str) -> str:
    return value if value.startswith(PLACE_PREFIXES) else HIDDEN


def _has_login(url: str | None) -> bool:
    return _without_login(url) != url


def _without_login(url: str | None) -> str | None:
    return None if url is None else _LOGIN_IN_URL.sub(f"{HIDDEN}@", url)
