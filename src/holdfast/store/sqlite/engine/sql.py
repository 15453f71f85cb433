"""Named statements from store/sqlite/queries, and the migrations."""

from __future__ import annotations

import os
from functools import cache

_SQLITE = os.path.dirname(os.path.dirname(__file__))


@cache
def statements(name: str) -> dict[str, str]:
    """All statements of queries/<name>.sql by their `-- name:` line. `{x}` in one stands for the part named x."""
    found: dict[str, str] = {}
    with open(os.path.join(_SQLITE, "queries", f"{name}.sql"), encoding="utf-8") as file:
        for block in file.read().split("-- name: ")[1:]:
            title, _, body = block.partition("\n")
            for part, text in found.items():
                body = body.replace(f"{{{part}}}", text)
            found[title.strip()] = body.strip()
    return found


@cache  # every opening of a store asks how many there are
def migrations() -> list[tuple[int, str]]:
    """Every migration as (number, script), in order, without gaps."""
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
