"""Every command that a message or a page tells people to type exists, with the options that it is told with."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.base.errors import UsageError
from holdfast.cli.main import COMMANDS, Parser, _parse, build_parser

ROOT = Path(__file__).resolve().parents[2]
SOURCE = sorted((ROOT / "src" / "holdfast").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "adr" not in page.parts]  # they tell of their own time
HOLE = "\x00"  # something that is only known when the message is made
SOMETHING = re.compile(r"[`\"']holdfast [a-z{]")
NAMED = re.compile(r"`holdfast ([^`]+)`")
REMEDY = re.compile(rf"holdfast [a-z]+( [a-z-]+)* {HOLE}")
WAITS_FOR = re.compile(r"[A-Z][A-Z/…]*")  # ID, NAME, FILE, AGENT/NAME: a value that people fill in
NOT_WHOLE = re.compile(r"[…|<>\[\]()$#;&]")  # several at once, or a part of a shell's line


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text of a module, with holes where it is filled in."""
    inside = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {tree}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.value


def in_source() -> Iterator[tuple[str, str]]:
    for path in SOURCE:
        if SOMETHING.search(source := path.read_text(encoding="utf-8")):
            for text in texts(ast.parse(source)):
                whole = [text.removeprefix("holdfast ")] if REMEDY.fullmatch(text) else []  # put into a message later
                yield from ((str(path.relative_to(ROOT)), found) for found in (*NAMED.findall(text), *whole))


def in_pages() -> Iterator[tuple[str, str]]:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        yield from ((str(path.relative_to(ROOT)), found) for found in NAMED.findall(text))


@functools.cache
def parser(name: str) -> Parser:
    return build_parser(name)


def problem(command: str) -> str | None:
    """Why nobody can type this; None if all is well."""
    command = NOT_WHOLE.split(" ".join(command.split()).replace('"…"', HOLE))[0]
    try:
        words = shlex.split(command)
    except ValueError as error:
        return str(error)
    if not words or HOLE in words[0] or words[0].startswith("-") or WAITS_FOR.fullmatch(words[0]):
        return None
    name, *rest = words
    if name not in COMMANDS:
        return "there is no such command"
    rest = ["1" if HOLE in word or WAITS_FOR.fullmatch(word) else word for word in rest]
    try:
        _parse(parser(name), name, rest)
    except UsageError as refusal:
        said = str(refusal)
        is_only_named = any(part in said for part in ("Which task?", "Something is missing", "needs a value"))
        is_the_hole = said.startswith("'1' is not one of") or "does not take '1'" in said  # may be anything
        return None if is_only_named or is_the_hole else said
    except SystemExit:  # --help
        return None
    return None


def test_the_search_sees_what_is_wrong() -> None:
    assert problem(f"resumee {HOLE}") == "there is no such command"
    assert "--chekpoint" in (problem(f"resume {HOLE} --chekpoint 1") or "")
    assert problem(f"resume {HOLE} --checkpoint {HOLE}") is None
    assert problem(f"alerts acknowledge {HOLE}") is not None


@pytest.mark.parametrize("where", [in_source, in_pages], ids=["messages", "pages"])
def test_what_people_are_told_to_type_exists(where: object) -> None:
    """R-CRASH-06, R-CRASH-09: an alert says how to continue by hand, and that has to work."""
    assert callable(where)
    found = list(where())
    assert len(found) > 100
    assert [(place, command, why) for place, command in found if (why := problem(command)) is not None] == []
