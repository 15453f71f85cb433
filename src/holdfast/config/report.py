"""Everything there is to say about the settings that hold in a place: for `config show`, `config check` and the doctor.

Unlike `load` it never fails: mistakes and withheld values are part of the answer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from holdfast.base.errors import HoldfastError
from holdfast.config.env_variables import strangers
from holdfast.config.layers import (
    Config,
    merge,
    nobody_works,
    problems_of,
    read_layers,
    withhold_schedules,
    withhold_untrusted,
)
from holdfast.config.problems import Problem
from holdfast.config.read_file import Layer, read_file, repo_file
from holdfast.config.tables.accounts import holds_secrets


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    files: tuple[Layer, ...]  # the user's, then the repository's if there is one
    config: Config  # what would hold; values with mistakes are left out
    problems: tuple[Problem, ...]
    withheld: tuple[str, ...]  # keys of the repository's file that need trust and have none
    strangers: dict[str, str]  # variables with our prefix that are no settings, and what was probably meant
    warnings: tuple[str, ...]


def survey(repo: str | None, home: str) -> Survey:
    layers = read_layers(repo)
    files = layers[: 1 if repo is None else 2]
    problems = problems_of(layers)
    withheld: list[str] = []
    unscheduled: list[str] = []
    if repo is not None:
        try:
            withheld = withhold_untrusted(files[1], repo, home)
            unscheduled = withhold_schedules(files[1], repo, home)
        except HoldfastError as error:
            problems.append(Problem(files[1].place, None, str(error)))
    unknown, config = strangers(), merge(layers)
    nobody = nobody_works(config)
    if nobody is not None:
        problems.append(nobody)
    return Survey(
        files=tuple(files),
        config=config,
        problems=tuple(problems),
        withheld=tuple(withheld),
        strangers=unknown,
        warnings=tuple(_warnings(files, withheld, unscheduled, unknown)),
    )


def _warnings(files: list[Layer], withheld: list[str], unscheduled: list[str], unknown: dict[str, str]) -> list[str]:
    found = []
    if "HOLDFAST_CONFIG" in os.environ and not files[0].exists:
        found.append(f"HOLDFAST_CONFIG names {files[0].place}, which is not there; the defaults hold.")
    if holds_secrets(files[0].accounts) and _is_open(files[0].place):
        found.append(
            f"{files[0].place} has keys of accounts in it and can be read by others: `chmod 600` it, or write "
            '"env:NAME" or "file:PATH" in their place.'
        )
    if withheld:
        found.append(
            f"{files[1].place} sets {' and '.join(withheld)} and is not trusted as it is now; `holdfast trust` decides."
        )
    if unscheduled:
        many = "schedules" if len(unscheduled) > 1 else "schedule"
        found.append(
            f"{files[1].place} has the {many} {' and '.join(unscheduled)} and is not trusted with that as it is now, "
            "so nothing is added by the clock; `holdfast trust` decides."
        )
    found += [text for layer in files for text in _unknown_workflows(layer, files[0])]
    for name, meant in unknown.items():
        if meant:
            found.append(f"The variable {name} is no setting; did you mean {meant}?")
    return found


def _unknown_workflows(layer: Layer, users: Layer) -> list[str]:
    """Schedules that would be refused when their time comes. The workflows of the repository that each is for count."""
    asked = [schedule for schedule in layer.schedules if "workflow" in schedule.task]
    if not asked:
        return []
    from holdfast.config.tables.builtin_workflows import BUILT_IN
    from holdfast.config.values import meant

    found = []
    for schedule in asked:
        name = str(schedule.task["workflow"])
        own = read_file(repo_file(schedule.repo), of_repository=True).workflows
        known = (*BUILT_IN, *users.workflows, *own)
        if name not in known:
            found.append(
                f"{schedule.place}: the schedule {schedule.name} names a workflow '{name[:60]}' that is not there"
                f"{meant(name, known) or '.'} It would be refused."
            )
    return found


def _is_open(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & 0o044)
    except OSError:
        return False
