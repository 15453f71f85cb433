"""The keys of a workflow's stages and members: the parser and the meaning of each.

`WorkflowFiles` reads the files that workflows name (prompts and scenarios), relative to the file of settings.
"""

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
from holdfast.config.read_file import read_regular_file
from holdfast.config.values import (
    OneOf,
    WholeNumber,
    meant,
    parse_flag,
    parse_money,
    parse_nonblank_text,
    quote_wrong_value,
)
from holdfast.core.workflows.draft import NAME, NAMES
from holdfast.core.workflows.workflow import OnFailure

MOST_TRIES = 100
MOST_TOKENS = 2**53 - 1
LONGEST_TEXT = 1000  # characters of a value that is not a prompt
Read = Callable[[object], Any]


def parse_prompt(value: object) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise ValueError("it is not text; write it in quotes")
    return value


def name(value: object) -> str:
    word = parse_nonblank_text(value)
    if not NAME.fullmatch(word):
        raise ValueError(f"'{quote_wrong_value(word)}' cannot be a name here: a name has {NAMES}")
    return word


def _short(value: object) -> str:
    word = parse_nonblank_text(value)
    if len(word) > LONGEST_TEXT:
        raise ValueError(f"it has {len(word)} characters, but at most {LONGEST_TEXT} are allowed")
    return word


def _model(value: object) -> str:
    word = _short(value)
    if word.startswith("-"):  # some CLIs would read it as an option, and a repository's file needs no trust for a model
        raise ValueError(f"'{quote_wrong_value(word)}' cannot be the name of a model")
    return word


def _agent(value: object) -> str:
    agent = parse_nonblank_text(value)
    if agent not in AGENTS:
        raise ValueError(
            f"there is no agent '{quote_wrong_value(agent)}' (known: {', '.join(AGENTS)}){meant(agent, AGENTS)}"
        )
    return agent


def _gate(value: object) -> str | bool:
    return value if isinstance(value, bool) else _short(value)


def _dollars(value: object) -> float:
    amount = parse_money(value)
    if amount <= 0:
        raise ValueError("it must be more than 0; leave it out if the stage has no budget of its own")
    return amount


def _duration(value: object) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("it must be longer than 0")
    return seconds


def _argv(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) and is_text(word) for word in value):
        raise ValueError('it is not a command as a list of words, like ["my-agent", "--headless"]')
    if not value[0]:
        raise ValueError("its first word is empty: name the program to run")
    return tuple(value)


class _NumberInRange:  # lower case: it reads as a function in the table below
    def __init__(self, least: int, most: int) -> None:
        self._count, self._most = WholeNumber(least), most

    def __call__(self, value: object) -> int:
        number = self._count(value) if isinstance(value, int) else self._count(f"'{value}'")
        if number > self._most:
            raise ValueError(f"'{number}' is more than {self._most}")
        return number


def _on_failure(value: object) -> OnFailure:
    return OnFailure(OneOf(*OnFailure)(value))


# The keys that choose an agent, for stages and for members.
AGENT_CHOICE: Mapping[str, Read] = {
    "agent": _agent,
    "model": _model,
    "permission": OneOf("read", "edit", "full"),
    "account": _short,
    "command": _argv,
}
# Read by config/tables/workflows.py itself: they name other files or are tables.
READ_SEPARATELY = ("prompt", "prompt_file", "scenario")
MEMBER: Mapping[str, Read] = {"name": name, **AGENT_CHOICE}
MEMBER_KEYS = (*MEMBER, *READ_SEPARATELY)
STAGE: Mapping[str, Read] = {
    "name": name,
    **AGENT_CHOICE,
    "timeout": _duration,
    "budget_usd": _dollars,
    "budget_tokens": _NumberInRange(1, MOST_TOKENS),
    "retry": _NumberInRange(0, MOST_TRIES),
    "gate": _gate,
    "gate_timeout": _duration,
    "on_failure": _on_failure,
    "approval": parse_flag,
    "reviews": parse_flag,
    "back_to": parse_nonblank_text,
    "max_turns": _NumberInRange(1, MOST_TRIES),
    "apart": parse_flag,
    "at_once": _NumberInRange(0, 1000),
    "least": _NumberInRange(1, 1000),
}
# Options of a task that a stage does not have, with the reason.
_WHOLE = "it applies to the whole task: give it to `holdfast add`, to the schedule, or to the settings"
_WORKSPACE = "all stages share the task's workspace"
_KEPT = (
    f"{_WORKSPACE}, which is kept or removed at the task's end: write `preserve_on_failure` or `keep_workspace` before "
    "the first stage, in [workflow.NAME]"
)
NOT_OF_A_STAGE: Mapping[str, str] = {
    "workspace": f"{_WORKSPACE}; {_WHOLE}",
    **dict.fromkeys(("preserve", "preserve_on_failure", "keep_workspace"), _KEPT),
    **dict.fromkeys(("base", "ref", "repo", "directory"), f"all stages work on one branch; {_WHOLE}"),
    **dict.fromkeys(
        ("labels", "priority", "key", "parent", "after", "delay"),
        f"a stage begins when the one before is done, and is not a task of its own; {_WHOLE}",
    ),
    **dict.fromkeys(("stuck_after", "startup_timeout", "on_stuck", "limits", "max_resumes"), _WHOLE),
    "tries": "write `retry`: how many more tries the stage has",
    "workflow": "a stage cannot be a workflow",
    "schedule": _WHOLE,
    "fire_time": _WHOLE,
}
STAGE_KEYS = (*STAGE, *READ_SEPARATELY, "members", "member")
# Options of a task that a workflow has for all its tasks. `holdfast add` says otherwise for one task.
OF_ITS_TASKS: Mapping[str, Read] = {"preserve_on_failure": parse_flag, "keep_workspace": parse_flag}
WORKFLOW: Mapping[str, Read] = {"about": _short, "prompt": parse_nonblank_text, **OF_ITS_TASKS}
WORKFLOW_KEYS = (*WORKFLOW, "stage")

# For the reference page: key → (default, meaning).
MEANINGS_OF_WORKFLOW: Mapping[str, tuple[str, str]] = {
    "about": ("–", "One sentence for people."),
    "prompt": ("–", "The prompt of a task that has none of its own."),
    "preserve_on_failure": (
        "the settings'",
        "true: the workspace of a failed task is preserved. false: it is removed. `--preserve-on-failure` and "
        "`--no-preserve-on-failure` of a task come first. Needs trust in a repository's file.",
    ),
    "keep_workspace": (
        "false",
        "true: the task's workspace is preserved, whatever the outcome. Needs trust in a repository's file.",
    ),
}
MEANINGS: Mapping[str, tuple[str, str]] = {
    "name": (
        "–",
        "The name, unique in the workflow (of a member: unique in its stage). Prompts of other stages refer to it.",
    ),
    "agent": ("the task's", "The agent: any agent of `--agent`."),
    "model": ("the task's", "The agent's model."),
    "permission": (
        "the task's",
        "What the agent may do without asking: `read`, `edit` or `full`. `command` and `scripted` agents ignore it. "
        "In a repository's file, `edit` and `full` need trust.",
    ),
    "account": ("the task's", "The account of the agent. Needs trust in a repository's file."),
    "command": ("–", "A command as the agent, as a list of words. Needs trust in a repository's file."),
    "scenario": (
        "–",
        "For rehearsals: a scenario of the scripted agent, as a file or as a list of steps. Needs trust in a "
        "repository's file.",
    ),
    "prompt": ("`{{ task.prompt }}`", "The prompt of the agent: a template."),
    "prompt_file": (
        "–",
        "A file with the prompt, relative to this file. For a repository's file: inside the repository.",
    ),
    "timeout": (
        "`--timeout`, else `health.max_runtime`",
        "How long one run may take. For a stage with members: the limit of the whole stage, plus 10 s to collect "
        "results.",
    ),
    "budget_usd": (
        "none",
        "What the runs of the stage may cost, in dollars, counted anew each time the stage begins. A stage that costs "
        "more has failed, without another try. `on_failure` decides what follows. The budget of the task applies too.",
    ),
    "budget_tokens": ("none", "How many tokens the runs of the stage may use, counted anew each time it begins."),
    "retry": ("0", "How many more tries the stage has, in the same session, if its agent or its gate fails."),
    "gate": (
        "–",
        "A shell command in the workspace. It passes with exit code 0. Its output goes to the next try. `true`: "
        "the command of `--gate` or of the setting `gate.command`. Needs trust in a repository's file.",
    ),
    "gate_timeout": ("10m", "How long the gate may take."),
    "on_failure": (
        "`fail`",
        "When the tries are used up: `fail` (the task), `continue` (with the next stage), `pause` (a person decides: "
        "`holdfast approve`), `back` (to `back_to`).",
    ),
    "approval": ("false", "true: a person has to approve the stage before the next one begins: `holdfast approve`."),
    "reviews": (
        "false",
        "true: the last line of the answer decides: `VERDICT: approve`, or `VERDICT: changes`, which goes back to "
        "`back_to` with the answer as feedback. Without such a line, the stage failed. If the prompt does not ask for "
        "this line, a request for it is added at the end.",
    ),
    "back_to": ("–", "The earlier stage that this stage sends the work back to."),
    "max_turns": ("3", "How often the stage may send the work back. After that, `on_failure` applies."),
    "members": (
        "–",
        "Several agents at the same time: a list of names, or of tables with `name`, a prompt, and the keys that "
        "choose an agent (above). Or write them as `[[workflow.NAME.stage.member]]`. A key that a member does not "
        "set is taken from its stage.",
    ),
    "apart": ("false", "true: each member has its own workspace and branch. false: all work in the task's workspace."),
    "at_once": ("0", "How many members run at a time. 0: as many as there are free slots."),
    "least": ("1", "How many members have to complete for the stage to be completed."),
}


LARGEST = 64 * 1024  # bytes of one file
LARGEST_TOGETHER = 1024 * 1024  # bytes of all files that one file of settings names
MOST_DOTS = 1000  # per line of TOML: the reason is in config/read_file.py
Steps = tuple[Mapping[str, Any], ...]


class WorkflowFiles:
    """The files that the workflows of one file of settings name.

    `inside`: a repository's file may only name files in the repository, even through symbolic links.
    """

    def __init__(self, folder: str, *, inside: bool) -> None:
        self._folder = folder
        self._inside = inside
        self._room = LARGEST_TOGETHER

    def prompt(self, value: object) -> tuple[str, str]:
        """Return the path and the text of a prompt file. Raise ValueError if it cannot be used."""
        path, content = self._read(value)
        if not is_text(content):
            raise ValueError(f"{path} is not text (it has NUL bytes)")
        return path, content

    def scenario(self, value: object) -> Steps:
        """Return the steps of a scenario, written inline or in a file. Raise ValueError if it cannot be used."""
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
        word = parse_nonblank_text(value)
        path = os.path.join(self._folder, word if self._inside else os.path.expanduser(word))
        if self._inside:
            self._refuse_outside(word)
        if self._room <= 0:
            raise ValueError(f"the files of workflows have more than {LARGEST_TOGETHER // 1024} KiB together")
        try:
            content = read_regular_file(path, LARGEST)
        except FileNotFoundError:
            raise ValueError(f"there is no file {format_path(path)}") from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ValueError(f"{format_path(path)} cannot be read: {why}") from None
        self._room -= len(content)
        try:
            return os.path.normpath(path), content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"{format_path(path)} cannot be read: it is not UTF-8 text") from None

    def _refuse_outside(self, word: str) -> None:
        root = os.path.realpath(self._folder)
        real = os.path.realpath(os.path.join(root, word))
        within = os.path.relpath(real, root).split(os.sep)
        if os.path.isabs(word) or within[0] == ".." or ".git" in within:
            raise ValueError(f"'{quote_wrong_value(word)}' is not a file of this repository; name one inside it")


def format_path(path: str) -> str:
    return " ".join(os.path.normpath(path).split())[-500:]  # a message is one line


def _parsed(path: str, content: str) -> object:
    if any(row.count(".") > MOST_DOTS for row in content.split("\n")):
        raise ValueError(f"{format_path(path)} cannot be read: it is nested too deeply")
    try:
        return json.loads(content) if path.endswith(".json") else tomllib.loads(content)
    except RecursionError:
        raise ValueError(f"{format_path(path)} cannot be read: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{format_path(path)} cannot be read: {error}") from None
