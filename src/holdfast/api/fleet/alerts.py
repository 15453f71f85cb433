"""What a person should see at once, whatever is on their screen: critical alerts, and agents that just died."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from holdfast.api.queries import Queries
from holdfast.base.stored_json import recorded

Row = dict[str, Any]
Episode = tuple[int, float]  # an alert's number and when it was raised: after a restore, numbers come again
NEWEST = 3
RUNG = "rung.json"  # in the home: which alerts a bell was rung for


def critical_mark(queries: Queries) -> Row:
    """Cheap: equal as long as the same alerts are open and critical."""
    return queries.view("critical_mark")[0]


def critical(queries: Queries) -> tuple[list[Episode], list[Row]]:
    """Every open critical alert by number and time; the newest of them whole, first."""
    opened = [(int(row["id"]), float(row["at"])) for row in queries.view("critical_alerts")]
    newest = [
        {**row, "details": recorded(row["details"], shape=dict)}
        for number, _at in opened[:NEWEST]
        for row in queries.view("alert", id=number)
    ]
    return opened, newest


def deaths(queries: Queries, after: int) -> tuple[int, list[Row]]:
    """Agents that died without being asked to, as the events behind `after` tell it, oldest first; and up to which
    event was read. Each run is there when its agent is dead, and again when it is decided what follows (`decided`)."""
    last = queries.last_seq()
    if last <= after:  # nothing new; or another store, from a backup: go on from where that is
        return last, []
    from holdfast.core.runs.crashes import CRASHES

    found = []
    for row in reversed(queries.view("deaths", after=after, last=last)):
        data = recorded(row.pop("data"), shape=dict)
        if data.get("outcome") in CRASHES:
            found.append({**row, "decided": row.pop("kind") == "crash.recorded"})
    return last, found


def rung(home: str) -> frozenset[Episode]:
    """For which alerts a bell was rung on this home; what cannot be read was not rung for."""
    try:
        with open(os.path.join(home, RUNG), encoding="utf-8") as file:
            return frozenset((int(number), float(at)) for number, at in json.load(file))
    except (OSError, ValueError, TypeError):
        return frozenset()


def remember_rung(home: str, episodes: Iterable[Episode]) -> None:
    """Where it cannot be written (a full disk, somebody else's home), the next `top` rings once more: no harm."""
    try:
        fd = os.open(
            os.path.join(home, RUNG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(sorted(episodes), file)
    except OSError:
        return
