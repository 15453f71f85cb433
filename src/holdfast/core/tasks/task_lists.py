"""Lists of tasks as people write them: a checklist, lines of JSON, files in a folder. Pure. All mistakes are reported
at once.

The options of a task have the same names everywhere. In JSON they are fields. In Markdown they are in an invisible
comment: `<!-- holdfast: key=parser agent=claude after=lexer label.area=core -->`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from holdfast.base.dataclass import dataclass

MOST_ITEMS = 1000
MOST_WAITS = 10_000  # keys in all `after` of a list together: they are written in one transaction
LONGEST_KEY = 200
BY_TEXT = "sha256:"  # the prefix of a key that was derived from the text
_COMMENT = re.compile(r"<!--[ \t]{0,9}holdfast:((?:(?!<!--).){0,1000}?)-->")
_PAIR = re.compile(r'([A-Za-z_][\w.]*)=("[^"]*"|\S*)')
# name → the JSON type of its value
TEXTS = frozenset(
    "key agent account model permission workflow base ref workspace timeout delay on_stuck".split()  # noqa: SIM905
)
NUMBERS = frozenset({"priority", "budget_tokens", "max_turns"})
NAMES = frozenset({*TEXTS, *NUMBERS, "budget_usd", "labels", "after"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ListProblem:
    """A mistake, and its location: a line, or a file of a folder."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ListItem:
    """One task of the list."""

    where: str
    prompt: str
    key: str  # given, or derived from the text
    after: tuple[str, ...] = ()  # keys
    said: Mapping[str, Any] = field(default_factory=dict)  # its other options; only their types are checked

    @property
    def has_own_key(self) -> bool:
        return not self.key.startswith(BY_TEXT)


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownTaskKey:
    """The task that an earlier list had under a key."""

    task_id: str
    state: str | None  # None: the task has been deleted since

    @property
    def is_over(self) -> bool:
        """True if the task ended without success. It does not run again unless an operator asks for it."""
        return self.state in ("failed", "cancelled")


@dataclass(kw_only=True, slots=True)
class TaskList:
    """The content of a list."""

    items: list[ListItem] = field(default_factory=list)
    problems: list[ListProblem] = field(default_factory=list)
    skipped: int = 0  # boxes that are ticked
    loose: int = 0  # lines of a checklist that belong to no item and are not headings

    def add(self, where: str, prompt: str, said: Mapping[str, Any]) -> None:
        """Add an item to the list. If the item itself has mistakes, add these instead."""
        problems = list(_problems(said))
        if not prompt.strip():
            problems.append("the prompt is empty")
        self.problems += [ListProblem(where=where, text=text) for text in problems]
        if problems:
            return
        rest = {name: value for name, value in said.items() if name not in ("key", "after")}
        key = str(said["key"]) if "key" in said else key_from_text(prompt)
        self.items.append(ListItem(where=where, prompt=prompt, key=key, after=_words(said.get("after")), said=rest))


def key_from_text(text: str) -> str:
    """Return a key for a text. It is the same for the same words, however they are broken into lines."""
    return BY_TEXT + hashlib.sha256(" ".join(text.split()).encode(errors="replace")).hexdigest()[:32]


def _problems(said: Mapping[str, Any]) -> Iterable[str]:
    for name, value in said.items():
        if name not in NAMES:
            yield _unknown(name)
        elif name in TEXTS and (not isinstance(value, str) or not value.strip()):
            yield f"'{name}' must be text, and not empty"
        elif name in NUMBERS and (not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**31):
            yield f"'{name}' must be a whole number"
        elif name == "budget_usd" and (isinstance(value, bool) or not isinstance(value, int | float)):
            yield f"'{name}' must be a number of dollars"
        elif name == "labels" and not _is_labels(value):
            yield "'labels' must be names with texts"
        elif name == "after" and (
            _words(value) == () or not all(word and word.isprintable() for word in _words(value))
        ):
            yield "'after' must be a key of this list, or several"
    key = said.get("key")
    if isinstance(key, str) and (len(key) > LONGEST_KEY or not key.isprintable() or key.startswith(BY_TEXT)):
        yield f"its key is longer than {LONGEST_KEY} characters, has control characters or begins with '{BY_TEXT}'"


def _unknown(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name[:80], sorted({*NAMES, "prompt"}), n=1)
    hint = f" Did you mean '{close[0]}'?" if close else f" Known are: prompt, {', '.join(sorted(NAMES))}."
    return f"'{name[:80]}' is not an option of a task.{hint}"


def _is_labels(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) and name for name, text in value.items())


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(","))
    if isinstance(value, list):
        return tuple(word if isinstance(word, str) else "" for word in value)
    return ()


# -- Markdown ----------------------------------------------------------------------------------------------------------


def parse_comments(text: str) -> tuple[str, dict[str, Any], list[str]]:
    """Return the text without its `holdfast:` comments, the options in these comments, and their mistakes."""
    said: dict[str, Any] = {}
    wrong: list[str] = []
    for found in _COMMENT.findall(text):
        rest = _PAIR.sub("", found).strip()
        if rest:
            wrong.append(f"'{rest[:60]}' is not understood; write name=value, or name=\"several words\"")
        for name, value in _PAIR.findall(found):
            _set_option(said, name, value.strip('"'), wrong)
    without = [line for line in (_strip(line) for line in _COMMENT.sub("\0", text).split("\n")) if line is not None]
    return "\n".join(without).strip("\n"), said, wrong


def _strip(line: str) -> str | None:
    """Return the line without its comments. None: the line had nothing but comments."""
    return line if "\0" not in line else line.replace("\0", "").rstrip() if line.replace("\0", "").strip() else None


def _set_option(said: dict[str, Any], name: str, value: str, wrong: list[str]) -> None:
    if name.startswith("label."):
        said.setdefault("labels", {})[name.removeprefix("label.")] = value
        return
    if name in said:
        wrong.append(f"'{name}' is given twice")
    if name in NUMBERS or name == "budget_usd":
        kind = int if name in NUMBERS else float
        try:
            said[name] = kind(value) if len(value) <= 20 and value.isascii() else value
        except ValueError:
            said[name] = value  # `_problems` reports the wrong type
        return
    said[name] = value


_ITEM = re.compile(r"^([ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]+\[([ xX])\](?:[ \t]+(.*))?$")
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)")
_STRUCTURE = re.compile(r"^\s*(?:#{1,6}(?:\s.*)?|-{3,}|\*{3,}|={3,}|<!--.*-->)\s*$")


def parse_checklist(text: str) -> TaskList:
    """Read a checklist. Open boxes are tasks. Lines and boxes that are indented below a box belong to it."""
    listed = TaskList()
    fence = ""
    number, indent, is_open = 0, 0, False  # of the item that lines may belong to; number 0: none
    body: list[str] = []

    def close() -> None:
        nonlocal number
        if number and is_open:
            prompt, said, wrong = parse_comments(_dedented(body))
            where = f"line {number}"
            listed.problems += [ListProblem(where=where, text=each) for each in wrong]
            if not wrong:
                listed.add(where, prompt, said)
        elif number:
            listed.skipped += 1
        number = 0

    for at, line in enumerate(text.replace("\r\n", "\n").replace("\0", "").split("\n"), 1):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark.group(1).startswith(fence) else fence
            body.append(line)
            continue
        width = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip(" "))
        belongs = bool(number) and (width > indent or not line.strip())
        found = None if belongs or mark else _ITEM.match(line)
        if found:
            close()
            number, indent, is_open = at, width, found.group(2) == " "
            body = [found.group(3) or ""]
            continue
        if not belongs:
            close()
            listed.loose += bool(line.strip()) and not _STRUCTURE.match(line)
            body = []
        if mark:
            fence = mark.group(1)
        body.append(line)
    close()
    return listed


def _dedented(lines: Sequence[str]) -> str:
    import textwrap

    first, *rest = lines
    return f"{first}\n{textwrap.dedent(chr(10).join(rest).expandtabs(4))}".strip()


def parse_prompt_file(name: str, text: str) -> TaskList:
    """Read one file as one prompt. Its key is the file's name without its extension, unless the file gives another."""
    listed = TaskList()
    prompt, said, wrong = parse_comments(text)
    listed.problems += [ListProblem(where=name, text=each) for each in wrong]
    if not wrong:
        listed.add(name, prompt, {"key": name.rpartition(".")[0]} | said)
    return listed


# -- JSON --------------------------------------------------------------------------------------------------------------


class _DuplicateName(ValueError):
    pass


def parse_jsonl(text: str) -> TaskList:
    """Read one JSON object per line. Empty lines are skipped."""
    listed = TaskList()
    for at, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"line {at}"
        said = _object(line)
        if isinstance(said, str):
            listed.problems.append(ListProblem(where=where, text=said))
            continue
        prompt = said.pop("prompt", "")
        if not isinstance(prompt, str):
            listed.problems.append(ListProblem(where=where, text="'prompt' must be text"))
            continue
        listed.add(where, prompt, said)
    return listed


def _object(line: str) -> dict[str, Any] | str:
    """Return the object, or the text of a mistake."""
    import json

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise _DuplicateName
        return found

    try:
        found = json.loads(line, object_pairs_hook=once, parse_constant=float)
    except _DuplicateName:
        return "it has a name twice"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return f"it is not JSON ({str(error)[:80]})"
    return found if isinstance(found, dict) else 'it is not an object: write {"prompt": "…"}'


# -- the whole list ----------------------------------------------------------------------------------------------------


def split_unique(items: Sequence[ListItem]) -> tuple[list[ListItem], list[ListItem], list[ListProblem]]:
    """Return three lists: the items with each key once, the repeated items with the same text, and a problem for each
    key that two different items have."""
    first: dict[str, ListItem] = {}
    repeated, problems = [], []
    for item in items:
        earlier = first.setdefault(item.key, item)
        if earlier is item:
            continue
        if item.has_own_key:
            text = f"its key '{item.key}' is that of {earlier.where} too"
            problems.append(ListProblem(where=item.where, text=text))
        else:
            repeated.append(item)
    return list(first.values()), repeated, problems


def order_by_needs(items: Sequence[ListItem]) -> tuple[list[ListItem], list[ListProblem]]:
    """Return the items in an order in which every item comes after those that it waits for, otherwise as written. Also
    return a problem for items that wait for one another, because none of them could start."""
    by_key = {item.key: item for item in items}
    waiting = dict(by_key)
    done: dict[str, ListItem] = {}
    while waiting:
        free = [item for item in waiting.values() if all(key in done or key not in by_key for key in item.after)]
        if not free:
            circle = ", ".join(item.where for item in waiting.values())
            text = f"they wait for one another (after): {circle}"
            return [], [ListProblem(where=next(iter(waiting.values())).where, text=text)]
        for item in free:
            done[item.key] = waiting.pop(item.key)
    return list(done.values()), []
