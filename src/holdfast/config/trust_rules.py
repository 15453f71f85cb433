"""The rule for a repository's file that is not trusted: it may only be stricter than the user's own settings.

Each setting declares in the table of settings what an untrusted file may do with it (`Setting.untrusted`): nothing, or
change its value in one direction. Every other value is not applied: the user's own value stays, and a message says so.
Values that could run commands or show secrets are refused before that (config/layers.py).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

from holdfast.base.dataclass import dataclass
from holdfast.config.per_agent import full_key
from holdfast.config.problems import format_place
from holdfast.config.settings import SETTINGS, Setting, format_value
from holdfast.config.values import DOWN, UP, OneOf, format_toml

if TYPE_CHECKING:
    from holdfast.config.layers import Config
    from holdfast.config.read_file import Layer
    from holdfast.core.workflows.draft import AgentChoice, StageDraft, WorkflowDraft

WORKFLOW = "workflow"


@dataclass(frozen=True, kw_only=True, slots=True)
class NotApplied:
    """One value of a repository's file that is not applied."""

    key: str  # full key, such as per_agent.claude.health.grace
    place: str  # file and line
    value: Any
    asked: str  # the value as TOML
    kept: str  # the user's own value as TOML; empty for a workflow
    repo: str = ""
    is_taken: bool = False  # a workflow whose name is taken; trust does not change that

    @property
    def workflow(self) -> str:
        """Return the name of the workflow that the value belongs to, or an empty text."""
        return self.key.split(".")[1] if self.key.startswith(f"{WORKFLOW}.") else ""

    def __str__(self) -> str:
        if self.is_taken:
            return (
                f"{self.place}: the workflow '{self.workflow}' of the repository is not used: {self.kept} has this "
                "name and is kept. Give the repository's workflow another name."
            )
        stays = f"your {self.kept} stays" if self.kept else f"so the workflow '{self.workflow}' is not used"
        return (
            f"{self.place}: {self.key} = {self.asked} is not applied, because this value is not trusted: "
            f"{stays}. Look and decide: `holdfast trust{f' {shlex.quote(self.repo)}' if self.repo else ''}`."
        )


def is_stricter(setting: Setting, asked: Any, own: Any) -> bool:
    """True if a file that is not trusted may replace the user's own value by the asked one."""
    if asked == own:
        return True
    if setting.untrusted == DOWN:
        return _rank(setting, asked) <= _rank(setting, own)
    return setting.untrusted == UP and _rank(setting, asked) >= _rank(setting, own)


def _rank(setting: Setting, value: Any) -> float:
    if isinstance(setting.parse, OneOf):
        return setting.parse.choices.index(value)
    return math.inf if setting.no_limit is not None and value == setting.no_limit else float(value)


def list_looser(layer: Layer, users: Config, repo: str = "", decided: Set[str] = frozenset()) -> list[NotApplied]:
    """Return the values of a repository's layer that need trust because they are not stricter than the user's own.

    `decided` are keys that a later layer sets, so the repository's value does not count. Values that could run commands
    or show secrets are not part of the result, unless they are empty: an empty `gate.command` runs nothing, but it
    would remove the user's gate.
    """
    found = []
    for key, value in layer.values.items():
        setting = SETTINGS[key]
        if key in decided or (setting.needs_trust and value) or is_stricter(setting, value, users[key]):
            continue
        found.append(_not_applied(layer, key, key, value, users[key], repo))
    for agent, table in layer.overrides.items():
        own = users.for_agent(agent)
        for key, value in table.items():
            if key not in decided and not is_stricter(SETTINGS[key], value, own[key]):
                found.append(_not_applied(layer, full_key(agent, key), key, value, own[key], repo))
    for draft in layer.workflows.values():
        for full, value in _looser_values(draft, users):
            asked = format_toml(value)
            found.append(NotApplied(key=full, place=draft.place, value=value, asked=asked, kept="", repo=repo))
    return found


def _not_applied(layer: Layer, full: str, key: str, value: Any, own: Any, repo: str) -> NotApplied:
    return NotApplied(
        key=full,
        place=format_place(layer.place, layer.lines.get(full)),
        value=value,
        asked=format_value(key, value),
        kept=format_value(key, own),
        repo=repo,
    )


def _looser_values(draft: WorkflowDraft, users: Config) -> Iterator[tuple[str, Any]]:
    """Yield the values of a repository's workflow that go beyond the user's own settings or the built-in defaults."""
    for stage in draft.stages:
        place = f"{WORKFLOW}.{draft.name}.{stage.name}"
        for name, most in _most_of_stage(stage, users).items():
            value = getattr(stage, name)
            if value is not None and value > most:
                yield f"{place}.{name}", value
        yield from _chosen_agent(place, stage.chosen)
        for member in stage.members:
            yield from _chosen_agent(f"{place}.{member.name}", member.chosen)


def _most_of_stage(stage: StageDraft, users: Config) -> Mapping[str, float]:
    default = type(stage)(name="default")
    return {
        "timeout": min(config["health.max_runtime"] for config in (users, *map(users.for_agent, users.overrides))),
        "retry": users["retry.max"],
        "gate_timeout": default.gate_timeout,
        "max_turns": default.max_turns,
    }


def _chosen_agent(place: str, chosen: AgentChoice) -> Iterator[tuple[str, str]]:
    if chosen.agent:
        yield f"{place}.agent", chosen.agent
    if chosen.model:
        yield f"{place}.model", chosen.model


def drop_taken_workflows(layer: Layer, users: Config) -> list[NotApplied]:
    """Remove workflows whose name a workflow of the user or a built-in one has, even from a trusted file."""
    if not layer.workflows:
        return []
    from holdfast.config.tables.builtin_workflows import BUILT_IN

    found = []
    for name in [name for name in layer.workflows if name in users.workflows or name in BUILT_IN]:
        draft = layer.workflows.pop(name)
        owner = f"the one in {users.workflows[name].place}" if name in users.workflows else "a built-in one"
        key = f"{WORKFLOW}.{name}"
        found.append(NotApplied(key=key, place=draft.place, value=None, asked="", kept=owner, is_taken=True))
    return found


def drop_looser(layer: Layer, users: Config, looser: list[NotApplied], trusted: Set[str]) -> None:
    """Remove the values from a repository's layer, and the workflows that have such values.

    A value for all agents would also replace the user's value for one agent. So it is kept only if it is also stricter
    than that value, or trusted.
    """
    dropped = {each.key for each in looser}
    layer.values = {key: value for key, value in layer.values.items() if key not in dropped}
    layer.overrides = {
        agent: {key: value for key, value in table.items() if full_key(agent, key) not in dropped}
        for agent, table in layer.overrides.items()
    }
    workflows = {each.workflow for each in looser}
    layer.workflows = {name: draft for name, draft in layer.workflows.items() if name not in workflows}
    bounded = {key: value for key, value in layer.values.items() if key not in trusted}
    layer.outranked = {
        agent: {key for key in table if key in bounded and not is_stricter(SETTINGS[key], bounded[key], table[key])}
        for agent, table in users.overrides.items()
    }
