"""The command about settings: config show, config check, config path."""

from __future__ import annotations

import argparse
import math
import os
import sys
from dataclasses import replace
from typing import Any

from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, paint, print_json
from holdfast.config import SETTINGS, format_value, mask_secrets
from holdfast.config.problems import SettingProblem
from holdfast.config.read_file import user_file_path
from holdfast.config.report import SettingsReport, report_settings
from holdfast.config.tables.accounts import accounts_to_show
from holdfast.config.tables.schedules import schedules_to_show as schedules_to_show
from holdfast.config.tables.spending import label_caps_to_show as label_lines
from holdfast.config.tables.workers import workers_to_show as workers_to_show
from holdfast.config.values import format_toml


def configure_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=["show", "check", "path"],
        type=_name_action,
        help="show: settings in effect. check: mistakes. path: the files",
    )
    parser.add_argument("--repo", default=".", metavar="DIR", help="the settings of a task in this repository")
    parser.add_argument("--origin", action="store_true", help="show the origin of each value")
    parser.add_argument(
        "--reveal",
        action="store_true",
        help="show values that may be secret: env.set, accounts, notify.command, notify.webhook, notify.urls",
    )
    add_json_option(parser)


def _name_action(word: str) -> str:
    """Return the action. Raise UsageError with the right command for words such as `get` and `set`, which other tools
    use."""
    if word in ("get", "list", "view"):
        raise UsageError("`holdfast config show` prints the settings in effect, each with its value.")
    if word in ("set", "add", "edit", "unset"):
        path = user_file_path()
        raise UsageError(
            f"Settings are written in a file: edit {path}, then `holdfast config check` finds mistakes in it. "
            "`holdfast config path` also names the repository's file, `holdfast init` chooses agent and permissions."
        )
    return word


def run_config(arguments: argparse.Namespace) -> int:
    found = report_settings(_repository(arguments.repo), home_directory())
    if arguments.action == "show":
        return _show(found, arguments)
    if arguments.action == "check":
        return _check(found, as_json=arguments.json)
    return _paths(found, as_json=arguments.json)


def _repository(directory: str) -> str | None:
    """Return the checkout around `directory`. None: there is none, and only the user's own settings apply."""
    from holdfast.intake import repository

    try:
        return repository.locate_repository(os.path.abspath(directory))[0]
    except UsageError:
        if directory != ".":
            raise
        return None


# -- show --------------------------------------------------------------------------------------------------------------


def _show(found: SettingsReport, arguments: argparse.Namespace) -> int:
    for key in SETTINGS:
        value = found.config[key] if arguments.reveal else mask_secrets(key, found.config[key])
        _show_one(key, key, value, found.config.origins[key], arguments)
    for agent, table in found.config.overrides.items():
        for key, value in table.items():
            full = f"per_agent.{agent}.{key}"
            _show_one(full, key, value, found.config.origins[full], arguments)
    for full, value in accounts_to_show(found.config.accounts, reveal=arguments.reveal).items():
        _print(full, value, format_toml(value), found.config.origins[full.rpartition(".")[0]], arguments)
    for full, value in label_lines(found.config.label_budgets).items():
        _print(full, value, format_toml(value), found.config.origins[full.rpartition(".")[0]], arguments)
    for full, value in workers_to_show(found.config.workers).items():
        _print(full, value, format_toml(value), found.config.origins[full.rpartition(".")[0]], arguments)
    for full, value, origin in schedules_to_show(found.config.schedules):
        _print(full, value, format_toml(value), origin, arguments)
    if found.config.workflows:
        from holdfast.config.tables.workflows import workflows_to_show as workflows_to_show

        for full, value, origin in workflows_to_show(found.config.workflows):
            _print(full, value, format_toml(value), origin, arguments)
    for text in (*map(str, found.problems), *found.warnings, *_ignored(found)):
        print(clean_text(f"holdfast: {text}"), file=sys.stderr)
    return UsageError.exit_code if found.problems else 0


def _show_one(name: str, key: str, value: Any, origin: str, arguments: argparse.Namespace) -> None:
    """Print one setting. `name` is `key`, or the full name of a value that applies to a single agent."""
    written = None if value is None else format_value(key, value)
    _print(name, "forever" if value == math.inf else value, written, origin, arguments)


def _print(name: str, value: Any, written: str | None, origin: str, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json({"key": name, "value": value, "origin": origin})
        return
    line = f"{name} = {written}" if written is not None else f"# {name} is not set"
    print(clean_text(f"{line:<51} # {origin}" if arguments.origin else line))


def _ignored(found: SettingsReport) -> list[str]:
    no_guess = [name for name, meant in found.strangers.items() if not meant]
    return [f"The variable {name} is not a setting and is ignored." for name in no_guess]


# -- check -------------------------------------------------------------------------------------------------------------


def _with_messengers(found: SettingsReport) -> SettingsReport:
    """Add the addresses of `notify.urls` that apprise cannot use to the mistakes."""
    if not found.config["notify.urls"]:
        return found
    from holdfast.alerts.messenger import find_mistakes

    key = "notify.urls"
    layer = next((layer for layer in found.files if key in layer.lines), None)
    place, line = (found.config.origins[key], None) if layer is None else (layer.place, layer.lines[key])
    more = [SettingProblem(place, line, f"{key}: {text}") for text in find_mistakes(found.config[key])]
    return replace(found, problems=(*found.problems, *more))


def _check(found: SettingsReport, *, as_json: bool) -> int:
    found = _with_messengers(found)
    if as_json:
        for problem in found.problems:
            print_json({"level": "problem", "place": problem.place, "line": problem.line, "text": problem.text})
        for warning in found.warnings:
            print_json({"level": "warning", "place": None, "line": None, "text": warning})
        return UsageError.exit_code if found.problems else 0
    for problem in found.problems:
        print(f"{paint('mistake', 'red')}  {clean_text(problem)}")
    for warning in found.warnings:
        print(f"{paint('warning', 'yellow')}  {clean_text(warning)}")
    read = [layer.place for layer in found.files if layer.exists]
    if not found.problems:
        print(f"No mistakes in {' and '.join(map(clean_text, read)) or 'the environment; there is no settings file'}.")
    return UsageError.exit_code if found.problems else 0


# -- path --------------------------------------------------------------------------------------------------------------


def _paths(found: SettingsReport, *, as_json: bool) -> int:
    for layer, role in zip(found.files, ("user", "repository"), strict=False):
        if as_json:
            print_json({"path": layer.place, "role": role, "exists": layer.exists})
        else:
            state = role if layer.exists else f"{role}, not there"
            print(f"{clean_text(layer.place)}  {paint(f'({state})', 'dim')}")
    return 0
