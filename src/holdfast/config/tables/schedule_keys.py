"""The keys of a `[[schedule]]`: the parser and the meaning of each.

Cron expressions and time zones are checked, and mistakes are described in plain words. The modules that compute with
times are imported only if a file has a schedule, because every command reads the user's file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.base.text import is_text
from holdfast.base.units import parse_duration
from holdfast.config.per_agent import AGENTS
from holdfast.config.values import (
    OneOf,
    WholeNumber,
    meant,
    parse_boolean,
    parse_money,
    parse_nonblank_text,
    quote_wrong_value,
)

LONGEST_CRON = 200
LONGEST_ZONE = 64
_FIELDS = "minute, hour, day of month, month, day of week"
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_WANTS = {  # field → its index among six, and the values it takes
    "second": (0, "0 to 59"),
    "minute": (1, "0 to 59"),
    "hour": (2, "0 to 23"),
    "day-of-month": (3, "1 to 31, or L for the last day, in a month that has it"),
    "month": (4, "1 to 12, or JAN to DEC"),
    "day-of-week": (5, "0 to 7 (0 and 7 are Sunday), SUN to SAT, 5L for the last Friday or 1#2 for the second Monday"),
}


def parse_cron(value: object) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise ValueError('it is not text; write it in quotes, like "0 2 * * *"')
    if value.strip().lower() in _ALIASES:
        raise ValueError(f"write '{quote_wrong_value(value)}' as \"{_ALIASES[value.strip().lower()]}\"")
    if len(value) > LONGEST_CRON:
        raise ValueError(f"it has {len(value)} characters, but at most {LONGEST_CRON} are allowed")
    expression = " ".join(value.split())
    from datetime import UTC, datetime

    from cronsim import CronSim, CronSimError

    try:
        times = CronSim(expression, datetime(2001, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError(_in_words(expression, str(error))) from None
    except (ValueError, AssertionError, OverflowError):
        raise ValueError(f"'{quote_wrong_value(expression)}' cannot be read as cron: {_FIELDS}") from None
    if next(times, None) is None:
        raise ValueError(f"'{quote_wrong_value(expression)}' never happens: no date matches it")
    return expression


def _in_words(expression: str, error: str) -> str:
    parts = expression.split()
    if len(parts) not in (5, 6):
        return (
            f"'{quote_wrong_value(expression)}' has {len(parts)} field{'' if len(parts) == 1 else 's'}; "
            "five are expected "
            f"({_FIELDS}), or six with seconds first"
        )
    name = error.removeprefix("Bad ")
    if name not in _WANTS:
        return f"'{quote_wrong_value(expression)}' cannot be read as cron: {error[:1].lower()}{error[1:]}"
    index, wants = _WANTS[name]
    part = parts[index - (6 - len(parts))]
    return (
        f"its {name.replace('-', ' ')} '{quote_wrong_value(part)}' cannot be read: it is {wants}; "
        "lists (1,2), ranges (1-5) and "
        "steps (*/15) of them"
    )


def parse_time_zone(value: object) -> str:
    if not isinstance(value, str) or not is_text(value) or not value:
        raise ValueError('it is not text; write it in quotes, like "Europe/Berlin"')
    from zoneinfo import ZoneInfo

    try:
        if len(value) <= LONGEST_ZONE:
            ZoneInfo(value)
            return value
    except (OSError, ValueError, KeyError):  # unknown; a directory of zones; outside of their directory
        pass
    raise ValueError(
        f"there is no time zone '{quote_wrong_value(value)}'{_meant(value)}; they are named like Europe/Berlin"
    )


def _meant(word: str) -> str:
    import difflib
    from zoneinfo import available_timezones

    known = sorted(available_timezones())
    low = word[:LONGEST_ZONE].lower().replace(" ", "_")
    close = [zone for zone in known if zone.lower() == low] or difflib.get_close_matches(word[:LONGEST_ZONE], known, 1)
    close = close or [zone for zone in known if zone.lower().rpartition("/")[2] == low]
    return f"; did you mean '{close[0]}'?" if close else ""


LABEL = "schedule"  # tasks of a schedule have this label, with the schedule's name as value
NAMES = "only letters, digits, '.', '_' and '-', begins with a letter or digit, and has at most 64 characters"
MOST_LABELS = 64
LONGEST_PROMPT = 64 * 1024  # characters
LONGEST_LABEL = 1024
LONGEST_TEXT = 256
LONGEST_GATE = 1000
LONGEST_JITTER = 86400.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HIGHEST_PRIORITY = 2**31 - 1
Read = Callable[[object], Any]


def _text(value: object, longest: int = LONGEST_TEXT) -> str:
    found = parse_nonblank_text(value)
    if len(found) > longest:
        raise ValueError(f"it has {len(found)} characters, but at most {longest} are allowed")
    return found


def _name(value: object) -> str:
    name = _text(value)
    if not _NAME.fullmatch(name):
        raise ValueError(f"'{quote_wrong_value(name)}' cannot be the name of a schedule: a name has {NAMES}")
    return name


def _repo(value: object) -> str:
    path = os.path.expanduser(_text(value, 4096))
    if not os.path.isabs(path):
        raise ValueError(f"'{quote_wrong_value(path)}' is not a whole path; begin it with / or ~")
    checkout = find_checkout(path)
    if not is_text(checkout):  # a symbolic link may lead to a name that is not UTF-8
        raise ValueError(f"'{quote_wrong_value(path)}' leads to a directory whose name is not UTF-8; rename it")
    return checkout


def find_checkout(path: str) -> str:
    """Return the top level of the checkout around `path`, or `path` itself, without symbolic links, if there is no
    checkout (yet)."""
    real = os.path.realpath(path)
    place = real
    while place != os.path.dirname(place):
        if os.path.exists(os.path.join(place, ".git")):
            return place
        place = os.path.dirname(place)
    return real


def _prompt(value: object) -> str:
    return _text(value, LONGEST_PROMPT)


def _agent(value: object) -> str:
    agent = _text(value)
    if agent not in AGENTS:
        raise ValueError(
            f"there is no agent '{quote_wrong_value(agent)}' (known: {', '.join(AGENTS)}){meant(agent, AGENTS)}"
        )
    return agent


def _labels(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError('it is not a table of texts, like { area = "web" }')
    if len(value) > MOST_LABELS:
        raise ValueError(f"there are {len(value)} labels, but at most {MOST_LABELS} are allowed")
    for key, word in value.items():
        if not key or not is_text(key) or "=" in key or len(key) > LONGEST_TEXT:
            raise ValueError(f"'{quote_wrong_value(key)}' cannot be the name of a label")
        if key == LABEL:
            raise ValueError(f"the label '{LABEL}' is set by Holdfast: it is the schedule's name")
        if not isinstance(word, str) or not is_text(word) or len(word) > LONGEST_LABEL:
            raise ValueError(f"the value of '{quote_wrong_value(key)}' is not a short text; write it in quotes")
    return dict(value)


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _HIGHEST_PRIORITY:
        raise ValueError(f"'{quote_wrong_value(value)}' is not a whole number")
    return value


def _timeout(value: object) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("it must be longer than 0; leave it out to use the value of the settings")
    return seconds


def _gate(value: object) -> str:
    if value is False:
        return ""
    if value is True:
        raise ValueError("the gate of the settings is used anyway; leave it out, or write a command")
    return _text(value, LONGEST_GATE)


def _command(value: object) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) and is_text(word) for word in value):
        raise ValueError('it is not a command as a list of words, like ["my-agent", "--headless"]')
    if not value[0]:
        raise ValueError("its first word is empty: name the program to run")
    return list(value)


def _dollars(value: object) -> float:
    amount = parse_money(value)
    if amount <= 0:
        raise ValueError("it must be more than 0; leave it out to use the value of the settings")
    return amount


def _jitter(value: object) -> float:
    seconds = parse_duration(value)
    if seconds > LONGEST_JITTER:
        raise ValueError(f"'{quote_wrong_value(value)}' is more than a day, which is the maximum")
    return seconds


class _SuggestingOneOf(OneOf):
    """A parser for one of a few words. Its error suggests the word that was probably meant."""

    def __call__(self, value: object) -> str:
        try:
            return super().__call__(value)
        except ValueError as error:
            raise ValueError(f"{error}{meant(str(value), self.choices)}") from None


def _most(value: object) -> int:
    number = WholeNumber(1)(value)
    if number > 1000:
        raise ValueError(f"'{quote_wrong_value(value)}' is more than 1000 tasks at once")
    return number


# What the task of a schedule has: each is an option of `holdfast add`, with the same name and meaning.
TASK_READERS: Mapping[str, Read] = {
    "prompt": _prompt,
    "workflow": _text,
    "agent": _agent,
    "command": _command,
    "model": _text,
    "account": _text,
    "permission": _SuggestingOneOf("read", "edit", "full"),
    "budget_usd": _dollars,
    "budget_tokens": WholeNumber(1),
    "max_turns": WholeNumber(1),
    "gate": _gate,
    "tries": WholeNumber(1),
    "base": _text,
    "ref": _text,
    "workspace": _SuggestingOneOf("worktree", "clone", "container", "directory", "directory:copy", "none"),
    "preserve_on_failure": parse_boolean,
    "keep_workspace": parse_boolean,
    "labels": _labels,
    "priority": _priority,
    "timeout": _timeout,
    "stuck_after": _timeout,
    "startup_timeout": _timeout,
    "on_stuck": _SuggestingOneOf("kill", "notify"),
    "max_resumes": WholeNumber(0),
}
TASK_KEYS = tuple(TASK_READERS)
DURATIONS = ("timeout", "stuck_after", "startup_timeout")  # of a task: written with a unit
# Options of a task that a schedule does not have, with the reason.
NOT_OF_A_SCHEDULE: Mapping[str, str] = {
    "directory": "write `repo`",
    "scenario": "a rehearsal is added by hand: `holdfast add --scenario FILE`",
    "limits": "write `limits.memory` and the like in the settings: they apply to tasks of schedules too",
    "delay": "the times are in `cron`; `jitter` makes a start later",
    "after": "a schedule cannot refer to task ids; `overlap` decides what happens while its previous task is running",
    "parent": "the tasks of a schedule cannot be subtasks",
    "key": "each time of a schedule adds its own task",
    "schedule": "the schedule's own name is recorded",
    "fire_time": "each task has the time for which it was made",
}
READERS: Mapping[str, Read] = {
    "name": _name,
    "repo": _repo,
    "cron": parse_cron,
    "timezone": parse_time_zone,
    **TASK_READERS,
    "overlap": _SuggestingOneOf("skip", "queue", "replace"),
    "misfire": _SuggestingOneOf("last", "skip", "all"),
    "max_catch_up": _most,
    "jitter": _jitter,
    "enabled": parse_boolean,
}
KEYS = tuple(READERS)
# For the reference page: scripts/generate_docs.py.
MEANINGS: Mapping[str, tuple[str, str]] = {
    "name": ("needed", f"The name has {NAMES}. Two repositories may each have a `nightly`."),
    "repo": ("needed in your own file", "The checkout that its tasks work on: a whole path, where `~` is your home."),
    "cron": ("needed", "Five fields (minute, hour, day of month, month, day of week), or six with seconds first."),
    "timezone": ("`UTC`", "The zone that `cron` is read in, by its IANA name, like `Europe/Berlin`."),
    "prompt": ("needed without a workflow", "The prompt of its tasks."),
    "workflow": ("none", "The workflow of its tasks. `prompt` is then `task.prompt` in the workflow."),
    "agent": ("the setting `agent`", "The agent of its tasks."),
    "command": ("none", "A command as the agent, as a list of words."),
    "model": ("the agent's setting", "The model of its tasks."),
    "account": ("the agent's default account", "The account of the agent."),
    "permission": ("`permissions.mode`", "What the agent may do without asking: `read`, `edit` or `full`."),
    "budget_usd": ("`budget.task_usd`", "A task is paused when its runs have cost this many dollars."),
    "budget_tokens": ("`budget.task_tokens`", "A task is paused when its runs have used this many tokens."),
    "max_turns": ("none", "A run ends after this many turns, if the agent supports it."),
    "gate": ("`gate.command`", "The command that checks the work. `false`: none."),
    "tries": ("`gate.tries`", "How often the agent may try until the gate passes."),
    "base": (
        "the current branch",
        "Where the branches of its tasks start. With `ref`: the start of the range that they review.",
    ),
    "ref": ("none", "The end of the range that its tasks review, `base`..`ref`. Their workspaces start there."),
    "workspace": ("`workspace.strategy`", "The kind of workspace of its tasks."),
    "preserve_on_failure": (
        "`workspace.preserve_on_failure`",
        "true: the workspace of a failed task is kept. false: its work is saved, and the workspace is removed.",
    ),
    "keep_workspace": ("`false`", "true: the workspace is kept, whatever the outcome."),
    "labels": ("none", "Labels of its tasks. `schedule=NAME` is added to them."),
    "priority": ("`0`", "The priority of its tasks. Higher ones are claimed first."),
    "timeout": ("`health.max_runtime`", "How long a run of its tasks may take."),
    "stuck_after": ("`health.stuck_after`", "A run without a sign of life is stuck after this long."),
    "startup_timeout": (
        "`health.startup_timeout`",
        "A run that never shows a sign of life is given up after this long.",
    ),
    "on_stuck": ("`health.on_stuck`", "`kill`: a stuck run is ended. `notify`: an alert is raised."),
    "max_resumes": ("`resume.max_attempts`", "How often a task may be resumed after a pause."),
    "overlap": (
        "`skip`",
        "If the last task has not ended: `skip` the new one, `queue` it, or `replace` the last one with it.",
    ),
    "misfire": (
        "`last`",
        "Times that were missed because no supervisor ran: make up for the `last` one, `skip` them, or make up for "
        "`all`.",
    ),
    "max_catch_up": (
        "`10`",
        "The largest number of missed times that `all` makes up for, counted from the latest. With `replace`, only "
        "the latest one.",
    ),
    "jitter": (
        "`0s`",
        "Each fire is delayed by a random time of up to this length, so that starts are spread.",
    ),
    "enabled": ("`true`", "true: the schedule adds tasks. false: it is listed but adds none."),
}
