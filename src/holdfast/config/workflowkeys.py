"""The keys of a workflow's stages and members: how each value is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.config.overrides import AGENTS
from holdfast.config.parsers import count, one_of, shown
from holdfast.core.drafts import NAME, NAMES
from holdfast.core.workflows import OnFailure
from holdfast.text import is_text
from holdfast.units import parse_duration

MOST_TRIES = 100
LONGEST_TEXT = 1000  # characters of a value that is no prompt
Read = Callable[[object], Any]


def text(value: object) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise ValueError("it is not text; write it in quotes")
    if not value.strip():
        raise ValueError("it is empty; leave it out instead")
    return value


def prompt(value: object) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise ValueError("it is not text; write it in quotes")
    return value


def name(value: object) -> str:
    word = text(value)
    if not NAME.fullmatch(word):
        raise ValueError(f"'{shown(word)}' cannot be a name here: it has only {NAMES}")
    return word


def _short(value: object) -> str:
    word = text(value)
    if len(word) > LONGEST_TEXT:
        raise ValueError(f"it has {len(word)} characters; {LONGEST_TEXT} is the most")
    return word


def _agent(value: object) -> str:
    agent = text(value)
    if agent not in AGENTS:
        raise ValueError(f"there is no agent '{shown(agent)}' (known: {', '.join(AGENTS)}){meant(agent, AGENTS)}")
    return agent


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it is neither true nor false")
    return value


def _gate(value: object) -> str | bool:
    return value if isinstance(value, bool) else _short(value)


def _duration(value: object) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("it has to be longer than nothing")
    return seconds


def _argv(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) and is_text(word) for word in value):
        raise ValueError('it is not a command as a list of words, like ["my-agent", "--headless"]')
    if not value[0]:
        raise ValueError("its first word is empty: say which program to run")
    return tuple(value)


class _upto:  # lower case: it reads as a function in the table below
    def __init__(self, least: int, most: int) -> None:
        self._count, self._most = count(least), most

    def __call__(self, value: object) -> int:
        number = self._count(value) if isinstance(value, int) else self._count(f"'{value}'")
        if number > self._most:
            raise ValueError(f"'{number}' is more than {self._most}")
        return number


def _on_failure(value: object) -> OnFailure:
    return OnFailure(one_of(*OnFailure)(value))


# What chooses an agent: of stages and of members.
CHOOSING: Mapping[str, Read] = {
    "agent": _agent,
    "model": _short,
    "permission": one_of("read", "edit", "full"),
    "account": _short,
    "command": _argv,
}
# Read by config/workflows.py itself: they look at other files, or are tables.
APART = ("prompt", "prompt_file", "scenario")
MEMBER: Mapping[str, Read] = {"name": name, **CHOOSING}
MEMBER_KEYS = (*MEMBER, *APART)
STAGE: Mapping[str, Read] = {
    "name": name,
    **CHOOSING,
    "timeout": _duration,
    "retry": _upto(0, MOST_TRIES),
    "gate": _gate,
    "gate_timeout": _duration,
    "on_failure": _on_failure,
    "approval": _flag,
    "reviews": _flag,
    "back_to": text,
    "max_turns": _upto(1, MOST_TRIES),
    "apart": _flag,
    "at_once": _upto(0, 1000),
    "least": _upto(1, 1000),
}
STAGE_KEYS = (*STAGE, *APART, "members", "member")
WORKFLOW: Mapping[str, Read] = {"about": _short, "prompt": text}
WORKFLOW_KEYS = (*WORKFLOW, "stage")


def meant(word: str, known: tuple[str, ...], prefix: str = "") -> str:
    import difflib

    close = difflib.get_close_matches(word[:200], known, n=1)
    return f"; did you mean '{prefix}{close[0]}'?" if close else ""
