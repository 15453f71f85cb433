"""The merge of all layers of settings: built-in defaults < user's file < repository's file < environment < flags.

A later layer overrides an earlier one. Within one layer, the value in an agent's own table
(`[per_agent.command.health]`) wins over the plain key.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import Refused
from holdfast.config.per_agent import full_key
from holdfast.config.problems import FLAG, ConfigError, SettingProblem, format_place
from holdfast.config.read_file import Layer, read_settings_file, repo_file_path, user_file_path
from holdfast.config.settings import SETTINGS, variable_name
from holdfast.config.tables.accounts import SECTION as ACCOUNTS
from holdfast.config.tables.accounts import Accounts, AccountTable
from holdfast.config.tables.spending import PLACE as LABEL_BUDGETS
from holdfast.config.tables.spending import LabelBudgets
from holdfast.config.tables.workers import SECTION as WORKERS
from holdfast.config.tables.workers import Workers, worker_place

if TYPE_CHECKING:
    from holdfast.config.trust_rules import NotApplied
    from holdfast.core.dispatch.spending_caps import LabelCap
    from holdfast.core.schedules.schedule import Schedule
    from holdfast.core.workflows.draft import WorkflowDraft


class Config:
    """The resolved settings, and the origin of each value."""

    def __init__(
        self,
        values: Mapping[str, Any],
        origins: Mapping[str, str],
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        accounts: Mapping[str, Mapping[str, AccountTable]] | None = None,
        label_budgets: Mapping[str, LabelCap] | None = None,
        workers: Workers = (),
        schedules: tuple[Schedule, ...] = (),
        workflows: Mapping[str, WorkflowDraft] | None = None,
        not_applied: Sequence[NotApplied] = (),
    ) -> None:
        self._values = dict(values)
        self.origins = dict(origins)
        self.overrides = {agent: dict(table) for agent, table in (overrides or {}).items()}  # agent → key → value
        self.label_budgets: LabelBudgets = dict(label_budgets or {})
        self.accounts: Accounts = {agent: dict(tables) for agent, tables in (accounts or {}).items()}
        self.workers = workers
        self.schedules = schedules
        self.workflows = dict(
            workflows or {}
        )  # only those from files; built-in ones: config/tables/builtin_workflows.py
        self.not_applied = tuple(not_applied)  # values of the repository's file

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def with_values(self, values: Mapping[str, Any]) -> Config:
        """Return a copy of the settings with other values for some keys."""
        tables = self.overrides, self.accounts, self.label_budgets, self.workers, self.schedules, self.workflows
        return Config({**self._values, **values}, self.origins, *tables, self.not_applied)

    def for_agent(self, agent: str) -> Config:
        """Return a copy of the settings in which the agent's own values replace the general ones."""
        own = self.overrides.get(agent)
        return self.with_values(own) if own else self


def load(
    repo: str | None = None,
    flags: Mapping[str, object] | None = None,
    home: str | None = None,
    before: Mapping[str, Layer] | None = None,
    *,
    environment: bool = True,
    path: str | None = None,
) -> Config:
    """Read and merge all layers. Raise ConfigError if any of them has a mistake.

    `flags` maps keys to given values. None means that the flag was not given. Keys of the repository's file that could
    run commands are taken only with the trust recorded in `home`. `before`: layers from the last read without mistakes.
    They replace the layers of files that have a mistake now. `environment`: false if variables are not read. `path`:
    the user's file, if it is another file than this process would read.
    """
    layers = read_layers(repo, flags, environment=environment, path=path)
    if before:
        layers = [
            _copy_layer(before[each.place]) if each.problems and each.place in before else each for each in layers
        ]
    problems = list_problems(layers)
    if problems:
        raise ConfigError(problems)
    if repo is not None:
        untrusted = withhold_untrusted(layers[1], repo, home)
        if untrusted:
            raise Refused(
                f"{layers[1].place} sets {' and '.join(untrusted)}, which could run commands or show secrets, and its "
                "current content is not trusted. Nothing was queued. Look and decide: `holdfast trust "
                f"{shlex.quote(repo)}`."
            )
    not_applied = [] if repo is None else withhold_looser(layers, repo, home)
    config = merge_layers(layers, not_applied)
    nobody = find_missing_workers(config)
    if nobody is not None:
        raise ConfigError([nobody])
    return config


def find_missing_workers(config: Config) -> SettingProblem | None:
    """Return the mistake that only the combined layers show: `agents` is 0 and there is no worker."""
    if config["agents"] > 0 or config.workers:
        return None
    place, _, line = config.origins["agents"].rpartition(":")
    if not line.isdigit():
        place, line = config.origins["agents"], ""
    text = f"agents: '0' agents and no [[{WORKERS}]]: nothing could ever run; define a worker, or write 1 or more"
    return SettingProblem(place, int(line) if line else None, text)


def load_valid_values(path: str | None = None) -> Config:
    """Return the user's own settings without the values that have mistakes.

    Commands that only read must not fail because of a typo in the file. `path`: the user's file, if it is another file
    than this process would read.
    """
    return merge_layers(read_layers(None, schedules=False, path=path))


def read_layers(
    repo: str | None,
    flags: Mapping[str, object] | None = None,
    *,
    schedules: bool = True,
    path: str | None = None,
    environment: bool = True,
) -> list[Layer]:
    """Return the layers of the user's file, the repository's file (if any), the environment and the flags.

    Later layers win. Each layer carries its own mistakes.
    """
    layers = [read_settings_file(path or user_file_path(), of_repository=False, schedules=schedules)]
    if repo is not None:
        layers.append(read_settings_file(repo_file_path(repo), of_repository=True, schedules=schedules))
    return [*layers, *(_read_environment() if environment else ()), _read_flags(flags or {})]


def list_set_variables() -> list[str]:
    """Return the names of the environment variables that set a setting."""
    return [name for name in map(variable_name, SETTINGS) if name in os.environ]


def list_problems(layers: list[Layer]) -> list[SettingProblem]:
    return [problem for layer in layers for problem in layer.problems]


def _copy_layer(layer: Layer) -> Layer:
    """Return a copy of a remembered layer. Callers remove untrusted values from it, and the original must keep them."""
    return dataclasses.replace(layer, values=dict(layer.values), workflows=dict(layer.workflows), outranked={})


def withhold_untrusted(layer: Layer, repo: str, home: str | None) -> list[str]:
    """Remove the dangerous values from a repository's layer unless they are trusted. Return the removed keys."""
    from holdfast.base.home import home_directory
    from holdfast.config import trust

    dangerous = layer.needs_trust
    if not dangerous or trust.is_trusted(home or home_directory(), repo, dangerous):
        return []
    for key in dangerous:
        layer.values.pop(key, None)
    if layer.workflows:
        from holdfast.config.tables.workflows import workflow_values_needing_trust

        layer.workflows = {
            name: draft for name, draft in layer.workflows.items() if not workflow_values_needing_trust({name: draft})
        }
    return list(dangerous)


def withhold_looser(layers: list[Layer], repo: str, home: str | None) -> list[NotApplied]:
    """Remove every value from the repository's layer that is not stricter than the user's own, unless it is trusted.

    `layers` are those of `read_layers` with a repository. Workflows whose name the user or Holdfast already uses are
    removed in any case.
    """
    from holdfast.base.home import home_directory
    from holdfast.config import trust, trust_rules

    layer, users = layers[1], merge_layers([layers[0], *layers[2:]])
    if not (layer.values or layer.overrides or layer.workflows):
        return []
    taken = trust_rules.drop_taken_workflows(layer, users)
    decided = {key for later in layers[2:] for key in later.values}
    looser = trust_rules.list_looser(layer, users, repo, decided)
    trusted: set[str] = set()
    if looser:
        known = trust.trusted_settings(home or home_directory(), repo)
        trusted = {each.key for each in looser if known.get(each.key) == trust.digest_values({each.key: each.value})}
        looser = [each for each in looser if each.key not in trusted]
    trust_rules.drop_looser(layer, users, looser, trusted)
    return [*looser, *taken]


def withhold_schedules(layer: Layer, repo: str, home: str | None) -> list[str]:
    """Remove the schedules from a repository's layer unless they are trusted. Return the names of the removed ones.

    Schedules start agents without a person, so the file of a fresh clone must not take effect.
    """
    if not layer.schedules:
        return []
    from holdfast.base.home import home_directory
    from holdfast.config import trust
    from holdfast.config.tables.schedules import trust_values

    if trust.are_schedules_trusted(home or home_directory(), repo, trust_values(layer.schedules)):
        return []
    names = [schedule.name for schedule in layer.schedules]
    layer.schedules = ()
    return names


def merge_layers(layers: list[Layer], not_applied: Sequence[NotApplied] = ()) -> Config:
    values = {key: setting.default for key, setting in SETTINGS.items()}
    origins = dict.fromkeys(SETTINGS, "default")
    overrides: dict[str, dict[str, Any]] = {}
    accounts: Accounts = {}
    label_budgets: LabelBudgets = {}
    workers: Workers = ()
    schedules: tuple[Schedule, ...] = ()
    workflows: dict[str, WorkflowDraft] = {}
    for layer in layers:
        for key, value in layer.values.items():
            values[key] = value
            origins[key] = format_place(layer.place, layer.lines.get(key))
            for agent, table in overrides.items():
                if key not in layer.outranked.get(agent, ()):
                    table.pop(key, None)  # a per-agent value of an earlier layer: this layer wins over it
        for agent, own in layer.overrides.items():
            overrides.setdefault(agent, {}).update(own)
            for key in own:
                origins[full_key(agent, key)] = format_place(layer.place, layer.lines.get(full_key(agent, key)))
        for agent, tables in layer.accounts.items():
            accounts.setdefault(agent, {}).update(tables)
            for name in tables:
                place = f"{ACCOUNTS}.{agent}.{name}"
                origins[place] = format_place(layer.place, layer.lines.get(place))
        label_budgets |= layer.label_budgets
        for label in layer.label_budgets:
            place = f"{LABEL_BUDGETS}.{label}"
            origins[place] = format_place(layer.place, layer.lines.get(place))
        for worker in layer.workers:
            origins[f"{WORKERS}.{worker.name}"] = format_place(
                layer.place, layer.lines.get(worker_place(worker.number))
            )
        workers += layer.workers  # only the user's own file has workers
        schedules += layer.schedules
        workflows |= layer.workflows
    return Config(values, origins, overrides, accounts, label_budgets, workers, schedules, workflows, not_applied)


def _read_environment() -> list[Layer]:
    """Return one layer per variable, so that a mistake is reported with the variable's name."""
    found = []
    for key in SETTINGS:
        name = variable_name(key)
        if name in os.environ:
            layer = Layer(f"{name} in the environment")
            layer.take(key, os.environ[name])
            found.append(layer)
    return found


def _read_flags(flags: Mapping[str, object]) -> Layer:
    layer = Layer(FLAG)
    for key, value in flags.items():
        if value is not None:
            layer.take(key, value)
    return layer
