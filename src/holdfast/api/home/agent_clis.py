"""The agent CLIs of this machine: path, version, login and permissions. Nothing here costs tokens."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from holdfast import config
from holdfast.agents.common.cli_agent import CliAgent
from holdfast.agents.common.versions import PATIENCE, ask_versions
from holdfast.agents.port import DEFAULT_ACCOUNT, Account, AgentCommand, Permission, WorkOrder
from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import LaunchError
from holdfast.config.tables.accounts import AccountTable
from holdfast.intake.accounts import account_names, load_account
from holdfast.intake.new_task import describe_host

VERSION_CACHE = "clis.json"  # in the home: a CLI is not asked for its version again before its file changes
_NUMBER = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentCli:
    """One agent of the registry, as this machine has it."""

    agent: CliAgent
    wanted: str  # the program that would be started
    is_chosen: bool  # named by the setting `<agent>.binary`
    path: str | None  # None: the program was not found
    said: str = ""  # the output of the CLI when it was asked for its version

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def version(self) -> str:
        found = _NUMBER.search(self.said)
        return found.group() if found is not None else ""

    @property
    def age(self) -> int | None:
        """Compare the version with the tested ones. Below 0: older than the oldest. Above 0: newer than the newest.
        None: unknown version."""
        if not self.version:
            return None
        oldest, newest = map(_parts, self.agent.tested)
        mine = _parts(self.version)
        return -1 if mine < oldest else 1 if mine > newest else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginState:
    account: str
    is_seen: bool | None  # None: cannot be known here
    text: str


def find_clis(settings: config.Config, home: str | None = None, patience: float = PATIENCE) -> list[AgentCli]:
    """Return every real CLI that this version can drive, including those that are not installed. Versions are cached in
    `home`."""
    found = [_look_up(agent, settings) for agent in _real_agents()]
    here = [cli for cli in found if cli.path is not None]
    known = _load_versions(home)
    stamps = {cli.name: _stamp(str(cli.path)) for cli in here}
    said = {cli.name: known[stamps[cli.name]] for cli in here if stamps[cli.name] in known}
    questions = {cli.name: [str(cli.path), *cli.agent.version_arguments] for cli in here if cli.name not in said}
    if questions:
        said |= ask_versions(questions, patience)
        _save_versions(home, {stamps[name]: text for name, text in said.items() if text})
    return [_with_version(cli, said.get(cli.name, "")) for cli in found]


def list_agents() -> list[str]:
    from holdfast.agents.registry import AGENTS

    return list(AGENTS)


def _real_agents() -> Iterator[CliAgent]:
    from holdfast.agents.registry import AGENTS

    for name in AGENTS:
        agent = AGENTS[name]
        if isinstance(agent, CliAgent):
            yield agent


def _look_up(agent: CliAgent, settings: config.Config) -> AgentCli:
    chosen = str(settings[f"{agent.name}.binary"])
    wanted = chosen or agent.binary
    return AgentCli(agent=agent, wanted=wanted, is_chosen=bool(chosen), path=shutil.which(wanted))


def _with_version(cli: AgentCli, said: str) -> AgentCli:
    return AgentCli(agent=cli.agent, wanted=cli.wanted, is_chosen=cli.is_chosen, path=cli.path, said=said)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


# -- cached versions ---------------------------------------------------------------------------------------------------


def _stamp(path: str) -> str:
    """Return a stamp of the file at the end of all links. The stamp does not use the modification time, because
    packages install files with old times."""
    try:
        real = os.path.realpath(path)
        found = os.stat(real)
    except OSError:
        return path
    return f"{real}:{found.st_ino}:{found.st_size}:{found.st_ctime_ns}"


def _load_versions(home: str | None) -> dict[str, str]:
    if home is None:
        return {}
    try:
        with open(os.path.join(home, VERSION_CACHE), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _save_versions(home: str | None, said: Mapping[str, str]) -> None:
    """Cache the versions in the home. A failed write is ignored: the CLIs are then asked again."""
    if home is None or not os.path.isdir(home):
        return
    path = os.path.join(home, VERSION_CACHE)
    with contextlib.suppress(OSError):
        faults.effect("clis.remember")
        fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(dict(said), file)
        os.replace(f"{path}.new", path)


# -- logins ------------------------------------------------------------------------------------------------------------


def logins(cli: AgentCli, settings: config.Config, environment: Mapping[str, str] = os.environ) -> list[LoginState]:
    """Return the login state of every account, as far as files and variables show it. No server is asked."""
    tables = settings.accounts.get(cli.name, {})
    found = []
    for name in account_names(settings, cli.name):
        try:
            account = load_account(cli.name, name, tables.get(name, AccountTable()), environment)
        except LaunchError as error:
            found.append(LoginState(account=name, is_seen=False, text=str(error)))
            continue
        found.append(_login(cli.agent, account, environment))
    return found


def _login(agent: CliAgent, account: Account, environment: Mapping[str, str]) -> LoginState:
    login = agent.login
    own = environment if account.name == DEFAULT_ACCOUNT else {}
    telling = (*login.variables, *(login.keys_of_address if account.base_url else ()))
    for name in (*account.env, *own):
        if any(fnmatchcase(name, pattern) for pattern in telling) and (account.env.get(name) or own.get(name)):
            return LoginState(account=account.name, is_seen=True, text=f"by the variable {name}")
    folder = account.config_dir or own.get(login.config_variable) or login.config_directory
    paths = [os.path.expanduser(pattern.replace("{config}", folder)) for pattern in login.files]
    for path in paths:
        if os.path.exists(path):
            return LoginState(account=account.name, is_seen=True, text=f"in {path}")
    if not paths or sys.platform == "darwin":  # the login may be in a keychain
        return LoginState(account=account.name, is_seen=None, text="unknown without asking its provider")
    return LoginState(account=account.name, is_seen=False, text=_how_to_log_in(agent, account))


def _how_to_log_in(agent: CliAgent, account: Account) -> str:
    if not agent.login.command:
        return f"none seen; set {' or '.join(agent.login.variables[:3])}"
    place = ""
    if account.config_dir is not None and agent.login.config_variable:
        place = f"{agent.login.config_variable}={account.config_dir} "
    return f"none seen; log in with `{place}{agent.login.command}`"


# -- permissions -------------------------------------------------------------------------------------------------------


def describe_permissions(cli: AgentCli) -> dict[str, str]:
    """Return, for each permission mode, the words and variables of the CLI's command that other modes do not have."""
    made = {str(mode): _command(cli.agent, mode) for mode in Permission}
    common = set.intersection(*(set(command.argv) for command in made.values()))
    return {
        mode: " ".join([*_own_words(command.argv, common), *_own_variables(command.env, made)])
        for mode, command in made.items()
    }


def _command(agent: CliAgent, mode: Permission) -> AgentCommand:
    options = {"permission": str(mode)}
    return agent.build(WorkOrder(prompt="", run_number=1, session_id=None, options=options, new_session="ID"))


def _own_words(argv: Sequence[str], common: set[str]) -> Iterator[str]:
    for at, word in enumerate(argv):
        if word not in common:
            if at and not word.startswith("-") and argv[at - 1] in common and argv[at - 1].startswith("--"):
                yield argv[at - 1]  # the option that this value belongs to
            yield word


def _own_variables(env: Mapping[str, str], made: Mapping[str, AgentCommand]) -> Iterator[str]:
    for name, value in env.items():
        values = [command.env.get(name, "") for command in made.values()]
        if len(set(values)) > 1:
            same = len(os.path.commonprefix(values))  # noqa: RUF071 - letters are meant, they are no paths
            yield f"{name}={'…' if same else ''}{value[same:]}"


def find_start_problem(cli: AgentCli, settings: config.Config, mode: str) -> str | None:
    """Return why this CLI cannot be started here in this mode, or None."""
    options: dict[str, Any] = {
        "permission": mode,
        "sandbox": settings["permissions.sandbox"] or None,
        "allow": settings["permissions.allow"],
        "args": settings[f"{cli.name}.args"],
    }
    return cli.agent.problem(options, describe_host(str(settings["workspace.strategy"]), options))


def find_distrust(cli: AgentCli, settings: config.Config, repo: str) -> str | None:
    """Return why this CLI ignores the repository's own rules, or None. Only files are read."""
    trust = cli.agent.trust
    if trust is None or not trust.has_rules(_read_text(os.path.join(repo, trust.rules))):
        return None
    files = [
        trust.default_file if table.config_dir is None else trust.file.replace("{config}", table.config_dir)
        for table in settings.accounts.get(cli.name, {}).values()
    ]
    own = os.environ.get(cli.agent.login.config_variable)
    files = files or [trust.file.replace("{config}", own) if own else trust.default_file]
    if any(trust.is_trusted(_read_text(os.path.expanduser(file)), repo) for file in files):
        return None
    return (
        f"{cli.agent.title} does not trust {repo}, so it ignores the commands that {trust.rules} allows there: "
        f"{trust.remedy}, or allow them here: permissions.allow (`holdfast help permissions`)"
    )


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4 << 20)
    except OSError:
        return ""
