"""The request for a new task, and the choice of its agent, options and spending cap.

`surroundings` describes the host on which an agent will run, as its CLI sees it.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from holdfast import config
from holdfast.agents.port import DEFAULT_ACCOUNT, HostFacts
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import UsageError
from holdfast.base.text import one_line
from holdfast.config.settings import CLI_AGENTS
from holdfast.core.model import Strategy, TaskSpec
from holdfast.core.task_settings import BudgetRules

if TYPE_CHECKING:  # most tasks have no workflow
    from holdfast.agents.common.cli_agent import CliAgent
    from holdfast.core.workflows.draft import WorkflowDraft


def describe_host(strategy: str, options: Mapping[str, object]) -> HostFacts:
    return HostFacts(
        is_root=os.geteuid() == 0,
        is_sandboxed=strategy == Strategy.CONTAINER or options.get("sandbox") is True,
        has_namespaces=strategy != Strategy.CONTAINER and _has_namespaces(),
    )


def _has_namespaces() -> bool:
    """Return False only if the kernel reports that processes here cannot make namespaces. Filters of containers are not
    visible to this check."""
    if _kernel_says("user/max_user_namespaces") == "0":
        return False
    return os.geteuid() == 0 or _kernel_says("kernel/unprivileged_userns_clone") != "0"


def _kernel_says(name: str) -> str:
    try:
        with open(f"/proc/sys/{name}", encoding="ascii") as file:
            return file.read(32).strip()
    except (OSError, ValueError):
        return ""


def describe_host_of(spec: TaskSpec) -> HostFacts:
    return describe_host(spec.strategy, spec.agent_options)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTask:
    """The input of `add` and `run`. A field that is None was not given, so the settings decide."""

    prompt: str
    directory: str
    agent: str | None = None
    command: Sequence[str] = ()
    scenario: Sequence[Mapping[str, Any]] | None = None
    account: str | None = None
    model: str | None = None
    permission: str | None = None  # read | edit | full
    budget_usd: float | None = None  # over all of its runs
    budget_tokens: int | None = None  # over all of its runs
    max_turns: int | None = None
    base: str | None = None
    workspace: str | None = None
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    parent: str | None = None
    after: Sequence[str] = ()
    delay: float | None = None
    timeout: float | None = None
    stuck_after: float | None = None  # inf: never
    startup_timeout: float | None = None  # inf: never
    on_stuck: str | None = None  # kill | notify
    limits: Mapping[str, int] = field(default_factory=dict)  # fields of core.task_settings.RunLimits
    max_resumes: int | None = None
    preserve_on_failure: bool | None = None
    keep_workspace: bool = False
    workflow: str | WorkflowDraft | None = None  # the name of a workflow, or the workflow itself
    gate: str | None = None  # the command that checks the work; empty: none
    tries: int | None = None  # how often the agent may try until the gate passes
    # the ref from which the workspace is made; then `base` is where the range begins that the task is about
    ref: str | None = None
    schedule: str = ""  # the schedule that adds the task; `fire_time` as in TaskSpec
    fire_time: str = ""


def resolve_agent(new: NewTask, settings: config.Config) -> tuple[str, dict[str, Any]]:
    """Return the agent's name and its options. Raise UsageError with the correction if they are not valid."""
    from holdfast.agents.registry import AGENTS  # no other command needs it

    if new.command and new.scenario is not None:
        raise UsageError("Give either a scenario or a command after `--`, not both.")
    options: dict[str, Any] = {}
    if new.command:
        name, options = new.agent or "command", {"argv": list(new.command)}
    elif new.scenario is not None:
        name, options = new.agent or "scripted", {"steps": [dict(step) for step in new.scenario]}
    else:
        name = settings["agent"]
    if not name:
        raise UsageError(
            "No agent is chosen. Name one (`--agent claude`), or give a command after `--`. `holdfast agents` lists "
            "those that you can use, `holdfast init` records one for all tasks."
            + "".join(f" {each}" for each in settings.not_applied if each.key == "agent")
        )
    if name not in AGENTS:
        raise UsageError(_no_such_agent(name, sorted(AGENTS)))
    if name == "command" and not options and settings["command.argv"]:
        options = {"argv": list(settings["command.argv"])}
    options |= _choices(new, settings, name)
    problem = AGENTS[name].problem(options, describe_host(str(settings["workspace.strategy"]), options))
    if problem is not None:
        raise UsageError(f"{problem[0].upper()}{problem[1:]}.")
    return name, options


def how_to_install(agent: CliAgent) -> str:
    install = f" with `{agent.install}`" if agent.install else ""
    return f"Install it{install}, or name its program with the setting `{agent.name}.binary`"


def with_full_path(argv: Sequence[str], settings: config.Config) -> list[str]:
    """Return the command with the full path of its program, from the PATH of the caller: the supervisor's PATH may be
    another. A program with a slash, a program in a container, and a program that is not found stay as they are."""
    words = list(argv)
    if words and words[0] and "/" not in words[0] and not _is_in_container(settings):
        found = shutil.which(words[0], path=_search_path(settings))
        words[0] = words[0] if found is None else os.path.abspath(found)
    return words


def _search_path(settings: config.Config) -> str | None:
    return settings["env.set"].get("PATH") or os.environ.get("PATH")


def _is_in_container(settings: config.Config) -> bool:
    return str(settings["workspace.strategy"]) == Strategy.CONTAINER


def refuse_missing_cli(name: str, options: Mapping[str, Any], settings: config.Config) -> None:
    """Refuse an agent whose CLI is not installed here. The error has the command that installs the CLI."""
    if name not in CLI_AGENTS:
        return
    from holdfast.agents.common.cli_agent import CliAgent
    from holdfast.agents.registry import AGENTS

    agent = AGENTS[name]
    if not isinstance(agent, CliAgent) or _is_in_container(settings):
        return
    program = str(options.get("binary") or agent.binary)
    if shutil.which(program, path=_search_path(settings)) is None:
        where = f"the setting {name}.binary names {program}" if options.get("binary") else f"`{program}` is not in PATH"
        raise UsageError(
            f"{agent.title} is not installed: {one_line(where, 200)}. {how_to_install(agent)}. Nothing was queued."
        )


def resolve_provider(agent: str, options: Mapping[str, Any], settings: config.Config) -> str:
    """Return the name of the provider that answers the agent's requests. If the account has an address of its own, the
    provider is the host of that address."""
    from holdfast.agents.registry import AGENTS

    account = settings.accounts.get(agent, {}).get(options.get("account") or DEFAULT_ACCOUNT)
    if account is not None and account.base_url:
        from urllib.parse import urlsplit

        with contextlib.suppress(ValueError):
            return urlsplit(account.base_url).netloc.rpartition("@")[2] or account.base_url
    return AGENTS[agent].provider(options)


def with_longer_silence(agent: str, settings: config.Config) -> config.Config:
    """Return the settings with a longer `health.stuck_after` for agents whose answers arrive all at once, because their
    models think in silence. A value that the user set is kept."""
    from holdfast.agents.registry import AGENTS

    key = "health.stuck_after"
    if settings.origins[key] != "default" or key in settings.overrides.get(agent, {}):
        return settings
    return settings.with_values({key: max(settings[key], AGENTS[agent].longest_quiet_answer)})


def _choices(new: NewTask, settings: config.Config, name: str) -> dict[str, Any]:
    """Return the user's choices of options for an agent's CLI, resolved now. A choice that was not made is left out."""
    from holdfast.intake.accounts import choose_named_account

    account = choose_named_account(settings, name, new.account)
    if f"{name}.binary" not in config.SETTINGS:
        if new.max_turns is not None:
            raise UsageError(
                f"The agent '{name}' cannot be given a number of turns (--max-turns); --timeout works for every agent. "
                "Nothing was queued."
            )
        return {}
    model = str(new.model or settings[f"{name}.model"])
    if model.startswith("-"):  # some CLIs would take it for an option, and a repository's file needs no trust to set it
        raise UsageError(f"'{one_line(model, 60)}' cannot be the name of a model. Nothing was queued.")
    found = {
        "binary": settings[f"{name}.binary"],
        "model": model,
        "permission": new.permission or settings["permissions.mode"],
        "allow": settings["permissions.allow"] or None,
        "args": settings[f"{name}.args"] or None,
        "max_turns": new.max_turns,
        "account": account,
        # Claude Code uses this variable
        "sandbox": settings["permissions.sandbox"] or os.environ.get("IS_SANDBOX") == "1" or None,
    }
    return {key: value for key, value in found.items() if value not in (None, "")}


def resolve_budget(new: NewTask, agent: str, settings: config.Config) -> tuple[BudgetRules, list[str]]:
    """Return the spending cap of the task, and notes about limits that cannot be enforced for its agent. A limit that
    cannot be enforced is refused if an option asked for it, and only noted if it is a setting."""
    from holdfast.agents.registry import AGENTS

    if new.budget_usd is not None and not 0 < new.budget_usd < math.inf:  # also false for NaN
        raise UsageError("A budget (--budget-usd) is an amount of dollars above 0. Nothing was queued.")
    tells = AGENTS[agent].capabilities
    usd = new.budget_usd or settings["budget.task_usd"] or None
    tokens = new.budget_tokens or settings["budget.task_tokens"] or None
    if new.budget_usd is not None and not tells.cost:
        more = "--budget-tokens works for this agent" if tells.tokens else "--timeout works for every agent"
        raise UsageError(
            f"The agent '{agent}' does not report its cost, so it cannot have a money budget (--budget-usd). {more}. "
            "Nothing was queued."
        )
    if new.budget_tokens is not None and not tells.tokens:
        raise UsageError(
            f"The agent '{agent}' does not report its tokens, so it cannot have a token budget (--budget-tokens). "
            "--timeout works for every agent. Nothing was queued."
        )
    notes = []
    if usd is not None and not tells.cost:
        notes.append(f"The agent '{agent}' does not report its cost: `budget.task_usd` does not apply to this task.")
    if tokens is not None and not tells.tokens:
        notes.append(
            f"The agent '{agent}' does not report its tokens: `budget.task_tokens` does not apply to this task."
        )
    return BudgetRules(usd=usd if tells.cost else None, tokens=tokens if tells.tokens else None), notes


def _no_such_agent(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return (
        f"There is no agent '{name}'.{hint} This version knows: {', '.join(known)}; "
        "any other program is a command: put it after `--`."
    )
