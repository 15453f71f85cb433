"""Functions that read JSON from the store. A record that cannot be read means a damaged store, and is reported as a
damaged store."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from holdfast.base.errors import Unavailable

_Given = ParamSpec("_Given")
_Read = TypeVar("_Read")


def load_stored_json(text: str, *needed: str, shape: type = object) -> Any:
    """Parse a stored text. `needed`: keys that every version wrote. `shape`: the required type, where no other check
    follows."""
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged_store_error(error) from error
    for key in needed:
        if not isinstance(value, dict) or key not in value:
            raise damaged_store_error(f"it has no '{key}'")
    if not isinstance(value, shape):
        raise damaged_store_error(f"{type(value).__name__} where {shape.__name__} should be")
    return value


def stored_data_errors(read: Callable[_Given, _Read]) -> Callable[_Given, _Read]:
    """Decorate a function that only interprets stored data: every error that the data causes is reported as a damaged
    store."""

    @wraps(read)
    def reading(*words: _Given.args, **more: _Given.kwargs) -> _Read:
        try:
            return read(*words, **more)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
            raise damaged_store_error(f"{type(error).__name__} {error}") from error

    return reading


def damaged_store_error(why: object) -> Unavailable:
    return Unavailable(
        f"The store holds a record that cannot be read ({why}): it is damaged. It was left as it is. Copies are in "
        "`backups` of the home: restore one with `holdfast restore FILE` (the damaged one is kept aside)."
    )
