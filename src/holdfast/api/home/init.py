"""The set-up of a repository: the answers of `init`, where each is written, and trust."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from holdfast.api.commands import operator_name
from holdfast.base import clock, faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Refused, UsageError
from holdfast.config import SETTINGS, ConfigError, format_value, trust, user_file_path, variable_name
from holdfast.config.edit_file import write_setting
from holdfast.config.layers import merge_layers, read_layers
from holdfast.config.read_file import Layer, read_settings_file
from holdfast.config.tables.schedules import trust_lines, trust_values
from holdfast.config.trust_rules import NotApplied, drop_taken_workflows, list_looser
from holdfast.config.values import format_toml
from holdfast.core.schedules.schedule import Schedule
from holdfast.intake import repository

if TYPE_CHECKING:
    from holdfast.api.home.models import TrustRow

AGENT, PERMISSIONS = "agent", "permissions.mode"  # of the user's own file
GATE, SETUP, ALLOW = "gate.command", "workspace.setup", "permissions.allow"  # of the repository's file


@dataclass(frozen=True, slots=True)
class TrustQuestion:
    """The values of a repository's file that need trust. The answer is about exactly these values."""

    repo: str
    file: str
    exists: bool
    values: dict[str, Any]
    is_trusted: bool
    schedules: tuple[Schedule, ...] = ()
    looser: tuple[NotApplied, ...] = ()  # values that are less strict than the user's own

    @property
    def lines(self) -> list[str]:
        values = (
            f"{key} = {format_value(key, value) if key in SETTINGS else format_toml(value)}"
            for key, value in self.values.items()
        )
        looser = (f"{each.key} = {each.asked}{f'  (yours: {each.kept})' if each.kept else ''}" for each in self.looser)
        return [*values, *looser, *trust_lines(self.schedules)]

    @property
    def settings(self) -> dict[str, Any]:
        return {each.key: each.value for each in self.looser}


def question(home: str, directory: str) -> TrustQuestion:
    """Read the repository's file. Raises ConfigError if the file has mistakes."""
    top, _common = repository.locate_repository(directory)
    layers = read_layers(top)
    layer = layers[1]
    if layer.problems:
        raise ConfigError(layer.problems)
    values = layer.needs_trust
    is_trusted = (not values or trust.is_trusted(home, top, values)) and trust.are_schedules_trusted(
        home, top, trust_values(layer.schedules)
    )
    looser = tuple(_list_looser(layers))
    is_trusted = is_trusted and trust.are_settings_trusted(home, top, {each.key: each.value for each in looser})
    return TrustQuestion(top, layer.place, layer.exists, values, is_trusted, layer.schedules, looser)


def _list_looser(layers: list[Layer]) -> list[NotApplied]:
    users = merge_layers([layers[0], *layers[2:]])
    drop_taken_workflows(layers[1], users)
    return list_looser(layers[1], users)


def give_trust(home: str, asked: TrustQuestion) -> None:
    schedules = trust_values(asked.schedules)
    trust.record_trust(
        home,
        asked.repo,
        asked.values,
        by=operator_name(),
        at=clock.now().wall,
        schedules=schedules,
        settings=asked.settings,
    )


def revoke_trust(home: str, directory: str) -> tuple[str, bool]:
    """Revoke trust, even of a checkout that is gone. Return its path, and True if there was any trust."""
    path = os.path.realpath(directory)
    with contextlib.suppress(UsageError):
        path = repository.locate_repository(directory)[0]
    return path, trust.revoke_trust(home, path)


def list_trust(home: str) -> list[TrustRow]:
    """Return every record of trust, and whether the file still has the trusted values."""
    rows: list[TrustRow] = []
    for path, given in sorted(trust.read_trust_records(home).items()):
        layers = read_layers(path)
        layer = layers[1]
        values, schedules = layer.needs_trust, trust_values(layer.schedules)
        looser = {each.key: each.value for each in _list_looser(layers)}
        is_same = (
            given.get("sha256") == trust.digest_values(values)
            and (not schedules or given.get("schedules") == trust.digest_values(schedules))
            and trust.are_settings_trusted(home, path, looser)
        )
        state = "trusted" if is_same else "changed since" if values or schedules or looser else "unused"
        rows.append(
            {"repo": path, "state": state, "keys": given.get("keys"), "by": given.get("by"), "at": given.get("at")},
        )
    return rows


HEAD = """\
# Settings of Holdfast for this repository: `holdfast help configure` explains them, `holdfast config show` lists all.
# Keys that run commands take effect only while this checkout is trusted. After a change: holdfast trust
# gate.command: a task counts as done only if this passes. workspace.setup: prepares each new workspace.
# permissions.allow: commands that agents may run without asking.

"""
TAIL = """\
# gate.tries = 3  # how often an agent may try until the gate passes
# workspace.copy = [".env"]  # files that git does not track, copied into new workspaces
"""


def write_repo_values(home: str, asked: TrustQuestion, values: dict[str, Any]) -> list[str]:
    """Write values that a person chose into the repository's file, trust them, and return a line about each.

    `asked` is the file as it was read before. Raise Refused, and change nothing, if the file has untrusted values:
    trust in the new values would include them.
    """
    if os.path.islink(asked.file):
        raise Refused(f"{asked.file} is a symbolic link, so it was not changed. Edit the file that it points to.")
    if not asked.is_trusted:
        raise Refused(
            f"{asked.file} was not changed, because its current values are not trusted. "
            "Look and decide: `holdfast trust`. Then repeat this command."
        )
    lines = []
    if asked.exists:
        for key, value in values.items():
            if write_setting(asked.file, key, value, of_repository=True):
                before = f" (before: {format_value(key, asked.values[key])})" if key in asked.values else ""
                lines.append(f"Set {key} in {asked.file}: {format_value(key, value)}{before}.")
    else:
        rows = [f"{key} = {format_value(key, value)}\n" for key, value in values.items()]
        _create(asked.file, "".join([HEAD, *rows, TAIL]))
        lines += [f"Wrote {asked.file}, and trusted it for this checkout:", *(f"  {row.rstrip()}" for row in rows)]
    after = question(home, asked.repo)
    if after.values == asked.values | values:  # nobody changed the file meanwhile
        give_trust(home, after)
    return lines


def _create(path: str, text: str) -> None:
    try:
        faults.effect("init.file")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> Refused:
    return Refused(
        f"The repository is registered, but {path} could not be written: {error.strerror}. Holdfast works without this "
        "file; `holdfast init --no-file` writes none."
    )


# -- what `init` asks once, and records in the user's own file ---------------------------------------------------------


def read_choice(key: str) -> str | None:
    """Return the user's choice, from the file or a variable. None: the user has not chosen."""
    if variable_name(key) in os.environ:
        return os.environ[variable_name(key)]
    value = read_settings_file(user_file_path(), of_repository=False).values.get(key)
    return None if value in (None, "") else str(value)


def record_choice(key: str, value: str) -> str:
    """Record the choice, and return the path of the file that has it now."""
    write_setting(user_file_path(), key, value)
    return user_file_path()
