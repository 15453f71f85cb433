"""What the store holds as JSON, read back. A record that cannot be read is a damaged store, and is told as that."""

from __future__ import annotations

import json
from typing import Any

from holdfast.errors import Unavailable


def recorded(text: str, *needed: str) -> Any:
    """`needed`: keys that were written whatever the version."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise damaged(error) from error
    for key in needed:
        if key not in value:
            raise damaged(f"it has no '{key}'")
    return value


def damaged(why: object) -> Unavailable:
    return Unavailable(
        f"The store holds a record that cannot be read ({why}): it is damaged. It was left as it is. Copies are in "
        "`backups` of the home: bring one back with `holdfast restore FILE` (the damaged one is kept aside)."
    )
