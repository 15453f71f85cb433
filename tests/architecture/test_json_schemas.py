"""Every `--json` output has a read model, a valid schema and a row in docs/reference/json.md."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import jsonschema
import pytest
from scripts import json_schemas
from tests import json_outputs

from holdfast.cli.help.json_schema import build_schema, read_schemas
from holdfast.cli.main import COMMANDS, build_parser
from holdfast.cli.output.json_models import OUTPUTS, WITHOUT_JSON


def calls(name: str) -> Iterator[list[str]]:
    """Yield the command, or each of its actions."""
    choices = [action.choices for action in build_parser(name)._actions if action.dest == "action" and action.choices]
    yield from ([name, str(word)] for word in choices[0]) if choices else [[name]]


def takes_json(name: str) -> bool:
    return any("--json" in action.option_strings for action in build_parser(name)._actions)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_json_or_a_reason(name: str) -> None:
    assert takes_json(name) != (name in WITHOUT_JSON)


@pytest.mark.parametrize(
    "words", [words for name in COMMANDS if takes_json(name) for words in calls(name)], ids=" ".join
)
def test_every_output_has_a_model(words: list[str]) -> None:
    """An action has a row of its own, or is `list`, which the row of the command stands for."""
    found = json_outputs.output_of(words)
    assert found is not None, f"add a row to cli/output/json_models.OUTPUTS: {words}"
    assert found.split() == words or words[1] == "list", f"add a row to cli/output/json_models.OUTPUTS: {words}"


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_row_is_a_command_that_takes_json(name: str) -> None:
    command, *more = name.split()
    parser = build_parser(command)
    assert takes_json(command)
    options = {text for action in parser._actions for text in action.option_strings}
    actions = {str(word) for action in parser._actions for word in action.choices or ()}
    assert set(more) <= options | actions


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_schema_is_valid(name: str) -> None:
    schema = build_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert not validator.is_valid({})
    assert not validator.is_valid({"schema": read_schemas()["schema"] + 1})


@pytest.mark.parametrize("name", sorted(read_schemas()["$defs"]))
def test_an_object_says_what_it_is(name: str) -> None:
    """Its docstring is its description in the page and in the schema."""
    assert read_schemas()["$defs"][name].get("description") or name == "StageRow"


def test_a_comment_behind_a_field_describes_it() -> None:
    found = read_schemas()["$defs"]
    assert found["LaunchRow"]["properties"]["role"] == {
        "type": ["string", "null"],
        "description": "the member of a parallel stage, or the named worker",
    }
    assert found["TaskRow"]["properties"]["branch"]["description"] == "the branch with the work"  # of its base class
    assert "launch" not in found["RunRow"]["required"]


def test_an_unknown_field_is_found() -> None:
    """The check of the harness: what no model has is a mistake, and so is a missing field or number."""
    good = '{"schema":1,"acknowledged":[1]}'
    json_outputs.check(["alerts", "ack", "1", "--json"], good)
    for bad in ('{"schema":1,"acknowledged":[1],"x":1}', '{"schema":1}', '{"acknowledged":[1]}'):
        with pytest.raises(AssertionError):
            json_outputs.check(["alerts", "ack", "1", "--json"], bad)
    json_outputs.check(["run", "x", "--", "--json"], "text")


def test_a_type_without_a_schema_is_refused() -> None:
    with pytest.raises(TypeError, match="for which there is no schema"):
        json_schemas.schema_of(argparse.Namespace)
