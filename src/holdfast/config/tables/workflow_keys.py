"""The keys of a workflow's stages and members: how each value is read."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.base.errors import UsageError
from holdfast.base.text import is_text
from holdfast.base.units import parse_duration
from holdfast.config.per_agent import AGENTS
from holdfast.config.read_file import bytes_of
from holdfast.config.values import count, flag, meant, nonblank_text, one_of, shown
from holdfast.core.workflows.draft import NAME, NAMES
from holdfast.core.workflows.workflow import OnFailure

MOST_TRIES = 100
LONGEST_TEXT = 1000  # characters of a value that is no prompt
Read = Callable[[object], Any]


def prompt(value: object) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise ValueError("it is not text; write it in quotes")
    return value


def name(value: object) -> str:
    word = nonblank_text(value)
    if not NAME.fullmatch(word):
        raise ValueError(f"'{shown(word)}' cannot be a name here: it has only {NAMES}")
    return word


def _short(value: object) -> str:
    word = nonblank_text(value)
    if len(word) > LONGEST_TEXT:
        raise ValueError(f"it has {len(word)} characters; {LONGEST_TEXT} is the most")
    return word


def _model(value: object) -> str:
    word = _short(value)
    if word.startswith("-"):  # some CLIs would take it for an option, and a repository's file needs no trust for it
        raise ValueError(f"'{shown(word)}' cannot be the name of a model")
    return word


def _agent(value: object) -> str:
    agent = nonblank_text(value)
    if agent not in AGENTS:
        raise ValueError(f"there is no agent '{shown(agent)}' (known: {', '.join(AGENTS)}){meant(agent, AGENTS)}")
    return agent


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
    "model": _model,
    "permission": one_of("read", "edit", "full"),
    "account": _short,
    "command": _argv,
}
# Read by config/tables/workflows.py itself: they look at other files, or are tables.
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
    "approval": flag,
    "reviews": flag,
    "back_to": nonblank_text,
    "max_turns": _upto(1, MOST_TRIES),
    "apart": flag,
    "at_once": _upto(0, 1000),
    "least": _upto(1, 1000),
}
STAGE_KEYS = (*STAGE, *APART, "members", "member")
WORKFLOW: Mapping[str, Read] = {"about": _short, "prompt": nonblank_text}
WORKFLOW_KEYS = (*WORKFLOW, "stage")

# For the reference page: key → (default, meaning).
MEANINGS: Mapping[str, tuple[str, str]] = {
    "name": ("–", "Its name, once in the workflow (a member's: once in its stage). Other stages' prompts refer to it."),
    "agent": ("the task's", "Who does it: any agent of `--agent`."),
    "model": ("the task's", "The agent's model."),
    "permission": (
        "the task's",
        "What the agent may do unasked: `read`, `edit` or `full`. `command` and `scripted` agents know no such bounds. "
        "In a repository's file, `edit` and `full` need trust.",
    ),
    "account": ("the task's", "Under which of the agent's accounts. Needs trust in a repository's file."),
    "command": ("–", "A command as the agent, as a list of words. Needs trust in a repository's file."),
    "scenario": (
        "–",
        "For rehearsals: a scenario of the scripted agent, as a file or as a list of steps. Needs trust in a "
        "repository's file.",
    ),
    "prompt": ("`{{ task.prompt }}`", "What the agent is told: a template."),
    "prompt_file": ("–", "The same from a file, beside this one; of a repository's file: inside the repository."),
    "timeout": (
        "`--timeout`, else `health.max_runtime`",
        "How long one run may take; of a stage with members: all of it, with 10 s more to collect.",
    ),
    "retry": ("0", "How many more tries it has when its agent or its gate failed, in the same session."),
    "gate": (
        "–",
        "A shell command in the workspace; it passes with exit code 0. What it prints is told to the next try. `true`: "
        "the command of `--gate` or of the setting `gate.command`. Needs trust in a repository's file.",
    ),
    "gate_timeout": ("10m", "How long the gate may take."),
    "on_failure": (
        "`fail`",
        "When the tries are used up: `fail` (the task), `continue` (with the next stage), `pause` (a person decides: "
        "`holdfast approve`), `back` (to `back_to`).",
    ),
    "approval": ("false", "A person has to approve what it did before the next stage begins: `holdfast approve`."),
    "reviews": (
        "false",
        "The last line of its answer rules: `VERDICT: approve`, or `VERDICT: changes`, which goes back to `back_to` "
        "with the answer as feedback. No such line: it failed. A prompt that does not ask for it gets that at its end.",
    ),
    "back_to": ("–", "The earlier stage that it sends back to."),
    "max_turns": ("3", "How often it may do that; then `on_failure`."),
    "members": (
        "–",
        "Several agents at the same time: a list of names, or of tables with `name`, a prompt, and what is said of "
        "agents above; or write them as `[[workflow.NAME.stage.member]]`. What a member does not say is its stage's.",
    ),
    "apart": ("false", "Each member in a workspace and on a branch of its own; otherwise all in the task's."),
    "at_once": ("0", "How many members at a time; 0: as many as there is room for."),
    "least": ("1", "How many members have to complete, for the stage to count as completed."),
}


LARGEST = 64 * 1024  # of one
LARGEST_TOGETHER = 1024 * 1024  # of all that one file of settings names
MOST_DOTS = 1000  # on a line of TOML: config/read_file.py says why
Steps = tuple[Mapping[str, Any], ...]


class FilesBeside:
    """`inside`: a repository's file may only name what lies in the repository, whatever symbolic links say."""

    def __init__(self, folder: str, *, inside: bool) -> None:
        self._folder = folder
        self._inside = inside
        self._room = LARGEST_TOGETHER

    def prompt(self, value: object) -> tuple[str, str]:
        """Its path and its text; ValueError says what is wrong."""
        path, content = self._read(value)
        if not is_text(content):
            raise ValueError(f"{path} is not text (it has NUL bytes)")
        return path, content

    def scenario(self, value: object) -> Steps:
        """The steps of a scenario, written here or in a file; ValueError says what is wrong."""
        from holdfast.rehearsal.scenario import check

        document: object = {"step": value}
        name = "here"
        if isinstance(value, str):
            name, content = self._read(value)
            document = _parsed(name, content)
        try:
            return tuple(check(document, name))
        except UsageError as error:
            raise ValueError(str(error).rstrip(".")) from None

    def _read(self, value: object) -> tuple[str, str]:
        word = nonblank_text(value)
        path = os.path.join(self._folder, word if self._inside else os.path.expanduser(word))
        if self._inside:
            self._refuse_outside(word)
        if self._room <= 0:
            raise ValueError(f"the files of workflows have more than {LARGEST_TOGETHER // 1024} KiB together")
        try:
            content = bytes_of(path, LARGEST)
        except FileNotFoundError:
            raise ValueError(f"there is no file {shown_path(path)}") from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ValueError(f"{shown_path(path)} cannot be read: {why}") from None
        self._room -= len(content)
        try:
            return os.path.normpath(path), content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"{shown_path(path)} cannot be read: it is not UTF-8 text") from None

    def _refuse_outside(self, word: str) -> None:
        root = os.path.realpath(self._folder)
        real = os.path.realpath(os.path.join(root, word))
        within = os.path.relpath(real, root).split(os.sep)
        if os.path.isabs(word) or within[0] == ".." or ".git" in within:
            raise ValueError(f"'{shown(word)}' is not a file of this repository; name one inside it")


def shown_path(path: str) -> str:
    return " ".join(os.path.normpath(path).split())[-500:]  # a message is one line


def _parsed(path: str, content: str) -> object:
    if any(row.count(".") > MOST_DOTS for row in content.split("\n")):
        raise ValueError(f"{shown_path(path)} cannot be read: it is nested too deeply")
    try:
        return json.loads(content) if path.endswith(".json") else tomllib.loads(content)
    except RecursionError:
        raise ValueError(f"{shown_path(path)} cannot be read: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{shown_path(path)} cannot be read: {error}") from None
