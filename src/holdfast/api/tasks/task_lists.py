"""Lists of tasks: a list is queued completely or not at all, and each key of a repository once.

All mistakes of a list are reported together.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from holdfast.api.commands import Commands, NewTask, operator_name
from holdfast.api.format import parse_duration_option
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict, HoldfastError, UsageError
from holdfast.base.text import is_text
from holdfast.core.tasks.task_lists import (
    MOST_ITEMS,
    MOST_WAITS,
    KnownTaskKey,
    ListItem,
    order_by_needs,
    parse_checklist,
    parse_jsonl,
    parse_prompt_file,
    split_unique,
)
from holdfast.core.tasks.task_lists import ListProblem as ListProblem
from holdfast.core.tasks.task_lists import TaskList as TaskList  # interfaces see it from here
from holdfast.intake.repository import current_base
from holdfast.intake.resolve import BIGGEST_PROMPT, ResolvedTask, resolve_task

BIGGEST_LIST = 16 * 1024 * 1024  # bytes
FORMATS = ("prompt", "checklist", "jsonl", "folder")
MOST_HINTS = 20  # each hint compares with every key
_PROMPTS = (".md", ".txt")  # files of a folder


@dataclass(frozen=True, kw_only=True, slots=True)
class IntakeResult:
    """The result of taking in one list."""

    queued: Sequence[tuple[ListItem, str]] = ()  # with the task's id; empty in a rehearsal
    known: Sequence[tuple[ListItem, KnownTaskKey]] = ()
    repeated: Sequence[ListItem] = ()  # items that are in the list twice
    problems: Sequence[ListProblem] = ()  # if there are any, nothing was queued
    notes: Sequence[str] = field(default_factory=list)


# -- reading -----------------------------------------------------------------------------------------------------------


def detect_format(source: str, chosen: str | None) -> str:
    """Return which of FORMATS the source has. `chosen` decides if it is given.

    Otherwise a folder is recognised by its kind, and JSON by its file name. Markdown with only headings and boxes is a
    checklist. Raise UsageError if the source could be both a checklist and a prompt.
    """
    if chosen is not None:
        return chosen
    if source == "-":
        return "prompt"
    if os.path.isdir(source):
        return "folder"
    ending = os.path.splitext(source)[1].lower()
    if ending in (".jsonl", ".ndjson"):
        return "jsonl"
    if ending not in (".md", ".markdown"):
        return "prompt"
    listed = parse_checklist(_read(source, BIGGEST_LIST))
    boxes = len(listed.items) + len({problem.where for problem in listed.problems}) + listed.skipped
    if not boxes:
        return "prompt"
    if listed.loose:
        raise UsageError(
            f"{source} has {boxes} check box(es) and other text. Choose --as checklist (a task for each open box) "
            "or --as prompt (one task). Nothing was queued."
        )
    return "checklist"


def read_list(source: str, how: str) -> TaskList:
    if how == "folder":
        listed = _folder(source)
    else:
        text = _read(source, BIGGEST_LIST)
        listed = parse_checklist(text) if how == "checklist" else parse_jsonl(text)
    if len(listed.items) > MOST_ITEMS:
        raise UsageError(
            f"{source} asks for {len(listed.items)} tasks; at most {MOST_ITEMS} are taken at once. Split it. "
            "Nothing was queued."
        )
    if sum(len(item.after) for item in listed.items) > MOST_WAITS:
        raise UsageError(
            f"The `after` lists of {source} have more than {MOST_WAITS} keys together. Name only direct predecessors: "
            "if C comes after B, and B after A, C need not name A. Nothing was queued."
        )
    if not listed.items and not listed.problems:
        open_ones = {"checklist": "open box (`- [ ] …`)", "folder": "file *.md or *.txt"}.get(how, "line")
        raise UsageError(f"{source} was read as a {how}, and has no {open_ones}. Nothing was queued.")
    return listed


def _folder(source: str) -> TaskList:
    listed = TaskList()
    try:
        names = sorted(name for name in os.listdir(source) if not name.startswith("."))
    except OSError as error:
        raise UsageError(f"The folder {source} cannot be read: {error.strerror}.") from error
    names = [name for name in names if name.lower().endswith(_PROMPTS)]
    if len(names) > MOST_ITEMS:
        raise UsageError(f"{source} holds {len(names)} prompts; at most {MOST_ITEMS} are taken at once.")
    inside = os.path.join(os.path.realpath(source), "")
    for name in names:
        path = os.path.join(source, name)
        if not os.path.realpath(path).startswith(inside):  # a stranger's folder must not have our own files sent away
            listed.problems.append(ListProblem(where=name, text=f"{path} is a link to a file outside the folder."))
            continue
        try:
            one = parse_prompt_file(name, _read(path, BIGGEST_PROMPT))
        except UsageError as error:
            listed.problems.append(ListProblem(where=name, text=str(error)))
            continue
        listed.items += one.items
        listed.problems += one.problems
    return listed


def _read(source: str, most: int) -> str:
    """Return the text of a file. Read at most one byte more than allowed, because the source may be endless."""
    name = "standard input" if source == "-" else source
    try:
        if source != "-" and not stat.S_ISREG(os.stat(source).st_mode):
            raise UsageError(f"{name} is not a plain file.")
        with open(0 if source == "-" else source, "rb", closefd=source != "-") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.") from error
    if len(content) > most:
        raise UsageError(f"{name} is larger than {most // 1024} KiB. Split it. Nothing was queued.")
    text = content.decode(errors="surrogateescape").removeprefix("\ufeff")
    if not is_text(text):
        raise UsageError(f"{name} is not text (it has NUL or undecodable bytes). Nothing was queued.")
    return text


# -- taking in ---------------------------------------------------------------------------------------------------------


class ListIntake:
    """The intake of one list. `template`: the options of the command line, which apply to all tasks of the list."""

    def __init__(self, commands: Commands, template: NewTask) -> None:
        self._commands = commands
        self._template = template
        self._place = commands.place_of(template.directory)
        self._head: str | None = None  # read once for all tasks; None: each task reports what is wrong
        with contextlib.suppress(UsageError):
            self._head = current_base(self._place[0])

    def take(self, listed: TaskList, *, rehearse: bool = False) -> IntakeResult:
        items, repeated, problems = split_unique(listed.items)
        problems = [*listed.problems, *problems]
        wanted = sorted({item.key for item in items} | {key for item in items for key in item.after})
        known = self._known(wanted)
        problems += _find_bad_needs(items, known)
        items, circles = order_by_needs(items)
        problems += circles
        resolved: dict[str, ResolvedTask] = {}
        notes: list[str] = []
        for item in items:
            if item.key in known:
                continue
            try:
                task = resolve_task(self._commands.home, _new(self._template, item), self._place, self._head)
            except HoldfastError as error:
                problems.append(ListProblem(where=item.where, text=str(error)))
                continue
            resolved[item.key] = task
            notes += [note for note in task.notes if note not in notes]
        if problems:
            return IntakeResult(problems=problems)
        if rehearse:
            return IntakeResult(
                queued=[(item, "") for item in items if item.key not in known],
                known=[(item, known[item.key]) for item in items if item.key in known],
                repeated=repeated,
                notes=notes,
            )
        queued, before = self._commands.write(lambda tx: self._add(tx, items, resolved, wanted))
        return IntakeResult(queued=queued, known=before, repeated=repeated, notes=notes)

    def _add(
        self, tx: Any, items: Sequence[ListItem], resolved: Mapping[str, ResolvedTask], wanted: Sequence[str]
    ) -> tuple[list[tuple[ListItem, str]], list[tuple[ListItem, KnownTaskKey]]]:
        """Add the tasks in one transaction. Read known keys again: another process may have taken in the same list."""
        repo = tx.workspaces.register_repo(*self._place, clock.now()).id
        known = tx.task_lists.known(repo, wanted)
        ids = {key: each.task_id for key, each in known.items() if each.state is not None}
        queued, before, by = [], [], operator_name()
        for item in items:
            if item.key in known:
                before.append((item, known[item.key]))
                continue
            if item.key not in resolved:
                raise Conflict("The repository was forgotten meanwhile. Nothing was queued; try again.")
            needs = [*self._template.after, *(ids[key] for key in item.after if key in ids)]
            task = resolved[item.key].add(tx, needs, by=by)
            ids[item.key] = task.id
            tx.task_lists.take(repo, item.key, task.id, clock.now())
            queued.append((item, task.id))
        return queued, before

    def _known(self, keys: Sequence[str]) -> dict[str, KnownTaskKey]:
        """Return the keys that have a task already, with the id and state of the task. Nothing is written."""
        rows = Queries(self._commands.home).view("intake", path=self._place[0], keys=json.dumps(keys))
        return {str(row["key"]): KnownTaskKey(task_id=str(row["task"]), state=row["state"]) for row in rows}


def _find_bad_needs(items: Sequence[ListItem], known: Mapping[str, KnownTaskKey]) -> list[ListProblem]:
    """Return a problem for each key in `after` that no task has, or whose task has ended badly."""
    import difflib

    keys = {item.key for item in items}
    own = sorted(key for key in keys if not key.startswith("sha256:"))
    hints: dict[str, list[str]] = {}
    problems = []
    for item in items:
        if item.key in known:
            continue
        for key in item.after:
            if key in known and known[key].is_over:
                ended = known[key]
                text = f"it comes after '{key}', whose task {ended.task_id} is {ended.state}"
                problems.append(ListProblem(where=item.where, text=f"{text}: `holdfast retry {ended.task_id}` first."))
            elif key not in keys and key not in known:
                if key not in hints and len(hints) < MOST_HINTS:
                    hints[key] = difflib.get_close_matches(key, own, n=1)
                hint = "".join(f" Did you mean '{close}'?" for close in hints.get(key, ()))
                problems.append(
                    ListProblem(where=item.where, text=f"it comes after '{key}', but no task has that key.{hint}")
                )
    return problems


def _new(template: NewTask, item: ListItem) -> NewTask:
    """Return a new task. Options of the list come before options of the command line."""
    said = dict(item.said)
    if "agent" in said and (template.command or template.scenario is not None):
        raise UsageError("it names an agent, but the command line names one for all tasks")
    if said.get("permission") not in (None, "read", "edit", "full"):
        raise UsageError("'permission' must be `read`, `edit` or `full`")
    if said.get("on_stuck") not in (None, "kill", "notify"):
        raise UsageError("'on_stuck' must be `kill` or `notify`")
    if said.get("max_turns", 1) < 1 or said.get("budget_tokens", 1) < 1:
        raise UsageError("'max_turns' and 'budget_tokens' must be at least 1")
    for name, key in (("timeout", "health.max_runtime"), ("delay", "")):
        if name in said:
            said[name] = parse_duration_option(f"'{name}'", said[name], key)
    labels = {**template.labels, **said.pop("labels", {})}
    if not is_text("".join(f"{name}{value}" for name, value in labels.items())):
        raise UsageError("a label is not text (it has NUL or undecodable bytes)")
    if not is_text("".join(value for value in said.values() if isinstance(value, str))):
        raise UsageError("it is not text (it has NUL or undecodable bytes)")
    return replace(template, prompt=item.prompt, labels=labels, after=(), **said)
