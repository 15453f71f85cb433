"""What a new task is asked to be, and which agent it gets with which options."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast import config
from holdfast.agents.port import DEFAULT_ACCOUNT
from holdfast.base.errors import UsageError
from holdfast.base.text import one_line
from holdfast.core.task_settings import BudgetRules
from holdfast.intake.agent_host import surroundings

if TYPE_CHECKING:  # most tasks have no workflow
    from holdfast.core.workflows.draft import Draft


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTask:
    """What `add` and `run` take. None: not given, so the settings decide."""

    prompt: str
    directory: str
    agent: str | None = None
    command: Sequence[str] = ()
    scenario: Sequence[Mapping[str, Any]] | None = None
    account: str | None = None
    model: str | None = None
    permission: str | None = None  # read | edit | full
    budget_usd: float | None = None  # of all its runs together
    budget_tokens: int | None = None  # likewise
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
    limits: Mapping[str, int] = field(default_factory=dict)  # of core.rules.RunLimits
    max_resumes: int | None = None
    preserve_on_failure: bool | None = None
    keep_workspace: bool = False
    workflow: str | Draft | None = None  # its name, or the workflow itself
    gate: str | None = None  # the command of its workflow's stages with `gate = true`
    ref: str | None = None  # where the workspace begins; then `base` is where the range begins that it is about
    schedule: str = ""  # that adds it; with the moment that it is for, as TaskSpec has it
    fire_time: str = ""


def agent_of(new: NewTask, settings: config.Config) -> tuple[str, dict[str, Any]]:
    """The agent's name and its options, or a refusal that says what to write."""
    from holdfast.agents.registry import AGENTS  # not needed by any other command

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
            "No agent is chosen. Name one with --agent, give a command after `--` or a rehearsal with --scenario FILE; "
            "`holdfast init` finds and records one for all tasks."
        )
    if name not in AGENTS:
        raise UsageError(_no_such_agent(name, sorted(AGENTS)))
    if name == "command" and not options and settings["command.argv"]:
        options = {"argv": settings["command.argv"]}
    options |= _choices(new, settings, name)
    problem = AGENTS[name].problem(options, surroundings(str(settings["workspace.strategy"]), options))
    if problem is not None:
        raise UsageError(f"{problem[0].upper()}{problem[1:]}.")
    return name, options


def provider_of(agent: str, options: Mapping[str, Any], settings: config.Config) -> str:
    """Who answers its requests: where its account has an address of its own, that address's host."""
    from holdfast.agents.registry import AGENTS

    account = settings.accounts.get(agent, {}).get(options.get("account") or DEFAULT_ACCOUNT)
    if account is not None and account.base_url:
        from urllib.parse import urlsplit

        with contextlib.suppress(ValueError):
            return urlsplit(account.base_url).netloc.rpartition("@")[2] or account.base_url
    return AGENTS[agent].provider(options)


def patient_with(agent: str, settings: config.Config) -> config.Config:
    """Where nobody set how long silence may last: long enough for a model that thinks, where its words come all at
    once."""
    from holdfast.agents.registry import AGENTS

    key = "health.stuck_after"
    if settings.origins[key] != "default" or key in settings.overrides.get(agent, {}):
        return settings
    return settings.but({key: max(settings[key], AGENTS[agent].quiet_answers)})


def _choices(new: NewTask, settings: config.Config, name: str) -> dict[str, Any]:
    """What the user chose for a real CLI, resolved now; a choice that was not made is left out."""
    from holdfast.intake.accounts import named_account

    account = named_account(settings, name, new.account)
    if f"{name}.binary" not in config.SETTINGS:
        if new.max_turns is not None:
            raise UsageError(
                f"The agent '{name}' cannot be given a number of turns (--max-turns); --timeout holds for every agent. "
                "Nothing was queued."
            )
        return {}
    model = str(new.model or settings[f"{name}.model"])
    if model.startswith("-"):  # some CLIs would take it for an option, and a repository's file needs no trust for it
        raise UsageError(f"'{one_line(model, 60)}' cannot be the name of a model. Nothing was queued.")
    found = {
        "binary": settings[f"{name}.binary"],
        "model": model,
        "permission": new.permission or settings["permissions.mode"],
        "max_turns": new.max_turns,
        "account": account,
        "sandbox": settings["permissions.sandbox"] or os.environ.get("IS_SANDBOX") == "1" or None,  # Claude Code's word
    }
    return {key: value for key, value in found.items() if value not in (None, "")}


def budget_of(new: NewTask, agent: str, settings: config.Config) -> tuple[BudgetRules, list[str]]:
    """What the task may use, and what of that cannot hold for its agent: refused if asked for, told if only set."""
    from holdfast.agents.registry import AGENTS

    if new.budget_usd is not None and not 0 < new.budget_usd < math.inf:  # false for what is no number, too
        raise UsageError("A budget (--budget-usd) is an amount of dollars above 0. Nothing was queued.")
    tells = AGENTS[agent].capabilities
    usd = new.budget_usd or settings["budget.task_usd"] or None
    tokens = new.budget_tokens or settings["budget.task_tokens"] or None
    if new.budget_usd is not None and not tells.cost:
        more = "--budget-tokens holds for it" if tells.tokens else "--timeout holds for every agent"
        raise UsageError(
            f"The agent '{agent}' does not tell what it costs, so it cannot be given a budget in money (--budget-usd); "
            f"{more}. Nothing was queued."
        )
    if new.budget_tokens is not None and not tells.tokens:
        raise UsageError(
            f"The agent '{agent}' does not tell its tokens, so it cannot be given a budget of them (--budget-tokens); "
            "--timeout holds for every agent. Nothing was queued."
        )
    notes = []
    if usd is not None and not tells.cost:
        notes.append(f"The agent '{agent}' does not tell what it costs: `budget.task_usd` does not hold for this task.")
    if tokens is not None and not tells.tokens:
        notes.append(f"The agent '{agent}' does not tell its tokens: `budget.task_tokens` does not hold for this task.")
    return BudgetRules(usd=usd if tells.cost else None, tokens=tokens if tells.tokens else None), notes


def _no_such_agent(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return (
        f"There is no agent '{name}'.{hint} This version knows: {', '.join(known)}; "
        "any other program is a command: put it after `--`."
    )
