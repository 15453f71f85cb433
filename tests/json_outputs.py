"""Every `--json` output that a test gets from the command line is checked against its schema (Fleet.cli).

A field that no read model has is a mistake here: it would not be in docs/reference/json.md. Outside, readers accept
fields that they do not know.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.cli.help.json_schema import read_schemas
from holdfast.core.event_kinds import EVENT_DATA

try:
    import jsonschema
except ImportError:  # an older virtual environment; tests/architecture/test_json_schemas.py fails there
    jsonschema = None


def check(words: Sequence[str], stdout: str, stderr: str = "") -> None:
    """Fail if a line of this output, or its error, is not what the schema of the command promises."""
    words = words[: words.index("--")] if "--" in words else words
    name = None if "--json" not in words or {"--help", "-h"} & set(words) else output_of(words)
    if name is None or jsonschema is None:
        return
    for line in stdout.splitlines():
        _check_line(name, line)
    for line in stderr.splitlines():
        is_error = not stdout and line.startswith("holdfast: ")
        assert not is_error, f"holdfast {name} --json: an error that is not JSON: {line}"
        if line.startswith("{"):
            _check_line("error", line)


def _check_line(name: str, line: str) -> None:
    value = json.loads(line)
    assert value.pop("schema", None) == read_schemas()["schema"], f"holdfast {name}: no schema number in {line}"
    errors = [jsonschema.exceptions.best_match(validator.iter_errors(value)) for validator in _validators(name)]
    assert None in errors, f"holdfast {name} --json: {errors[0].message} at {errors[0].json_path} in {line}"


def output_of(words: Sequence[str]) -> str | None:
    """Return the row of `OUTPUTS` that these arguments choose: the longest that fits."""
    given = {word.partition("=")[0] for word in words[1:]}
    rows = [name.split() for name in read_schemas()["outputs"]]
    fitting = [row for row in rows if row[:1] == list(words[:1]) and given.issuperset(row[1:])]
    return " ".join(sorted(fitting, key=lambda row: len(row))[-1]) if fitting else None


@cache
def _validators(name: str) -> list[Any]:
    definitions = {model: _closed(schema) for model, schema in read_schemas()["$defs"].items()}
    models = read_schemas()["outputs"][name]
    return [jsonschema.Draft202012Validator({"$ref": model, "$defs": definitions}) for model in models]


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "additionalProperties": False}


def check_events(home: Path) -> None:
    """Fail if an event of this home has data that docs/reference/events.md does not name."""
    try:
        with closing(sqlite3.connect(f"file:{home}/holdfast.db?mode=ro", uri=True)) as store:
            rows = store.execute(
                "SELECT DISTINCT kind, key FROM events, json_each(events.data) WHERE json_type(events.data) = 'object'"
            ).fetchall()
    except sqlite3.Error:  # no store, or a test damaged it
        return
    unknown = [f"{kind}: {field}" for kind, field in rows if field not in EVENT_DATA.get(kind, ())]
    assert not unknown, f"add these fields to core/event_kinds.EVENT_DATA: {sorted(unknown)}"
