"""The JSON Schemas of `--json` outputs, which `make docs` writes to cli/output/schemas.json from the read models."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from typing import Any

from holdfast.base.errors import NotFound

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@cache
def read_schemas() -> dict[str, Any]:
    """Return the document with all of them: `schema`, `outputs` (output → models) and `$defs` (the models)."""
    import json

    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "output", "schemas.json")
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def build_schema(name: str) -> dict[str, Any]:
    """Return the schema of one output, such as `ps` or `alerts ack`, with the models that it needs."""
    found = read_schemas()
    if name not in found["outputs"]:
        import difflib

        close = difflib.get_close_matches(name, found["outputs"], n=1)
        hint = f" Did you mean `holdfast help --schema '{close[0]}'`?" if close else ""
        raise NotFound(f"There is no JSON output '{name}'.{hint} `holdfast help json` lists them.")
    models = found["outputs"][name]
    return {
        "$schema": DIALECT,
        "title": f"holdfast {name} --json: one line",
        "type": "object",
        "properties": {"schema": {"const": found["schema"]}},
        "required": ["schema"],
        "anyOf": [{"$ref": model} for model in models],
        "$defs": _needed(models, found["$defs"]),
    }


def _needed(models: Iterable[str], definitions: dict[str, Any]) -> dict[str, Any]:
    needed: dict[str, Any] = {}
    waiting = list(models)
    while waiting:
        name = waiting.pop().rpartition("/")[2]
        if name not in needed:
            needed[name] = definitions[name]
            waiting += _references(definitions[name])
    return dict(sorted(needed.items()))


def _references(value: object) -> list[str]:
    if isinstance(value, dict):
        here = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return [*here, *(found for part in value.values() for found in _references(part))]
    return [found for part in value for found in _references(part)] if isinstance(value, list) else []
