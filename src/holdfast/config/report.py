"""A report about the settings in effect for a directory, for `config show`, `config check` and `doctor`.

Unlike `load`, `survey` never fails: mistakes and withheld values are part of the report.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import HoldfastError
from holdfast.config.alert_tracker_settings import is_unprotected
from holdfast.config.env_variables import strangers
from holdfast.config.layers import (
    Config,
    find_missing_workers,
    list_problems,
    merge_layers,
    read_layers,
    withhold_looser,
    withhold_schedules,
    withhold_untrusted,
)
from holdfast.config.per_agent import AGENTS
from holdfast.config.problems import SettingProblem
from holdfast.config.read_file import Layer, read_settings_file, repo_file_path
from holdfast.config.tables.accounts import holds_secrets
from holdfast.config.trust_rules import NotApplied
from holdfast.config.values import meant, quote_wrong_value
from holdfast.secrets.references import SecretMissing, look_up_secret


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingsReport:
    """The files, values, mistakes and warnings of the settings in effect."""

    files: tuple[Layer, ...]  # the user's file, then the repository's file if there is one
    config: Config  # the settings without the values that have mistakes
    problems: tuple[SettingProblem, ...]
    withheld: tuple[str, ...]  # keys of the repository's file that need trust and are not trusted
    strangers: dict[str, str]  # unknown HOLDFAST_ variable → the one that was probably meant
    warnings: tuple[str, ...]


def report_settings(repo: str | None, home: str) -> SettingsReport:
    layers = read_layers(repo)
    files = layers[: 1 if repo is None else 2]
    problems = list_problems(layers)
    withheld: list[str] = []
    unscheduled: list[str] = []
    not_applied: list[NotApplied] = []
    if repo is not None:
        try:
            withheld = withhold_untrusted(files[1], repo, home)
            unscheduled = withhold_schedules(files[1], repo, home)
            not_applied = withhold_looser(layers, repo, home)
        except HoldfastError as error:  # the trust record cannot be read: nothing of the repository's file is applied
            problems.append(SettingProblem(files[1].place, None, str(error)))
            layers[1] = Layer(files[1].place)
    problems += [problem for layer in layers if (problem := _find_unknown_agent(layer)) is not None]
    unknown, config = strangers(), merge_layers(layers, not_applied)
    nobody = find_missing_workers(config)
    if nobody is not None:
        problems.append(nobody)
    return SettingsReport(
        files=tuple(files),
        config=config,
        problems=tuple(problems),
        withheld=tuple(withheld),
        strangers=unknown,
        warnings=(
            *map(str, not_applied),
            *_warnings(files, withheld, unscheduled, unknown),
            *_of_webhook(config["notify.webhook"]),
        ),
    )


def _find_unknown_agent(layer: Layer) -> SettingProblem | None:
    """Return the mistake of a default agent that this version does not know. `add` refuses a task with that agent."""
    name = layer.values.get("agent")
    if not name or name in AGENTS:
        return None
    text = f"agent: there is no agent '{quote_wrong_value(name)}'{meant(name, AGENTS)}"
    return SettingProblem(layer.place, layer.lines.get("agent"), text)


def _of_webhook(place: str) -> Iterator[str]:
    with suppress(SecretMissing):  # `doctor` reports that
        if is_unprotected(look_up_secret(place)):
            yield "notify.webhook begins with http://, so others on the network can read the alerts. Use https://."


def _warnings(files: list[Layer], withheld: list[str], unscheduled: list[str], unknown: dict[str, str]) -> list[str]:
    found = []
    if "HOLDFAST_CONFIG" in os.environ and not files[0].exists:
        found.append(f"HOLDFAST_CONFIG names {files[0].place}, which does not exist. The defaults apply.")
    if holds_secrets(files[0].accounts) and _is_readable_by_others(files[0].place):
        found.append(
            f"{files[0].place} contains keys of accounts and can be read by others: `chmod 600` it, or write "
            '"env:NAME" or "file:PATH" instead of the keys.'
        )
    if withheld:
        found.append(
            f"{files[1].place} sets {' and '.join(withheld)} and its current content is not trusted. "
            "Look and decide: `holdfast trust`."
        )
    if unscheduled:
        many = "schedules" if len(unscheduled) > 1 else "schedule"
        found.append(
            f"{files[1].place} has the {many} {' and '.join(unscheduled)} whose current text is not trusted, so no "
            "tasks are added. Look and decide: `holdfast trust`."
        )
    found += [text for layer in files for text in _unknown_workflows(layer, files[0])]
    for name, other in unknown.items():
        if other:
            found.append(f"The variable {name} is not a setting; did you mean {other}?")
    return found


def _unknown_workflows(layer: Layer, users: Layer) -> list[str]:
    """Return warnings about schedules that would be refused when they are due, because their workflow does not exist.

    The workflows of the schedule's own repository count as existing.
    """
    asked = [schedule for schedule in layer.schedules if "workflow" in schedule.task]
    if not asked:
        return []
    from holdfast.config.tables.builtin_workflows import BUILT_IN

    found = []
    for schedule in asked:
        name = str(schedule.task["workflow"])
        own = read_settings_file(repo_file_path(schedule.repo), of_repository=True).workflows
        known = (*BUILT_IN, *users.workflows, *own)
        if name not in known:
            found.append(
                f"{schedule.place}: the schedule {schedule.name} names a workflow '{name[:60]}' that does not exist"
                f"{meant(name, known) or '.'} It would be refused."
            )
    return found


def _is_readable_by_others(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & 0o044)
    except OSError:
        return False
