"""Every command that a message or a page tells people to type exists, with the options that it is told with."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import tomllib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.base.errors import UsageError
from holdfast.cli.main import COMMANDS, Parser, _parse, build_parser
from holdfast.config.read_file import read_settings_file
from holdfast.rehearsal import scenario

ROOT = Path(__file__).resolve().parents[2]
SOURCE = sorted((ROOT / "src" / "holdfast").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "adr" not in page.parts]  # they tell of their own time
HOLE = "\x00"  # something that is only known when the message is made
SOMETHING = re.compile(r"[`\"']holdfast [a-z{]")
NAMED = re.compile(r"`holdfast ([^`]+)`")
REMEDY = re.compile(rf"holdfast [a-z]+( [a-z-]+)* {HOLE}")
WAITS_FOR = re.compile(r"[A-Z][A-Z/…]*")  # ID, NAME, FILE, AGENT/NAME: a value that people fill in
BEFORE = ("!", "do", "exec", "if", "nohup", "sudo", "then", "time", "until", "while")  # in front of a shell's command
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
    return problem_of_words(words)


def problem_of_words(words: Sequence[str]) -> str | None:
    """Why the command that these words are cannot be typed."""
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


def fences(page: Path, languages: Collection[str]) -> Iterator[tuple[int, str, str]]:
    """The fenced blocks of a page in one of the languages: number of the first line, the line above, and the text."""
    lines = page.read_text(encoding="utf-8").splitlines()
    marks = [number for number, line in enumerate(lines) if line.startswith("```")]
    for first, last in zip(marks[::2], marks[1::2], strict=True):
        if lines[first].removeprefix("```").strip() in languages:
            yield first + 2, lines[first - 1], "\n".join(lines[first + 1 : last])


def typed(block: str, *, prompts: bool) -> Iterator[str]:
    """The command lines of a block, continued lines joined. `prompts`: only lines behind `$ ` are typed."""
    lines = iter(block.splitlines())
    for line in lines:
        if prompts and not line.startswith("$ "):
            continue
        whole = line.removeprefix("$ ")
        while whole.endswith("\\"):
            whole = whole[:-1] + next(lines).removeprefix("> ")
        yield whole


def ours(line: str) -> Iterator[list[str]]:
    """The calls of `holdfast` in a line of a shell, each as the words behind its name."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.wordchars += "$!@%^,:+{}…[]"
    reader.commenters = "#"
    words: list[str] = []
    for word in [*reader, ";"]:
        if not set(word) <= set("();<>|&"):
            words.append(word)
            continue
        while words and (words[0] in BEFORE or "=" in words[0]):
            words.pop(0)
        if words[:1] == ["holdfast"]:
            yield words[1:]
        words = []


def in_fences() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        for languages, prompts in (({"console"}, True), ({"sh", "bash"}, False)):
            for number, _above, block in fences(page, languages):
                for line in typed(block, prompts=prompts):
                    for words in ours(line) if "holdfast" in line else ():
                        yield f"{page.relative_to(ROOT)}:{number}", words


def test_commands_in_fenced_code_can_be_typed() -> None:
    """Recipes and how-tos: each `holdfast …` of a console or shell block goes through the real parser."""
    found = [(place, words) for place, words in in_fences() if not any("…" in word for word in words)]
    assert len(found) > 200
    filled = [(place, ["1" if "$" in word else word for word in words]) for place, words in found]
    assert [(place, words, why) for place, words in filled if (why := problem_of_words(words)) is not None] == []


def test_the_reader_of_fenced_code_sees_calls() -> None:
    line = "until holdfast show k3m9 --json | grep -q x; do sleep 1; done && kill $(holdfast why 7f3a) # holdfast no"
    assert list(ours(line)) == [["show", "k3m9", "--json"], ["why", "7f3a"]]
    assert list(ours("holdfast add 'a; b' -- sh -c 'holdfast x' > out")) == [
        ["add", "a; b", "--", "sh", "-c", "holdfast x"]
    ]
    assert list(typed("$ holdfast ps \\\n>   --all\nholdfast output", prompts=True)) == ["holdfast ps   --all"]
    assert problem_of_words(["ps", "--alll"]) is not None


def test_tables_in_fenced_code_are_settings(tmp_path: Path) -> None:
    """Each TOML block goes through the real reader: as a repository's file if its first line, or the line
    above, names holdfast.toml, as a scenario if it has steps, else as the user's file."""
    wrong = []
    found = [(page, *block) for page in PAGES for block in fences(page, {"toml"})]
    assert len(found) > 20
    for page, number, above, text in found:
        place = f"{page.relative_to(ROOT)}:{number}"
        if re.search(r"^\[\[step\]\]", text, re.MULTILINE):
            scenario.check(tomllib.loads(text), place)
            continue
        path = tmp_path / "holdfast.toml"
        path.write_text(text, encoding="utf-8")
        layer = read_settings_file(str(path), of_repository="holdfast.toml" in above + text.partition("\n")[0])
        wrong += [f"{place} (its line {problem.line}): {problem.text}" for problem in layer.problems]
    assert wrong == []


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
