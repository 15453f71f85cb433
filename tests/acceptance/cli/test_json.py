"""`--json` as a script sees it: a number of the format in each object, and a schema for each output."""

from __future__ import annotations

import json

import jsonschema
from tests.fleet import Fleet


def test_an_output_is_what_its_schema_says(fleet: Fleet) -> None:
    """Issue 20, item 6: the schema that the installed package prints is the one that its output keeps."""
    fleet.add("look", command=("true",))
    schema = json.loads(fleet.cli("help", "--schema", "ps").stdout)
    (line,) = fleet.cli("ps", "--json").stdout.splitlines()
    row = json.loads(line)
    jsonschema.validate(row, schema)
    assert row["schema"] == 1
    for broken in ({**row, "state": 7}, {**row, "schema": 2}, {key: row[key] for key in row if key != "prompt"}):
        assert not jsonschema.Draft202012Validator(schema).is_valid(broken)
    jsonschema.validate({**row, "tomorrow": 1}, schema)  # fields are only ever added


def test_the_schemas_are_found_from_the_help(fleet: Fleet) -> None:
    every = json.loads(fleet.cli("help", "--schema").stdout)
    page = fleet.cli("help", "json").stdout
    assert all(f"| `{name}` |" in page for name in every["outputs"])
    assert "holdfast help --schema" in page
    refused = fleet.cli("help", "--schema", "alert ack", code=3).stderr
    assert "Did you mean `holdfast help --schema 'alerts ack'`?" in refused
