"""JSON Schemas and docs/reference/json.md, made from the read models of the api (cli/output/json_models.OUTPUTS).

The comment behind a field is its description. `make docs` writes both.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from holdfast.api.fleet import models as fleet
from holdfast.api.fleet import schedule_models as schedules
from holdfast.api.home import models as home
from holdfast.api.tasks import models as tasks
from holdfast.api.work import models as work
from holdfast.cli.output.json_models import ERROR, OUTPUTS
from holdfast.cli.output.render import SCHEMA

MODULES = (tasks, fleet, schedules, home, work)
PLAIN: Mapping[object, dict[str, str]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}
Schema = dict[str, Any]


@cache
def names() -> dict[str, Any]:
    """Return every name of the model modules. Class names exist once, so one table serves all of them."""
    from holdfast.api.work.workspaces import Size

    return {"Size": Size} | {name: value for module in MODULES for name, value in vars(module).items()}


@cache
def comments() -> dict[str, dict[str, str]]:
    """Return the comment behind each field of each model: class → field → comment."""
    found: dict[str, dict[str, str]] = {}
    for module in MODULES:
        found |= _comments_of(inspect.getsource(module))
    return found


def _comments_of(source: str) -> dict[str, dict[str, str]]:
    lines = source.splitlines()
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            own = {
                ast.unparse(item.target): _comment(lines, item.end_lineno)
                for item in node.body
                if isinstance(item, ast.AnnAssign)
            }
            inherited = [found.get(ast.unparse(base), {}) for base in node.bases]  # a base stands above in its module
            found[node.name] = {name: text for base in inherited for name, text in base.items()} | own
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            tables = [argument for argument in node.value.args if isinstance(argument, ast.Dict)]
            keys = [key for table in tables for key in table.keys if isinstance(key, ast.Constant)]
            found[ast.unparse(node.targets[0])] = {str(key.value): _comment(lines, key.lineno) for key in keys}
    return found


def _comment(lines: list[str], number: int | None) -> str:
    return lines[(number or 0) - 1].partition("  # ")[2].strip()


def fields(model: type) -> dict[str, tuple[Any, bool, str]]:
    """Return the fields of a model: name → type, whether the field is always there, description."""
    found = {}
    for name, hint in get_type_hints(model, localns=names(), include_extras=True).items():
        is_optional = get_origin(hint) is NotRequired
        kind = get_args(hint)[0] if is_optional else hint
        is_required = not is_optional and bool(getattr(model, "__total__", True))
        found[name] = (kind, is_required, comments().get(model.__name__, {}).get(name, ""))
    return found


def is_model(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__total__")


def schema_of(kind: Any) -> Schema:
    """Return the JSON Schema of a type."""
    if is_model(kind):
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if kind is Any:
        return {}
    if kind in PLAIN:
        return dict(PLAIN[kind])
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        options = [schema_of(each) for each in arguments]
        plain = [each["type"] for each in options if each.keys() == {"type"}]
        return {"type": plain} if len(plain) == len(options) else {"anyOf": options}
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is dict:
        values = schema_of(arguments[1])
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    raise TypeError(f"a read model has a field of type {kind}, for which there is no schema")


def definition(model: type) -> Schema:
    """Return the schema of a read model. A reader accepts fields that it does not know: fields are only ever added."""
    found, properties = fields(model), {}
    for name, (kind, _required, description) in found.items():
        properties[name] = schema_of(kind) | ({"description": description} if description else {})
    required = [name for name, (_kind, is_required, _description) in found.items() if is_required]
    about = inspect.getdoc(model) or ""
    told = {"description": " ".join(about.split())} if about and not about.startswith("dict(") else {}
    return {**told, "type": "object", "properties": properties, "required": required}


def _used(models: Iterable[type]) -> Iterator[type]:
    """Yield the models and those of their fields, each once."""
    waiting, seen = list(models), set()
    while waiting:
        model = waiting.pop(0)
        if model in seen:
            continue
        seen.add(model)
        yield model
        waiting += [part for kind, _required, _text in fields(model).values() for part in _parts(kind)]


def _parts(kind: Any) -> Iterator[type]:
    if is_model(kind):
        yield kind
    for argument in get_args(kind):
        yield from _parts(argument)


def _models() -> list[type]:
    """Return all models of all outputs, by name."""
    return sorted(
        _used([ERROR, *(model for row in OUTPUTS.values() for model in row)]), key=lambda model: model.__name__
    )


def schemas() -> Schema:
    """Return all schemas in one document: the models, and which of them each command prints."""
    models = _models()
    outputs = {name: [f"#/$defs/{model.__name__}" for model in row] for name, row in OUTPUTS.items()}
    outputs["error"] = [f"#/$defs/{ERROR.__name__}"]
    return {"schema": SCHEMA, "outputs": outputs, "$defs": {model.__name__: definition(model) for model in models}}


def schemas_page() -> str:
    """Return the document with one field on a line, so that a change of a field is a change of a line."""
    found = schemas()
    outputs = ",\n".join(f"  {_text(name)}: {_text(models)}" for name, models in found["outputs"].items())
    models = ",\n".join(f"  {_text(name)}: {_model_text(model)}" for name, model in found["$defs"].items())
    return f'{{\n "schema": {found["schema"]},\n "outputs": {{\n{outputs}\n }},\n "$defs": {{\n{models}\n }}\n}}'


def _model_text(model: Schema) -> str:
    properties = ",\n".join(f"    {_text(name)}: {_text(schema)}" for name, schema in model["properties"].items())
    rest = ", ".join(f"{_text(key)}: {_text(value)}" for key, value in model.items() if key != "properties")
    return f'{{{rest},\n   "properties": {{\n{properties}\n   }}}}'


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# -- docs/reference/json.md --------------------------------------------------------------------------------------------

INTRODUCTION = """# JSON output

Every command that reads or acts takes `--json`. Lists print one object per line. Absent values are `null`; moments are
seconds since the epoch, durations are seconds. Every object, also each line of a list, has `schema`, the number of this
format: {number}. Fields are only ever added. The number rises if a field goes or gets another meaning.

The same as JSON Schema: `holdfast help --schema ps`, `holdfast help --schema "alerts ack"`, and without a name all of
them in one document. Every output of every acceptance test is checked against its schema.

**Several tasks.** A command that acts on several tasks prints one object for each.

**Errors.** Standard output has results only. Where a command with `--json` ends with an error, the last line of
standard error is one [object](#errorrow): what happened, what was kept, the command to type, the exit code. Other lines
of standard error are notes for people. `holdfast help --schema error` has its schema. Some exit codes are results, not
errors: a task that failed (1) or paused (75), a finding of `doctor` (1).
"""


def json_page(table: Any) -> str:
    rows = [
        (f"`{name}`", " or ".join(_link(model) for model in models), _first_sentence(models))
        for name, models in OUTPUTS.items()
    ]
    parts = [INTRODUCTION.format(number=SCHEMA), table(("command", "object", "what it is"), rows), "## Objects"]
    for model in _models():
        found = fields(model)
        lines = [
            (f"`{name}`", _type_words(kind), _markdown(text) if is_required else _markdown(f"may be absent. {text}"))
            for name, (kind, is_required, text) in found.items()
        ]
        about = inspect.getdoc(model) or ""
        told = "" if about.startswith("dict(") else " ".join(about.split())
        parts += [f"### {model.__name__}", *([told] if told else []), table(("field", "type", "meaning"), lines)]
    return "\n\n".join(part.strip() for part in parts)


def _first_sentence(models: tuple[type, ...]) -> str:
    about = [" ".join((inspect.getdoc(model) or "").split()) for model in models]
    return " / ".join(text.partition(". ")[0].rstrip(".") for text in about if not text.startswith("dict("))


def _markdown(text: str) -> str:
    return re.sub(r"\bNone\b", "`null`", text).strip()


def _link(model: type) -> str:
    return f"[{model.__name__}](#{model.__name__.lower()})"


def _type_words(kind: Any) -> str:
    if is_model(kind):
        return _link(kind)
    if kind in PLAIN:
        return PLAIN[kind]["type"]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list:
        return f"list of {_type_words(arguments[0])}"
    if origin is dict:
        return "object" if arguments[1] is Any else f"object of {_type_words(arguments[1])}"
    if origin is Literal:
        return " or ".join(f"`{word}`" for word in arguments)
    return " or ".join(map(_type_words, arguments)) or "any"
