"""Mistakes in the settings with their file and line, and the line of every key in a TOML document.

tomllib returns values without their lines, so `find_key_lines` walks the document a second time. It is only for
documents that tomllib has accepted, and validates nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from itertools import count

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import UsageError

Path = tuple[str, ...]

TEXT = "="  # last part of a path: the line of the first letter of a multi-line text
DEEPEST = 32  # parts of a key that are distinguished; without a limit, `a.a.a.…` would need quadratic memory
FLAG = "flag"  # the place of a setting that an option of the command line gives
OPTIONS = {
    "agent": "--agent",
    "agents": "--agents",
    "workspace.strategy": "--workspace",
    "resume.max_attempts": "--max-resumes",
    "gate.command": "--gate",
    "gate.tries": "--tries",
}
_TRIVIA = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}'  # up to two quotes may come right before the closing three
    r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_PLAIN_VALUE = re.compile(r"[^,\]}#\n]+")


def find_key_lines(document: str, *, numbered: bool = False) -> dict[Path, int]:
    """Return the first line of each key or table, counted from 1: {("health", "grace"): 12, ("health",): 11, …}.

    `numbered`: include each entry of an array of tables: {("worker[1]", "name"): 7, ("a", "b[0]", "c[2]"): 9, …}.
    """
    walk = _TomlWalker(document.replace("\r\n", "\n"))
    found = walk.document()
    return found | walk.numbered if numbered else found


class _TomlWalker:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0  # `_line` is the line of this offset
        self.found: dict[Path, int] = {}
        self.numbered: dict[Path, int] = {}
        self._entries: dict[Path, int] = {}  # array of tables → number of entries so far
        self._entry: tuple[Path, Path] | None = None  # the current entry: (("worker",), ("worker[0]",))

    def document(self) -> dict[Path, int]:
        table: Path = ()
        self._skip(_TRIVIA)
        while self._at < len(self._text):
            if self._next("["):
                self._entry = None
                is_entry = self._next("[")
                table = self._key(())
                self._enter(table, is_entry=is_entry)
                self._next("]")
                self._next("]")
            else:
                self._pair(table)
            self._skip(_TRIVIA)
        return self.found

    def _enter(self, table: Path, *, is_entry: bool) -> None:
        """Begin a table. Keys of an entry of an array of tables are also recorded by number: ("worker[0]", "name")."""
        numbered: Path = ()
        for depth, part in enumerate(table, start=1):
            array = (*numbered, part)
            if is_entry and depth == len(table):
                self._entries[array] = self._entries.get(array, 0) + 1
            count = self._entries.get(array)
            numbered = array if count is None else (*numbered, f"{part}[{count - 1}]")
        if numbered != table:
            self._entry = (table, numbered)
            self._note(table, self._line_here())

    def _pair(self, table: Path) -> None:
        key = self._key(table)
        self._next("=")
        self._value(key)

    def _key(self, table: Path) -> Path:
        """Read a dotted key. Every prefix of the key is recorded as well, because it creates a table."""
        path = table
        while True:
            self._skip(_SPACE)
            line = self._line_here()
            path = (*path, self._key_part())[:DEEPEST]
            self._note(path, line)
            self._skip(_SPACE)
            if not self._next("."):
                return path

    def _note(self, path: Path, line: int) -> None:
        self.found.setdefault(path, line)
        numbered = self._numbered(path)
        if numbered is not None:
            self.numbered.setdefault(numbered, line)

    def _numbered(self, path: Path) -> Path | None:
        """Return the path with the number of the current entry, or None if the path is outside of any entry."""
        if self._entry is None or path[: len(self._entry[0])] != self._entry[0]:
            return None
        return (*self._entry[1], *path[len(self._entry[0]) :])

    def _key_part(self) -> str:
        if self._text[self._at] in "\"'":
            return str(tomllib.loads(f"key = {self._skip(_STRING)}")["key"])
        return self._skip(_BARE_KEY)

    def _value(self, path: Path | None) -> None:
        """Skip a value. `path` is the key of the value. It is None inside arrays, because their entries have no
        names."""
        self._skip(_SPACE)
        if self._next("["):
            numbers = count()
            self._items("]", lambda: self._item(path, next(numbers)))
        elif self._next("{"):
            if path is None:
                kept, entry, self.found, self._entry = self.found, self._entry, {}, None
                self._items("}", lambda: self._pair(()))
                self.found, self._entry = kept, entry
            else:
                self._items("}", lambda: self._pair(path))
        elif self._text[self._at] in "\"'":
            self._string(path)
        else:
            self._skip(_PLAIN_VALUE)
        self._skip(_SPACE)

    def _string(self, path: Path | None) -> None:
        """Skip a text. For a multi-line text, also record the line of its first letter, under (…, TEXT).

        With that line, a line number within the text can be converted to a line of the file.
        """
        line, raw = self._line_here(), self._skip(_STRING)
        numbered = None if path is None else self._numbered(path)
        if numbered is not None and "\n" in raw and (raw[0] == "'" or "\\" not in raw):
            self.numbered.setdefault((*numbered, TEXT), line + (raw[3:4] == "\n"))

    def _item(self, array: Path | None, number: int) -> None:
        """Skip an entry of an array. Keys of an inline table are recorded only with the number of the entry."""
        if array is None or not self._text.startswith("{", self._at):
            self._value(None)
            return
        line, kept, entry = self._line_here(), self.found, self._entry
        *before, last = self._numbered(array) or array
        self.found, self._entry = {}, ((), (*before, f"{last}[{number}]")[:DEEPEST])
        self.numbered.setdefault(self._entry[1], line)
        self._value(())
        self.found, self._entry = kept, entry

    def _items(self, end: str, entry: Callable[[], None]) -> None:
        self._skip(_TRIVIA)
        while not self._next(end):
            entry()
            self._skip(_TRIVIA)
            self._next(",")
            self._skip(_TRIVIA)

    # -- steps -----------------------------------------------------------------------------------------------------

    def _next(self, letter: str) -> bool:
        """Skip `letter` and return True, if it comes next."""
        if not self._text.startswith(letter, self._at):
            return False
        self._at += 1
        return True

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"not a TOML document at offset {self._at}")
        self._at = found.end()
        return found.group()

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """One mistake. `place` is a file, a variable or a flag. `line` is known for most mistakes in files."""

    place: str
    line: int | None
    text: str

    def __str__(self) -> str:
        if self.place == FLAG:
            key, _, what = self.text.partition(": ")
            return f"{OPTIONS.get(key, key)}: {what}"
        return f"{format_place(self.place, self.line)}: {self.text}"


class ConfigError(UsageError):
    """An error for settings with mistakes. None of the settings were applied. Its message is the first mistake."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        self.problems = tuple(problems)
        more = len(problems) - 1
        rest = f" (and {more} more mistake{'s' if more > 1 else ''}: `holdfast config check` lists all)" if more else ""
        super().__init__(f"{problems[0]}{rest}")


def format_place(place: str, line: int | None) -> str:
    return place if line is None else f"{place}:{line}"
