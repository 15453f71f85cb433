"""Changes of tasks that are not running: `set`, and the options of a retry or a resume.

A changed prompt is also sent as a message, because otherwise it would not reach an agent whose session continues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from holdfast.api.commands import change_store, check_prompt, operator_name, refuse_unreported
from holdfast.api.format import parse_duration_option, parse_size_option, parse_timeout_option
from holdfast.base import clock
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict, UsageError
from holdfast.base.stored_json import load_stored_json
from holdfast.base.text import is_text, one_line
from holdfast.core.dispatch.spending_caps import SpendingCap
from holdfast.core.states import TaskState
from holdfast.core.tasks.changes import AgentOfTask, TaskChange
from holdfast.core.tasks.messages import find_builder

if TYPE_CHECKING:
    from holdfast.api.queries import Queries
    from holdfast.store.port.transaction import Transaction

PRESERVE = {"always": (True, None), "on-failure": (False, True), "never": (False, False)}
BIGGEST = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The change that a person wants, before the agent is looked up in the settings."""

    change: TaskChange = field(default_factory=TaskChange)
    agent: str | None = None
    model: str | None = None  # empty: that of the settings
    account: str | None = None  # empty: any
    permission: str | None = None  # the commands that `permissions.allow` allows now come with it
    max_turns: int | None = None  # 0: no limit

    @property
    def names_agent(self) -> bool:
        return any(getattr(self, name.replace("-", "_")) is not None for name in _CHOICES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """The options of a retry or a resume: a change of the task, and a text for its next run."""

    change: TaskChange = field(default_factory=TaskChange)
    words: str = ""


# -- KEY=VALUE ---------------------------------------------------------------------------------------------------------


def _whole(key: str, text: str, least: int, most: int = BIGGEST) -> int:
    try:
        value = int(text)
    except ValueError:
        raise UsageError(f"{key} takes a whole number, not '{one_line(text, 40)}'. Nothing was changed.") from None
    if not least <= value <= most:
        raise UsageError(f"{key} takes a number from {least} to {most}, not {value}. Nothing was changed.")
    return value


def _dollars(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:  # also false for NaN
        raise UsageError(f"{key} takes an amount of dollars above 0, not '{one_line(text, 40)}'. Nothing was changed.")
    return value


def _preserve(key: str, text: str) -> dict[str, Any]:
    if text not in PRESERVE:
        raise UsageError(f"{key} is one of: {', '.join(PRESERVE)}. Nothing was changed.")
    keeps, on_failure = PRESERVE[text]
    return {"keep_workspace": keeps, "preserve_on_failure": on_failure}


def _one_of(key: str, text: str, known: Sequence[str]) -> str:
    if text not in known:
        raise UsageError(f"{key} is one of: {', '.join(known)}. Nothing was changed.")
    return text


def _prompt(text: str) -> str:
    check_prompt(text)
    return text


# key → (the part of the change, its value from (key, text)). The keys are the names of options of `add`.
_Parse = Callable[[str, str], Any]
_PARTS: dict[str, tuple[str, _Parse]] = {
    "prompt": ("prompt", lambda _key, text: _prompt(text)),
    "priority": ("priority", lambda key, text: _whole(key, text, -BIGGEST)),
    "timeout": ("timeout", lambda key, text: parse_duration_option(key, text, "health.max_runtime")),
    "max-resumes": ("max_resumes", lambda key, text: _whole(key, text, 0)),
    "gate": ("gate", lambda _key, text: text.strip()),
    "tries": ("tries", lambda key, text: _whole(key, text, 1)),
    "budget-usd": ("budget.usd", _dollars),
    "budget-tokens": ("budget.tokens", lambda key, text: _whole(key, text, 1)),
    "memory": ("limits.memory", lambda key, text: parse_size_option(key, text, "limits.memory")),
    "processes": ("limits.processes", lambda key, text: _whole(key, text, 1)),
    "cpu-weight": ("limits.cpu_weight", lambda key, text: _whole(key, text, 1, 10000)),
    "max-output": ("limits.output", lambda key, text: parse_size_option(key, text, "limits.output")),
    "stuck-after": ("health.stuck_after", lambda key, text: parse_timeout_option(key, text, "health.stuck_after")),
    "startup-timeout": (
        "health.startup_timeout",
        lambda key, text: parse_timeout_option(key, text, "health.startup_timeout"),
    ),
    "on-stuck": ("health.on_stuck", lambda key, text: _one_of(key, text, ("kill", "notify"))),
}
# how the agent runs; its options are looked up in the settings again
_CHOICES: dict[str, _Parse] = {
    **dict.fromkeys(("agent", "model", "account"), lambda _key, text: text),
    "permission": lambda key, text: _one_of(key, text, ("read", "edit", "full")),
    "max-turns": lambda key, text: 0 if text in ("", "none") else _whole(key, text, 1),
}
KEYS = (*_PARTS, *_CHOICES, "preserve", "label.NAME")
_MAY_BE_EMPTY = ("budget", "limits")  # an empty value: no limit
# names of settings, which messages use
_SETTINGS = {
    "resume.max-attempts": "max-resumes",
    "health.max-runtime": "timeout",
    "gate.command": "gate",
    "gate.tries": "tries",
    "budget.task-usd": "budget-usd",
    "budget.task-tokens": "budget-tokens",
}


def parse_changes(pairs: Sequence[str]) -> Wanted:
    """Return what `KEY=VALUE` words change. Raise UsageError for a key or a value that is not known."""
    if not pairs:
        raise UsageError(f"Name the change: `holdfast set ID KEY=VALUE`. The keys: {', '.join(KEYS)}.")
    wanted = Wanted()
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"A change is written KEY=VALUE, not '{one_line(pair, 60)}'. Nothing was changed.")
        if not is_text(pair):
            raise UsageError("A change is not text (it has NUL or undecodable bytes). Nothing was changed.")
        wanted = _with_pair(wanted, name, text)
    return wanted


def _with_pair(wanted: Wanted, name: str, text: str) -> Wanted:
    if name.startswith("label."):
        return _with_part(wanted, "labels", name.removeprefix("label."), text or None)
    key = name.replace("_", "-")
    key = _SETTINGS.get(key, key)
    if key in _CHOICES:
        choice: dict[str, Any] = {key.replace("-", "_"): _CHOICES[key](key, text)}
        return replace(wanted, **choice)
    if key == "preserve":
        return replace(wanted, change=replace(wanted.change, **_preserve(key, text)))
    if key not in _PARTS:
        raise UsageError(_no_such_key(name))
    part, parse = _PARTS[key]
    group, _, item = part.partition(".")
    is_none = group in _MAY_BE_EMPTY and text in ("", "none")
    value = None if is_none else parse(key, text)
    return _with_part(wanted, group, item, value)


def _with_part(wanted: Wanted, group: str, item: str, value: object) -> Wanted:
    whole = {**getattr(wanted.change, group), item: value} if item else value
    part: dict[str, Any] = {group: whole}
    return replace(wanted, change=replace(wanted.change, **part))


def _no_such_key(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name.replace("_", "-"), KEYS, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return f"There is no key '{one_line(name, 40)}'.{hint} The keys: {', '.join(KEYS)}. Nothing was changed."


# -- the agent ---------------------------------------------------------------------------------------------------------


def resolve_change(queries: Queries, task_id: str, wanted: Wanted) -> TaskChange:
    """Return the change of one task, with its agent looked up in the settings as `add` does."""
    if not wanted.names_agent:
        return wanted.change
    row = queries.state(task_id)
    kept = load_stored_json(row["settings"])
    if kept.get("workflow"):
        return replace(wanted.change, agent=AgentOfTask(agent="", options={}, provider=""))  # refused for what it is
    return replace(wanted.change, agent=_look_up_agent(queries.home, dict(row), kept, wanted))


def _look_up_agent(home: str, row: dict[str, Any], kept: dict[str, Any], wanted: Wanted) -> AgentOfTask:
    from holdfast import config
    from holdfast.agents.registry import AGENTS
    from holdfast.intake.new_task import NewTask, resolve_agent, resolve_provider

    agent, was = wanted.agent or row["agent"], kept["agent_options"]
    is_same = agent == row["agent"]
    flags = {"agent": agent, "workspace.strategy": row["strategy"]}
    settings = config.load(repo=row["repo"], flags=flags, home=home)
    new = NewTask(
        prompt=row["prompt"],
        directory=row["repo"],
        agent=agent,
        command=tuple(was.get("argv", ())) if is_same else (),
        scenario=was.get("steps") if is_same else None,
        model=(was.get("model") if is_same else None) if wanted.model is None else wanted.model,
        account=((was.get("account") if is_same else None) if wanted.account is None else wanted.account) or None,
        permission=wanted.permission or was.get("permission"),
        max_turns=(was.get("max_turns") if is_same else None) if wanted.max_turns is None else wanted.max_turns or None,
    )
    try:
        name, options = resolve_agent(new, settings)
    except UsageError as error:
        raise UsageError(str(error).replace("Nothing was queued.", "").strip() + " Nothing was changed.") from error
    if wanted.model and options.get("model") != wanted.model:
        raise UsageError(f"The agent '{name}' takes no model. Nothing was changed.")
    if wanted.permission and options.get("permission") != wanted.permission:
        raise UsageError(f"The agent '{name}' takes no permission: it may do what you may do. Nothing was changed.")
    return AgentOfTask(
        agent=name,
        options=options,
        provider=resolve_provider(name, options, settings),
        quiet=AGENTS[name].longest_quiet_answer,
        was=row["agent"],
    )


# -- in a transaction --------------------------------------------------------------------------------------------------


def change_in(tx: Transaction, task_id: str, change: TaskChange, by: str) -> None:
    """Change a task in the transaction `tx`."""
    before = tx.tasks.update(task_id, change, by, clock.now())
    if change.budget:
        refuse_unreported(
            tx.tasks.get(task_id), SpendingCap(usd=change.budget.get("usd"), tokens=change.budget.get("tokens"))
        )
    if change.prompt is not None and before.state is TaskState.COMPLETED:
        raise Conflict(
            f"Task {task_id} is completed, so a changed prompt would reach no agent; nothing was changed. To tell it "
            f"what to do next: `holdfast send {task_id} TEXT`."
        )
    if change.prompt is not None and before.progress.awaits:
        raise Conflict(
            f"Task {task_id} waits for your approval; nothing was changed. Ask for changes: "
            f"`holdfast approve {task_id} --changes TEXT`."
        )


def tell_in(tx: Transaction, task_id: str, prompt: str | None, words: str, by: str) -> None:
    """Record the changed prompt or the words as a message for the next run, in the transaction `tx`.

    A task that no agent has seen needs no message: its first run reads the prompt. A workflow that only reads needs
    none either: each of its stages starts a new session, which reads the prompt.
    """
    if words:
        tx.messages.attach(tx.tasks.get(task_id), words, by, clock.now())
    elif prompt is not None and tx.messages.has_begun(task_id):
        task = tx.tasks.get(task_id)
        if not task.spec.stages or find_builder(task.spec.stages) is not None:
            tx.messages.attach(task, prompt, by, clock.now())


def set_in(tx: Transaction, task_id: str, change: TaskChange, by: str) -> None:
    """Change a task, and send a changed prompt to its next run, in the transaction `tx`."""
    change_in(tx, task_id, change, by)
    tell_in(tx, task_id, change.prompt, "", by)


def set_task(queries: Queries, task_id: str, wanted: Wanted) -> None:
    """Change one task that is not running. If the task is running, raise Conflict with the command to type instead."""
    change = resolve_change(queries, task_id, wanted)
    by = operator_name()
    change_store(queries.home, lambda tx: set_in(tx, task_id, change, by))


def read_given(queries: Queries, task_id: str, wanted: Wanted, words: str) -> Given | None:
    """Return the options of a retry or a resume of one task. None: no option was given."""
    if words:
        check_prompt(words)
    change = resolve_change(queries, task_id, wanted)
    return Given(change=change, words=words) if change or words else None
