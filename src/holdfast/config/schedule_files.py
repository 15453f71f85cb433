"""The schedules of all files: the user's own file, and the file of every known repository."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import HoldfastError
from holdfast.config.read_file import Layer, may_contain, read_settings_file, repo_file_path, user_file_path
from holdfast.config.tables.schedules import SECTION, trust_values

if TYPE_CHECKING:
    from holdfast.core.schedules.schedule import Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleFiles:
    """Schedules, problems and layers by file.

    A file with a problem keeps its earlier schedules, unless the file is in `schedules` too. It is in both if trust was
    never given or was revoked: then the file has no schedules. The file of a repository that does not exist (such as an
    unmounted disk) is in neither mapping, and also keeps its earlier schedules.
    """

    schedules: Mapping[str, tuple[Schedule, ...]]
    problems: Mapping[str, str]
    layers: Mapping[str, Layer] = field(default_factory=dict)  # only files without any mistake
    absent: Sequence[str] = ()  # files of repositories that do not exist


def fingerprint_files(home: str, repos: Sequence[str]) -> object:
    """Return a value that differs after every change of one of the files or of the trust record."""
    return tuple(
        _stamp(path) for path in (user_file_path(), os.path.join(home, "trust.json"), *map(repo_file_path, repos))
    )


def read_schedule_files(home: str, repos: Sequence[str]) -> ScheduleFiles:
    schedules: dict[str, tuple[Schedule, ...]] = {}
    problems: dict[str, str] = {}
    layers: dict[str, Layer] = {}
    absent: list[str] = []
    users = read_settings_file(user_file_path(), of_repository=False)
    _sort_layer(users, None, home, schedules, problems, layers)
    taken = {schedule.key for schedule in users.schedules}
    for repo in repos:
        if not os.path.isdir(repo):
            absent.append(repo_file_path(repo))
            continue
        layer = read_settings_file(repo_file_path(repo), of_repository=True)
        twice = next((schedule for schedule in layer.schedules if schedule.key in taken), None)
        if twice is not None and not layer.problems:
            problems[layer.place] = (
                f"{twice.place}: there is a schedule '{twice.name}' for this repository in {users.place} already; give "
                "one of them another name"
            )
            layers[layer.place] = layer
        else:
            _sort_layer(layer, repo, home, schedules, problems, layers)
    return ScheduleFiles(schedules=schedules, problems=problems, layers=layers, absent=absent)


def _sort_layer(
    layer: Layer,
    repo: str | None,
    home: str,
    schedules: dict[str, tuple[Schedule, ...]],
    problems: dict[str, str],
    layers: dict[str, Layer],
) -> None:
    if layer.problems:
        if may_contain(layer.place, SECTION):
            problems[layer.place] = _format_problems(layer)
        else:
            schedules[layer.place] = ()  # none of its mistakes can be about schedules
        return
    layers[layer.place] = layer
    if repo is not None and layer.schedules:
        try:
            is_trusted, was_trusted = _trust(home, repo, layer)
        except HoldfastError as error:
            problems[layer.place] = str(error)
            return
        if not is_trusted:
            problems[layer.place] = _untrusted(layer, repo)
            if not was_trusted:
                schedules[layer.place] = ()
            return
    schedules[layer.place] = layer.schedules


def _trust(home: str, repo: str, layer: Layer) -> tuple[bool, bool]:
    """Return whether the current schedules of a file are trusted, and whether any schedules of it ever were."""
    from holdfast.config import trust

    record = trust.read_trust_records(home).get(os.path.realpath(repo))
    return trust.are_schedules_trusted(home, repo, trust_values(layer.schedules)), "schedules" in (record or {})


def _format_problems(layer: Layer) -> str:
    more = len(layer.problems) - 1
    rest = f" (and {more} more: `holdfast config check` lists all)" if more else ""
    return f"{layer.problems[0]}{rest}"


def _untrusted(layer: Layer, repo: str) -> str:
    names = " and ".join(schedule.name for schedule in layer.schedules[:3])
    more = f" and {len(layer.schedules) - 3} more" if len(layer.schedules) > 3 else ""
    many = "schedules" if len(layer.schedules) > 1 else "schedule"
    return (
        f"{layer.schedules[0].place}: the {many} {names}{more} would start agents by the clock, but the "
        f"current text is not trusted. Look and decide: `holdfast trust {shlex.quote(repo)}`"
    )


def _stamp(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
