"""The line of every key, in generated documents whose lines are known because the test wrote them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config.problems import Path, find_key_lines

bare_names = st.text("abcXYZ019_-", min_size=1, max_size=5)
letters = st.characters(codec="utf-8", exclude_characters="\0")
any_names = st.text(letters, max_size=6)
names = st.one_of(bare_names, any_names)

# Values whose text looks like keys, headers and comments: a careless walk stumbles over each of them.
NASTY = 'x = 1\n[not.a.table]\n# no comment\nkey = "'


def basic(text: str) -> str:
    escaped = "".join(
        letter if letter.isprintable() and letter not in '"\\' else f"\\U{ord(letter):08x}" for letter in text
    )
    return f'"{escaped}"'


@st.composite
def spelled(draw: st.DrawFn, name: str) -> str:
    """One way to write a name as a key."""
    ways = [basic(name)]
    if name and all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in name):
        ways.append(name)
    if "'" not in name and all(letter.isprintable() for letter in name):
        ways.append(f"'{name}'")
    return draw(st.sampled_from(ways))


texts = st.one_of(st.just(NASTY), st.text(letters, max_size=20))
scalars = st.one_of(
    st.sampled_from(["1", "-0.5e3", "true", "1979-05-27 07:32:00Z", "0xdead", "inf", "''", '""', "''''''", '""""""']),
    texts.map(basic),
    st.sampled_from(["'it [has] = { # all'", '"""a""b"""""', "'''it''s\n'''''", f'"""{basic(NASTY)[1:-1]}"""']),
    st.just('"""\n[x]\ny = 1 # no \\"""\n"""'),
    st.just("'''\n[x]\ny = 1\n'''"),
    st.just('"""\\\n   joined"""'),
)
gaps = st.sampled_from(["", " ", "\n", " # [a] = {\n", "\n\n\t"])


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    entries: list[str] = draw(st.lists(inner, max_size=3))
    parts = [f"{draw(gaps)}{entry}{draw(gaps)}" for entry in entries]
    comma = draw(st.sampled_from(["", ","])) if entries else ""
    return f"[{','.join(parts)}{comma}{draw(gaps)}]"


inline_in_array = st.sampled_from(["{ a = 1, b.c = [2] }", "{}"])
values = st.recursive(scalars, lambda inner: arrays(st.one_of(inner, inline_in_array)), max_leaves=4)


class Writer:
    """Writes a document and notes, by itself, on which line it first wrote each key."""

    def __init__(self) -> None:
        self.text = ""
        self.lines: dict[Path, int] = {}

    def write(self, text: str) -> None:
        self.text += text

    def note(self, path: Path) -> None:
        self.lines.setdefault(path, self.text.count("\n") + 1)


def write_key(draw: st.DrawFn, writer: Writer, table: Path, key: Path) -> None:
    for position, name in enumerate(key):
        if position:
            writer.write(draw(st.sampled_from([".", " . "])))
        writer.note((*table, *key[: position + 1]))
        writer.write(draw(spelled(name)))


def write_pairs(draw: st.DrawFn, writer: Writer, table: Path, taken: set[Path]) -> None:
    for key in draw(st.lists(st.lists(names, min_size=1, max_size=3).map(tuple), max_size=4)):
        path = (*table, *key)
        if any(path[: len(other)] == other or other[: len(path)] == path for other in taken if len(other) > len(table)):
            continue  # TOML names a thing once
        taken.add(path)
        writer.write(draw(st.sampled_from(["", "  ", "# c = 1\n", "\n"])))
        write_key(draw, writer, table, key)
        writer.write(draw(st.sampled_from(["=", " = "])))
        if draw(st.integers(0, 4)) == 0:
            write_inline(draw, writer, path)
        else:
            writer.write(draw(values))
        writer.write(draw(st.sampled_from(["\n", " # end = 1\n", "\t\n\n"])))


def write_inline(draw: st.DrawFn, writer: Writer, table: Path) -> None:
    writer.write("{")
    for position, name in enumerate(draw(st.lists(names, max_size=3, unique=True))):
        writer.write(", " if position else " ")
        write_key(draw, writer, table, (name,))
        writer.write(" = ")
        writer.write(draw(values.filter(lambda value: "\n" not in value)))
    writer.write(" }")


@st.composite
def documents(draw: st.DrawFn) -> Writer:
    writer = Writer()
    taken: set[Path] = set()
    write_pairs(draw, writer, (), taken)
    for number in range(draw(st.integers(0, 4))):
        header = (f"t{number}", *draw(st.lists(names, max_size=2)))
        brackets = draw(st.sampled_from([("[", "]"), ("[[", "]]")]))
        if any(header[: len(other)] == other for other in taken):
            continue
        writer.write(brackets[0] + draw(st.sampled_from(["", " "])))
        write_key(draw, writer, (), header)
        writer.write(draw(st.sampled_from(["", " "])) + brackets[1] + draw(st.sampled_from(["\n", " # [x]\n"])))
        write_pairs(draw, writer, header, taken)
    return writer


def paths_of(document: Any, prefix: Path = ()) -> Iterator[Path]:
    """Every key that a reader of the document can see. Entries of arrays have no names; their tables' keys do."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield (*prefix, name)
            yield from paths_of(value, (*prefix, name))


@settings(max_examples=150, deadline=None)
@given(documents(), st.booleans())
def test_every_key_is_found_on_its_line(writer: Writer, windows: bool) -> None:
    text = writer.text.replace("\n", "\r\n") if windows else writer.text
    parsed = tomllib.loads(text)  # the generator writes TOML, or this test means nothing
    found = find_key_lines(text)
    assert found == writer.lines
    assert set(paths_of(parsed)) <= found.keys()


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        pytest.param('a = """\n\n"""\nb = 1\n', ("b",), 4, id="after-a-multi-line-string"),
        pytest.param("a = [\n  1, # ]\n]\nb = 1\n", ("b",), 4, id="after-an-array"),
        pytest.param('[x]\n["y z"."q.r"]\nk = 1\n', ("y z", "q.r", "k"), 3, id="quoted-header"),
        pytest.param("a.b.c = 1\n", ("a", "b"), 1, id="a-table-made-by-a-dotted-key"),
        pytest.param("[[a]]\nb = 1\n[[a]]\nb = 2\n", ("a", "b"), 2, id="the-first-of-an-array-of-tables"),
        pytest.param("a = { b = { c = 1 } }\n", ("a", "b", "c"), 1, id="inline"),
        pytest.param("", (), None, id="empty"),
    ],
)
def test_by_example(text: str, path: Path, line: int | None) -> None:
    tomllib.loads(text)
    assert find_key_lines(text).get(path) == line


def test_entries_of_arrays_have_numbers_at_any_depth() -> None:
    text = (
        "[[w.x.stage]]\nname = 1\n[[w.x.stage.member]]\nname = 2\n[[w.x.stage.member]]\nname = 3\n"
        "[[w.x.stage]]\nmembers = [\n  { name = 4 },\n  { name = { a = 5 } },\n]\ntext = '''\nfirst\n'''\n"
        "[[w.y.stage]]\nplain = [[{ z = 1 }], 2]\n"
    )
    tomllib.loads(text)
    found = find_key_lines(text, numbered=True)
    expected = {
        ("w", "x", "stage[0]"): 1,
        ("w", "x", "stage[0]", "name"): 2,
        ("w", "x", "stage[0]", "member[0]"): 3,
        ("w", "x", "stage[0]", "member[1]", "name"): 6,
        ("w", "x", "stage[1]"): 7,
        ("w", "x", "stage[1]", "members"): 8,
        ("w", "x", "stage[1]", "members[0]", "name"): 9,
        ("w", "x", "stage[1]", "members[1]", "name", "a"): 10,
        ("w", "x", "stage[1]", "text"): 12,
        ("w", "x", "stage[1]", "text", "="): 13,
        ("w", "y", "stage[0]", "plain"): 16,
    }
    assert {path: found.get(path) for path in expected} == expected
    assert ("name",) not in found
    assert not any("z" in path for path in found)
