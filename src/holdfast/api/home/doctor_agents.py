"""The doctor's findings about agent CLIs: installed, tested, logged in, permitted to start, and the fix for each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from holdfast import config
from holdfast.api.home.agent_clis import AgentCli, LoginState, find_clis, find_distrust, find_start_problem, logins
from holdfast.base.dataclass import dataclass
from holdfast.intake.new_task import how_to_install

if TYPE_CHECKING:
    from holdfast.api.home.models import AgentCliRow

# seconds for all versions: six CLIs start at once on a busy machine. Afterwards the versions are cached
PATIENCE = 15.0


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One fact that was checked. `level` is ok, note (worth knowing) or problem."""

    level: str
    what: str
    text: str
    data: Mapping[str, Any] | None = None  # for programs


def agent_findings(home: str, needed: Mapping[str, int], repos: Sequence[str] = ()) -> Iterator[DoctorFinding]:
    """Yield findings about every agent CLI. `needed`: how many unfinished tasks need each agent. A defect is a problem
    if a task needs the agent, else a note. `repos`: the checkouts that this home knows."""
    settings = config.load_valid_values()
    clis = find_clis(settings, home, PATIENCE)
    missing = [cli for cli in clis if cli.path is None]
    for cli in clis:
        if cli.path is not None:
            yield _found(cli, settings, needed.get(cli.name, 0))
            for repo in repos:
                if (distrust := find_distrust(cli, settings, repo)) is not None:
                    yield DoctorFinding("note", "agents", distrust, {"agent": cli.name, "repo": repo})
    for cli in missing:
        if cli.name in needed or cli.is_chosen:
            yield _missing(cli, needed.get(cli.name, 0))
    rest = [cli.name for cli in missing if cli.name not in needed and not cli.is_chosen]
    if len(missing) == len(clis):
        yield DoctorFinding(
            "note", "agents", "no agent CLI is in PATH; any command can be one: `holdfast run … -- CMD`"
        )
    elif rest:
        yield DoctorFinding("ok", "agents", f"not installed, but no task needs them: {', '.join(rest)}")
    mode, origin = settings["permissions.mode"], settings.origins["permissions.mode"]
    chosen = "not chosen: `holdfast init` asks" if origin == "default" else origin
    allowed = "".join(f", and `{command}`" for command in settings["permissions.allow"]) if mode == "edit" else ""
    data = {"permissions": mode, "allow": settings["permissions.allow"]}
    yield DoctorFinding("ok", "agents", f"may do without asking: {mode}{allowed} ({chosen})", data)


def _missing(cli: AgentCli, tasks: int) -> DoctorFinding:
    where = f"`{cli.name}.binary` names {cli.wanted}, which is not a program" if cli.is_chosen else "it is not in PATH"
    how = how_to_install(cli.agent)
    text = f"{cli.name}: {where}; {how[0].lower()}{how[1:]}"
    if tasks:
        text += f"; {tasks} unfinished task(s) need it"
    return DoctorFinding("problem" if tasks else "note", "agents", text, _data(cli, []))


def _found(cli: AgentCli, settings: config.Config, tasks: int) -> DoctorFinding:
    seen = logins(cli, settings)
    mode = str(settings["permissions.mode"])
    refused = find_start_problem(cli, settings, mode)
    words = [f"{cli.name} {cli.version or '(unknown version)'} in {cli.path}"]
    words += [_version_words(cli), *(_login_words(state, len(seen) > 1) for state in seen)]
    level = "ok" if cli.age == 0 and all(state.is_seen is not False for state in seen) else "note"
    if refused is not None:
        words.append(f"cannot be started with permissions.mode = {mode}: {refused}")
        level = "problem" if tasks else "note"
    return DoctorFinding(level, "agents", "; ".join(words), _data(cli, seen))


def _version_words(cli: AgentCli) -> str:
    oldest, newest = cli.agent.tested
    tested = f"tested with {newest}" if oldest == newest else f"tested with {oldest} to {newest}"
    if cli.age is None:
        return f"{tested}; check whether it starts: {cli.path} {' '.join(cli.agent.version_arguments)}"
    if cli.age < 0:
        return f"older than any tested version ({oldest}): options may be missing, so update it"
    if cli.age > 0:
        return f"newer than any tested version ({newest}): it probably works, but errors may be misread"
    return tested


def _login_words(state: LoginState, is_one_of_many: bool) -> str:
    return f"login{f' of account {state.account}' if is_one_of_many else ''}: {state.text}"


def _data(cli: AgentCli, seen: list[LoginState]) -> dict[str, Any]:
    return {
        "agent": cli.name,
        "binary": cli.wanted,
        "path": cli.path,
        "version": cli.version or None,
        "tested": list(cli.agent.tested),
        "logins": [asdict(state) for state in seen],
    }


def list_agent_clis(home: str, settings: config.Config) -> list[AgentCliRow]:
    """Return every agent CLI that this version can drive, with its login here. The default agent is marked."""
    return [_row(cli, settings) for cli in find_clis(settings, home if os.path.isdir(home) else None)]


def _row(cli: AgentCli, settings: config.Config) -> AgentCliRow:
    seen = [] if cli.path is None else logins(cli, settings)
    return {
        "agent": cli.name,
        "is_default": settings["agent"] == cli.name,
        "binary": cli.wanted,
        "path": cli.path,
        "version": cli.version or None,
        "tested": list(cli.agent.tested),
        "logins": [{"account": state.account, "is_seen": state.is_seen, "text": state.text} for state in seen],
    }
