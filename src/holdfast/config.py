"""Settings: built-in defaults < user's config.toml < repository's holdfast.toml < environment < flags.

One table, `SETTINGS`, names every key with its default, its parser and its meaning; the reference page is generated
from it. An unknown key or a bad value is an error that says where it stands and what was probably meant.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import UsageError
from holdfast.units import parse_duration


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ValueError(f"'{value}' is neither true nor false")


def _count(least: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        word = str(value)
        if isinstance(value, bool) or len(word) > 9 or not word.isdecimal() or int(word) < least:
            raise ValueError(f"'{word[:40]}' is not a whole number of at least {least}")
        return int(word)

    return parse


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return value
    raise ValueError(f"'{value}' is not a list of texts")


def _pairs(value: object) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values()):
        return value
    raise ValueError(f"'{value}' is not a table of texts")


def _one_of(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError(f"'{value}' is not one of {', '.join(choices)}")
        return str(value)

    return parse


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: what it is when nobody sets it, how it is read, what it means."""

    default: Any
    parse: Callable[[Any], Any]
    meaning: str
    user_only: str = ""  # why it is not taken from a repository's file, if it is not


DANGEROUS = "could run commands or show secrets"
OF_THE_SUPERVISOR = "is a setting of the supervisor, not of a task"
STRATEGIES = ("worktree", "directory", "directory:copy", "none")

SETTINGS: dict[str, Setting] = {
    "agents": Setting(4, _count(1), "How many agents run at once.", user_only=OF_THE_SUPERVISOR),
    "agent": Setting("", str, "The agent of tasks that name none."),
    "command.argv": Setting([], _words, "The command that the `command` agent runs.", user_only=DANGEROUS),
    "workspace.strategy": Setting("worktree", _one_of(*STRATEGIES), "Where agents work."),
    "workspace.cleanup_on_complete": Setting(True, _boolean, "Clean the workspace of a completed task."),
    "workspace.preserve_on_failure": Setting(False, _boolean, "Keep the workspace of a failed task."),
    "workspace.worktree.preserve_on_failure": Setting(None, _boolean, "The same, for worktrees only."),
    "workspace.directory.preserve_on_failure": Setting(None, _boolean, "The same, for directories only."),
    "workspace.commit_leftovers": Setting(
        "all",
        _one_of("all", "tracked", "none"),
        "What a successful agent left uncommitted goes to its branch.",
    ),
    "health.max_runtime": Setting(3600.0, parse_duration, "A run is ended after this long."),
    "health.grace": Setting(5.0, parse_duration, "How long a whole tree may take to end after TERM."),
    "health.orphan_grace": Setting(
        120.0, parse_duration, "A keeper without a supervisor ends its agent after this long."
    ),
    "resume.max_attempts": Setting(3, _count(0), "How often a paused task is resumed; 0 forbids it."),
    "resume.default_hold": Setting(
        300.0, parse_duration, "How long a limit without a known reset time pauses a task.", user_only=OF_THE_SUPERVISOR
    ),
    "crash.max_in_window": Setting(3, _count(1), "The crash that stops a task.", user_only=OF_THE_SUPERVISOR),
    "crash.window": Setting(
        600.0, parse_duration, "The sliding window in which crashes are counted.", user_only=OF_THE_SUPERVISOR
    ),
    "retry.max": Setting(
        3, _count(0), "How often a timed-out or stuck task is tried again.", user_only=OF_THE_SUPERVISOR
    ),
    "lost.max": Setting(
        5, _count(0), "How often in a row a task may lose its host or keeper.", user_only=OF_THE_SUPERVISOR
    ),
    "runs.max": Setting(12, _count(1), "Runs per task, so that budgets cannot multiply.", user_only=OF_THE_SUPERVISOR),
    "env.pass": Setting([], _words, "More environment variables that agents may see (patterns).", user_only=DANGEROUS),
    "env.set": Setting({}, _pairs, "Environment variables set for agents.", user_only=DANGEROUS),
}


class Config:
    """Resolved settings, and where each came from."""

    def __init__(self, values: Mapping[str, Any], origins: Mapping[str, str]) -> None:
        self._values = dict(values)
        self.origins = dict(origins)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]


def user_file() -> str:
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.environ.get("HOLDFAST_CONFIG") or os.path.join(folder, "holdfast", "config.toml")


def load(repo: str | None = None, flags: Mapping[str, object] | None = None) -> Config:
    """All layers. `flags` are given values by key; None means not given."""
    values = {key: setting.default for key, setting in SETTINGS.items()}
    origins = dict.fromkeys(SETTINGS, "default")
    layers: list[tuple[str, Mapping[str, object], bool]] = [(user_file(), _read(user_file()), True)]
    if repo is not None:
        repo_file = os.path.join(repo, "holdfast.toml")
        layers.append((repo_file, _read(repo_file), False))
    layers.append(("environment", _from_environment(), True))
    layers.append(("flag", {k: v for k, v in (flags or {}).items() if v is not None}, True))
    for origin, layer, trusted in layers:
        for key, value in layer.items():
            values[key] = _parse(key, value, origin, trusted)
            origins[key] = origin
    return Config(values, origins)


def _parse(key: str, value: object, origin: str, trusted: bool) -> object:
    setting = SETTINGS.get(key)
    if setting is None:
        close = difflib.get_close_matches(key, SETTINGS, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise UsageError(f"{origin}: there is no setting '{key}'{hint}")
    if setting.user_only and not trusted:
        raise UsageError(
            f"{origin}: '{key}' {setting.user_only}, so it is not taken from a repository's file. "
            f"Put it into {user_file()}."
        )
    try:
        return setting.parse(value)
    except ValueError as error:
        raise UsageError(f"{origin}: {key}: {error}") from error


def _read(path: str) -> dict[str, object]:
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
        return _flatten(document)
    except FileNotFoundError:
        return {}
    except RecursionError as error:
        raise UsageError(f"The config file {path} cannot be read: it is nested too deeply") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"The config file {path} cannot be read: {error}") from error


def _flatten(document: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in document.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in SETTINGS:
            flat.update(_flatten(value, f"{key}."))
        else:
            flat[key] = value
    return flat


def _from_environment() -> dict[str, object]:
    """HOLDFAST_WORKSPACE_STRATEGY=none sets workspace.strategy."""
    names = {f"HOLDFAST_{key.replace('.', '_').upper()}": key for key in SETTINGS}
    return {key: os.environ[name] for name, key in names.items() if name in os.environ}
