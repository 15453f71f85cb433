"""Files of settings: every mistake at once, each on its line, and never anything but a clear line."""

from __future__ import annotations

import math
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.base.units import parse_duration, parse_size
from holdfast.config.read_file import _OTHER_WORDS, LARGEST_FILE, read_settings_file
from holdfast.config.settings import SETTINGS, format_value
from holdfast.config.values import (
    OneOf,
    WholeNumber,
    parse_age,
    parse_boolean,
    parse_pairs,
    parse_text,
    parse_words,
    write_toml,
)

many = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def mistakes(path: Path, content: str | bytes, *, of_repository: bool = True) -> list[tuple[int | None, str]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [
        (problem.line, problem.text) for problem in read_settings_file(str(path), of_repository=of_repository).problems
    ]


MISTAKES: dict[str, tuple[str | bytes, int | None, str]] = {
    "unknown": ("\n\nhelth.grace = '5s'\n", 3, "there is no setting 'helth.grace'; did you mean 'health.grace'?"),
    "unknown in a table": ("[health]\n\ngrase = '5s'\n", 3, "'health.grase'; did you mean 'health.grace'?"),
    "unknown table": ("[helth]\ngrace = '5s'\n", 2, "'helth.grace'; did you mean 'health.grace'?"),
    "unknown empty table": ("#\n[helth]\n", 2, "there is no section 'helth'; did you mean 'health'?"),
    "outside of its table": ("max_attempts = 3\n", 1, "did you mean 'resume.max_attempts'?"),
    "a word of other tools": ("retries = 3\n", 1, "there is no setting 'retries'; did you mean 'retry.max'?"),
    "another such word": ("timeout = '1h'\n", 1, "did you mean 'health.max_runtime'?"),
    "nothing is near": ("zzzzzzzz = 3\n", 1, "there is no setting 'zzzzzzzz'"),
    "quoted": ('"we ird" = 1\n', 1, "there is no setting 'we ird'"),
    "bad value": ("[resume]\nmax_attempts = -1\n", 2, "resume.max_attempts: '-1' is not a whole number of at least 0"),
    "a number without unit": ("health.grace = 5\n", 1, "health.grace: '5' is not a duration"),
    "a float for a count": ("[resume]\nmax_attempts = 1.0\n", 2, "resume.max_attempts: '1.0' is not a whole number"),
    "a flag for a count": ("[resume]\nmax_attempts = true\n", 2, "resume.max_attempts: 'True' is not a whole number"),
    "text for a count": ("[resume]\nmax_attempts = '3'\n", 2, "'3' is not a whole number but text"),
    "too large a count": ("[resume]\nmax_attempts = 9999999999999999999999\n", 2, "is larger than"),
    "a number for text": ("agent = 3\n", 1, "agent: '3' is not text; write it in quotes"),
    "text for a flag": ("workspace.preserve_on_failure = 'maybe'\n", 1, "'maybe' is neither true nor false"),
    "no such word": ("[workspace]\nstrategy = 'cloud'\n", 2, "'cloud' is not one of worktree, clone"),
    "a list for a word": ("[workspace]\nstrategy = ['none']\n", 2, "is not one of worktree, clone"),
    "numbers in a list": ("[env]\npass = [1]\n", 2, "'[1]' is not a list of texts"),
    "numbers in a table": ("[env]\nset = { A = 1 }\n", 2, "is not a table of texts"),
    "a name that is none": ("[env.set]\n'A=B' = 'x'\n", 1, "'A=B' cannot be the name of an environment variable"),
    "a table for a value": ("[health.grace]\na = 1\n", 1, "'health.grace' is a table here, but a duration like 90s"),
    "a value for a table": ("\nhealth = 1\n", 2, "'health' is a section of settings, such as 'health.max_runtime'"),
    "an array of tables": ("[[health]]\ngrace = '5s'\n", 1, "'health' is a section of settings"),
    "a date": ("agent = 1979-05-27\n", 1, "agent: '1979-05-27' is not text"),
    "syntax": ("agent = 'x'\n\nagents = \n", 3, "cannot be read as TOML: Invalid value (column 10)"),
    "unfinished": ('a = 1\nb = """\n\n', 2, "cannot be read as TOML"),
    "twice": ("agent = 'x'\nagent = 'y'\n", 2, "cannot be read as TOML: Cannot overwrite a value"),
    "not UTF-8": (b"agent = 'x'\n# caf\xe9\n", 2, "cannot be read: it is not UTF-8 text"),
    "nested without end": ("a = " + "[" * 5000, None, "nested too deeply"),
    "a key without end": ("\n" + "a." * 30_000 + "b = 1\n", 2, "nested too deeply"),
    "a deep key": ("\n" + "a." * 900 + "b = 1\n", 2, "there is no section 'a.a.a.a.a.a.a.a.a'"),
    "a number of many digits": ("a = " + "9" * 5000, None, "cannot be read as TOML"),
    "too large": (b"#" * (LARGEST_FILE + 1), None, "it is larger than 64 KiB"),
    "of the supervisor": ("\nagents = 3\n", 2, "'agents' is a setting of the supervisor, not of a task"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_its_line(tmp_path: Path, name: str) -> None:
    content, line, expected = MISTAKES[name]
    found = mistakes(tmp_path / "holdfast.toml", content)
    assert len(found) == 1
    assert found[0][0] == line or (name == "unfinished" and found[0][0])  # its beginning or its end, as tomllib has it
    assert expected in found[0][1]


def test_words_of_other_tools_lead_to_settings_that_exist() -> None:
    assert set(_OTHER_WORDS.values()) <= set(SETTINGS)
    assert not set(_OTHER_WORDS) & set(SETTINGS)


def test_all_mistakes_at_once_and_the_rest_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.toml"
    path.write_text("agnt = 1\n[health]\ngrace = 5\nmax_runtime = '2h'\n[resume]\nmax_attempts = 'x'\n")
    layer = read_settings_file(str(path), of_repository=True)
    assert [problem.line for problem in layer.problems] == [1, 3, 6]
    assert layer.values == {"health.max_runtime": 7200.0}
    assert layer.lines["health.max_runtime"] == 4


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    found = mistakes(tmp_path / "c.toml", b"\xef\xbb\xbfagent = 'x'\r\n\r\nagnts = 1\r\n")
    assert found == [(3, "there is no setting 'agnts'; did you mean 'agents'?")]


def test_files_that_are_none(tmp_path: Path) -> None:
    """A pipe or an endless device, perhaps behind a link in a clone, neither hangs nor fills the memory."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "nothing").symlink_to(os.devnull)
    (tmp_path / "lost").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    said = {
        name: [p.text for p in read_settings_file(str(tmp_path / name), of_repository=True).problems]
        for name in ("pipe", "endless", "nothing", "lost", "loop", ".")
    }
    assert said == {
        "pipe": ["cannot be read: it is not a regular file"],
        "endless": ["cannot be read: it is not a regular file"],
        "nothing": [],
        "lost": [],
        "loop": ["cannot be read: Too many levels of symbolic links"],
        ".": ["cannot be read: it is a directory"],
    }
    assert not read_settings_file(str(tmp_path / "lost"), of_repository=True).exists
    assert not read_settings_file(str(tmp_path / "a" / "b"), of_repository=True).exists


toml_values = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8")),
        st.sampled_from(["5m", "none", "512MiB", "all"]),
    ),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


def as_toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, str):
        return write_toml(parse_text, value.replace("\0", ""))
    return repr(value).lower() if not isinstance(value, float) else f"{value!r}".replace("e+", "e")


@many
@given(st.lists(st.tuples(st.sampled_from(list(SETTINGS)), toml_values), unique_by=lambda pair: pair[0]))
def test_any_value_is_taken_or_explained_on_its_line(tmp_path: Path, lines: list[tuple[str, Any]]) -> None:
    content = "".join(f"{key} = {as_toml(value)}\n" for key, value in lines)
    tomllib.loads(content)
    path = tmp_path / "config.toml"
    path.write_text(content)
    layer = read_settings_file(str(path), of_repository=False)
    complained = {problem.line: problem.text for problem in layer.problems}
    for number, (key, _value) in enumerate(lines, start=1):
        assert (key in layer.values) != (number in complained)
    assert all(len(problem) < 250 and "\n" not in problem for problem in complained.values())


@many
@given(st.one_of(st.binary(max_size=200), st.text(st.characters(codec="utf-8"), max_size=200).map(str.encode)))
def test_any_bytes_are_read_or_explained(tmp_path: Path, content: bytes) -> None:
    mistakes(tmp_path / "any.toml", content)


# -- writing -----------------------------------------------------------------------------------------------------------

legal = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10)
legal_names = legal.filter(lambda name: name and "=" not in name)


@many
@given(
    st.one_of(
        st.tuples(st.just(parse_boolean), st.booleans()),
        st.tuples(st.just(parse_text), legal),
        st.tuples(st.just(parse_words), st.lists(legal, max_size=3)),
        st.tuples(st.just(parse_pairs), st.dictionaries(legal_names, legal, max_size=3)),
        st.tuples(st.just(WholeNumber(0)), st.integers(0, 2**31 - 1)),
        st.tuples(st.just(OneOf("a", "b")), st.sampled_from(["a", "b"])),
        st.tuples(st.just(parse_duration), st.integers(0, 10**9).map(lambda ms: ms / 1000)),
        st.tuples(st.just(parse_age), st.one_of(st.just(math.inf), st.integers(0, 10**8).map(float))),
        st.tuples(st.just(parse_size), st.integers(0, 2**62)),
    )
)
def test_what_is_written_is_read_back(case: tuple[Any, Any]) -> None:
    parse, value = case
    line = write_toml(parse, value)
    assert line.isprintable()  # whatever a clone put in, a person sees it
    assert parse(tomllib.loads(f"key = {line}")["key"]) == value


@pytest.mark.parametrize("key", [key for key, setting in SETTINGS.items() if setting.default is not None])
def test_every_default_is_a_value_that_its_parser_takes(key: str) -> None:
    default = SETTINGS[key].default
    assert SETTINGS[key].parse(tomllib.loads(f"key = {format_value(key, default)}")["key"]) == default
