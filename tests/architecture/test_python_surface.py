"""The public names of `import holdfast`, each with its signature or its fields: tests/golden/python_api.txt."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import holdfast
from holdfast import Task
from holdfast.core.states import TaskState

SURFACE = Path(__file__).resolve().parents[1] / "golden" / "python_api.txt"


def surface() -> Iterator[str]:
    """Yield every public name with its signature, or with its fields."""
    for name in sorted(set(dir(holdfast)) - {"__version__"}):
        thing = getattr(holdfast, name)
        if not isinstance(thing, type):
            yield f"{name} = {thing}"
            continue
        assert inspect.getdoc(thing), f"{name} has no docstring"
        if is_dataclass(thing):
            yield f"@dataclass {name}"
            yield from (f"    {field.name}: {field.type}" for field in fields(thing))
        elif hasattr(thing, "__total__"):
            yield f"{name}(TypedDict)"
            yield from (f"    {key}: {hint.__forward_arg__}" for key, hint in thing.__annotations__.items())
        else:
            yield f"class {name}({thing.__bases__[0].__name__})"
        for member, value in vars(thing).items():
            if (member == "__init__" and name == "Client") or (not member.startswith("_") and name != "TaskOptions"):
                yield from _member(member, value)


def _member(name: str, value: object) -> Iterator[str]:
    if isinstance(value, property) and value.fget is not None:
        assert value.__doc__, name
        yield f"    @property {name} -> {inspect.signature(value.fget).return_annotation}"
    elif inspect.isfunction(value):
        assert value.__doc__, name
        inner = inspect.unwrap(value)
        prefix = "async def" if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner) else "def"
        signature = str(inspect.signature(value)).replace("''", '""').replace("'", "")
        yield f"    {prefix} {name}{signature}"


def test_the_public_surface(tmp_path: Path) -> None:
    """A change of a public name or signature is a change of tests/golden/python_api.txt, which a person reads."""
    told = "\n".join(surface()) + "\n"
    (tmp_path / "now.txt").write_text(told)
    assert told == SURFACE.read_text(), f"if that is meant: cp {tmp_path}/now.txt {SURFACE}"
    assert list(get_type_hints(Task)["state"].__args__) == [str(state) for state in TaskState]
