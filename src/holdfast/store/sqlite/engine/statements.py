"""Named statements from queries/*.sql run on one connection, and the migrations.

Rows are returned as dicts or tuples. The number of changed rows shows whether a compare-and-set succeeded. Values bound
under one of the names in WORDS are text from agents, tools or people about what happened. Secrets are redacted from
them here, the last place before the disk. Values that work depends on (prompts, settings, paths, ids) stay as they are.
JSON in such text is redacted before it is written (`rows.encode_words`): afterwards an escape could be cut in two.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import apsw

_SQLITE = os.path.dirname(os.path.dirname(__file__))


@cache
def statements(name: str) -> dict[str, str]:
    """Return the statements of queries/<name>.sql."""
    with open(os.path.join(_SQLITE, "queries", f"{name}.sql"), encoding="utf-8") as file:
        return parse_statements(file.read())


def parse_statements(source: str) -> dict[str, str]:
    """Return all statements by the name in their `-- name:` line. `{x}` in a statement is replaced by the part named
    x."""
    found: dict[str, str] = {}
    for block in source.split("-- name: ")[1:]:
        title, _, body = block.partition("\n")
        for part, text in found.items() if "{" in body else ():
            body = body.replace(f"{{{part}}}", text)
        found[title.strip()] = body.strip()
    return found


@cache  # every opening of a store needs their number
def migrations() -> list[tuple[int, str]]:
    """Return every migration as (number, script), in order, without gaps."""
    folder = os.path.join(_SQLITE, "migrations")
    names = sorted(name for name in os.listdir(folder) if name.endswith(".sql"))
    scripts = []
    for expected, name in enumerate(names, start=1):
        number = int(name.split("_", 1)[0])
        if number != expected:
            raise ValueError(f"migration {name} is out of order: expected number {expected}")
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            scripts.append((number, file.read()))
    return scripts


Row = dict[str, Any]
_OF_RUNS = ("decision", "error_tail", "error_text", "reason", "ruling", "text", "timeout_why", "why")
REDACTED_NAMES = frozenset((*_OF_RUNS, "answer", "message", "remedy", "told", "trouble"))


class Statements:
    """The statements of one queries/*.sql file, on one connection. Every call runs its statement to the end."""

    def __init__(self, connection: apsw.Connection, file: str) -> None:
        self._connection = connection
        self._cursor = connection.cursor()  # one for all calls: making another costs a third of a small statement
        self._statements = statements(file)

    def rows(self, name: str, **bindings: Any) -> list[Row]:
        cursor = self._cursor.execute(self._statements[name], _redact_bindings(bindings))
        columns: list[str] | None = None
        found: list[Row] = []
        for row in cursor:
            if columns is None:
                columns = [column[0] for column in cursor.get_description()]
            found.append(dict(zip(columns, row, strict=True)))
        return found

    def tuples(self, name: str, **bindings: Any) -> list[tuple[Any, ...]]:
        """Return rows as tuples, without looking up the names of columns. For statements that list their columns and
        run often."""
        return self._cursor.execute(self._statements[name], _redact_bindings(bindings)).fetchall()

    def row(self, name: str, **bindings: Any) -> Row | None:
        found = self.rows(name, **bindings)
        return found[0] if found else None

    def value(self, name: str, **bindings: Any) -> Any:
        return self._cursor.execute(self._statements[name], _redact_bindings(bindings)).get

    def put(self, name: str, values: tuple[Any, ...]) -> None:
        """Run an INSERT with its values in the order of its question marks: the fastest way."""
        self._cursor.execute(self._statements[name], values)

    def change(self, name: str, **bindings: Any) -> int:
        """Run a writing statement. Return how many rows it changed."""
        self._cursor.execute(self._statements[name], _redact_bindings(bindings))
        return self._connection.changes()


def _redact_bindings(bindings: dict[str, Any]) -> dict[str, Any]:
    for name in REDACTED_NAMES & bindings.keys():
        if isinstance(bindings[name], str):
            from holdfast.secrets.redact import redact_text  # `ps` binds no words, and has to start fast

            bindings[name] = redact_text(bindings[name])
    return bindings
