"""Scenario files of the scripted agent: how they are read and checked. docs/scripted-agent.md is the manual."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.base.errors import UsageError
from holdfast.base.units import parse_duration

SPAWN_KINDS = ("plain", "group", "session", "daemon", "ignore-term")
REPORT_KINDS = ("progress", "checkpoint", "complete", "fail")
TOOL_WORK = ("sleep", "burn", "child")
LIMIT_KINDS = ("rate", "usage", "context", "auth", "billing", "overloaded", "network")


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a text in quotes")
    return value


def _flag(value: object) -> object:
    if value is not True:
        raise ValueError("is written `= true`")
    return value


def _code(value: object) -> object:
    if not isinstance(value, int) or not 0 <= value <= 255:
        raise ValueError("must be a number from 0 to 255")
    return value


def _tokens(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError("must be a whole number of tokens")
    return value


def _dollars(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise ValueError("must be an amount of dollars")
    return value


def _percent(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise ValueError("must be a number from 0 to 100")
    return value


def _table(
    required: Mapping[str, Callable[[object], object]], optional: Mapping[str, Callable[[object], object]]
) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError(f"must be a table with {', '.join(required)}")
        for key in value:
            if key not in required and key not in optional:
                raise ValueError(f"does not know '{key}'{_nearest(key, [*required, *optional])}")
        missing = [key for key in required if key not in value]
        if missing:
            raise ValueError(f"needs '{missing[0]}'")
        return {key: {**required, **optional}[key](entry) for key, entry in value.items()}

    return check


def _choice(*choices: str) -> Callable[[object], object]:
    def check(value: object) -> object:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return check


def _path(value: object) -> object:
    text = str(_text(value))
    if text.startswith("/") or ".." in text.split("/"):
        raise ValueError("must be a path inside the workspace")
    return text


def _any_path(value: object) -> object:
    """Check a path that may be outside the workspace. $NAME is replaced from the environment.

    Tests use such paths to hold an agent at a known point.
    """
    return os.path.expandvars(str(_text(value)))


def _either(first: Callable[[object], object], second: Callable[[object], object]) -> Callable[[object], object]:
    """Return a check for a value that is either a short form (`first`) or a table (`second`)."""

    def check(value: object) -> object:
        return second(value) if isinstance(value, dict) else first(value)

    return check


def _share(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 100:
        raise ValueError("must be a number from 1 to 100")
    return value


def _times(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("must be a whole number from 1")
    return value


ACTIONS: dict[str, Callable[[object], object]] = {
    "print": _text,
    "stderr": _text,
    "sleep": parse_duration,
    "write": _table({"path": _path, "text": _text}, {"append": _flag}),
    "remove": _path,
    "commit": _text,
    "spawn": _table({"kind": _choice(*SPAWN_KINDS)}, {"lives": parse_duration, "write": _path}),
    "ignore_term": _flag,
    "hang": _flag,
    "wait_for": _any_path,
    "touch": _any_path,
    "crash": _choice("SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM", "SIGINT"),
    "exit": _code,
    "limit": _table({"kind": _choice(*LIMIT_KINDS)}, {"for": parse_duration, "while": _any_path}),
    "near_limit": _table({"used": _percent}, {"for": parse_duration}),
    "usage": _table({}, {"input": _tokens, "output": _tokens, "cost_usd": _dollars, "total": _flag}),
    "provider": _text,
    "report": _table({"kind": _choice(*REPORT_KINDS)}, {"message": _text, "percent": _percent}),
    "heartbeat": _either(_flag, _table({"every": parse_duration, "for": parse_duration}, {})),
    "say": _text,
    "event": _text,
    "tool": _table(
        {"name": _text},
        {"for": parse_duration, "deadline": parse_duration, "work": _choice(*TOOL_WORK), "input": _text},
    ),
    "repeat": _table({"every": parse_duration}, {"say": _text, "event": _text, "times": _times}),
    "burn": _either(parse_duration, _table({"for": parse_duration}, {"percent": _share})),
    "block": _flag,
    "mute": _flag,
}


def load(path: str) -> list[dict[str, Any]]:
    """Return the steps of a scenario file (TOML, or JSON by its ending). UsageError in one line if it is not valid."""
    try:
        with open(path, "rb") as file:
            content = file.read()
        document = json.loads(content) if path.endswith(".json") else tomllib.loads(content.decode())
    except FileNotFoundError as error:
        raise UsageError(f"There is no scenario file {path}.") from error
    except RecursionError as error:
        raise UsageError(f"The scenario {path} cannot be read: it is nested too deeply") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"The scenario {path} cannot be read: {error}") from error
    return check(document, path)


def check(document: object, name: str) -> list[dict[str, Any]]:
    steps = document.get("step") if isinstance(document, dict) else None
    if not isinstance(steps, list) or not steps:
        raise UsageError(f"The scenario {name} has no steps; write at least one [[step]] table.")
    return [_check_step(step, f"{name}, step {number}") for number, step in enumerate(steps, start=1)]


def _check_step(step: object, where: str) -> dict[str, Any]:
    if not isinstance(step, dict):
        raise UsageError(f"{where}: a step is a table with one action.")
    only_run = step.get("run")
    if only_run is not None and (not isinstance(only_run, int) or only_run < 1):
        raise UsageError(f"{where}: 'run' is the number of the run that plays this step, from 1.")
    actions = [key for key in step if key != "run"]
    if len(actions) != 1:
        raise UsageError(f"{where}: a step has exactly one action, this one has {len(actions)}.")
    action = actions[0]
    if action not in ACTIONS:
        raise UsageError(f"{where}: there is no action '{action}'{_nearest(action, list(ACTIONS))}.")
    try:
        value = ACTIONS[action](step[action])
    except ValueError as error:
        raise UsageError(f"{where}: '{action}' {error}.") from error
    return {"do": action, "with": value, "run": only_run}


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
