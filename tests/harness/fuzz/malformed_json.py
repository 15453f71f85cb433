"""JSON that is nearly what was expected: values of other types, sizes, depths, halves of characters, missing keys."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.harness.fuzz.words import Draw, mutated, noise

STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1e308),
    *(float("inf"), float("-inf"), float("nan"), "", " ", "x", "9" * 30, "\0", "a\nb", "\x1b[31m", "\ud800", "\udcff"),
    *("../..", "/", "-x", "nan", "true", "1e999", "é日本", "x" * 5000, [], {}, [None], [[]], ["x"], {"a": 1}, {"": []}),
)
DEEP = 5000


def bend(draw: Draw, value: Any, most: int = 3) -> Any:
    """The same with a few of its values changed, moved or lost."""
    changed = copy.deepcopy(value)
    for _ in range(draw.randrange(1, most + 1)):
        slots = list(_slots(changed))
        if not slots:
            return copy.deepcopy(draw.choice(STRANGE))
        parent, key = draw.choice(slots)
        how = draw.random()
        if how < 0.15:
            del parent[key]
        elif how < 0.3 and isinstance(parent[key], str):
            parent[key] = mutated(draw, parent[key])
        elif how < 0.4 and isinstance(parent, dict):
            parent[mutated(draw, str(key))] = parent.pop(key)
        elif how < 0.5:
            parent[key] = copy.deepcopy(draw.choice(slots)[0])  # a part of it, or all of it once more
        else:
            parent[key] = copy.deepcopy(draw.choice(STRANGE))
    return changed


def written(draw: Draw, value: Any) -> bytes:
    """As a file or an answer; now and then cut, dirty, deep, or no JSON at all."""
    dice = draw.random()
    if dice < 0.03:
        return draw.choice((b"[" * DEEP, b'{"a":' * DEEP, b"", b"null", b"[]", b"\xff\xfe", b"NaN", b"9" * 5000))
    if dice < 0.06:
        return noise(draw).encode(errors="surrogateescape")
    content = json.dumps(value, ensure_ascii=draw.random() < 0.7).encode(errors="surrogatepass")
    if dice < 0.12:
        return content[: draw.randrange(len(content) + 1)]
    if dice < 0.16 and content:
        place = draw.randrange(len(content))
        return content[:place] + bytes([draw.randrange(256)]) + content[place + 1 :]
    return content


def _slots(value: Any) -> Iterator[tuple[Any, Any]]:
    items: Sequence[Any] = (
        list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in items:
        yield value, key
        yield from _slots(value[key])
