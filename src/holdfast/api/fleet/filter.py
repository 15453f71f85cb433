"""The filter and the order of a list of tasks. This module does not read the store."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.api.fleet.rows import LIVING, turn
from holdfast.base.dataclass import dataclass

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow

Key = tuple[Any, ...]
FILTERS = ("state", "agent", "label", "repo", "worker", "stage", "workflow")  # `state:paused`: see `_text`
RECENT = 3600.0  # seconds; a failed task stays in the list for an hour without `everything`
LINGER = 60.0  # seconds; any other ended task stays for a minute, so that people see that it ended
TREE, LIFE = "added", "life"
_STATES = {state: n for n, state in enumerate(("running", "paused", "failed", "queued", "completed", "cancelled"))}


@dataclass(frozen=True)
class ListFilter:
    """A filter and a sort order for the list of tasks."""

    words: str = ""  # all words have to match; `!word` must not match
    order: str = "state"
    backwards: bool = False
    everything: bool = False  # ended tasks too


def _by_state(row: FleetRow) -> Key:
    """Return the sort key: running tasks first, queued ones by their turn, ended ones by time, the newest first."""
    state = row["state"]
    behind = turn(row) if state == "queued" else (-(row["ended_at"] or 0),)
    return _STATES[state], behind, row["seq"]


ORDERS: Mapping[str, Callable[[FleetRow], Key]] = {
    "state": _by_state,
    TREE: lambda row: (row["seq"],),
    LIFE: lambda row: (row["state"] != "running", row["updated_at"], row["seq"]),
    "cost": lambda row: (-(row["cost_usd"] or 0.0), -(row["tokens"] or 0), row["seq"]),
    "agent": lambda row: (row["agent"], _STATES[row["state"]], row["seq"]),
}
ABOUT = {
    "state": "at work first",
    TREE: "as added, subtasks below",
    LIFE: "the longest silent first",
    "cost": "the most expensive first",
    "agent": "by agent",
}


def is_listed(row: FleetRow, everything: bool, now: float) -> bool:
    if everything or row["state"] in LIVING:
        return True
    return bool(row["ended_at"] and row["ended_at"] > now - (RECENT if row["state"] == "failed" else LINGER))


def build_word_test(words: str) -> Callable[[FleetRow, str], bool]:
    """Return a test of (row, why it waits): True if every word is somewhere in them.

    `state:paused`, `agent:claude` and `label:team=web` are words too: the text of a row holds them in this form.
    """
    wanted = [word for word in words.lower().split() if word not in ("!", "-")]
    needed = [word for word in wanted if not word.startswith("!")]
    banned = [word[1:] for word in wanted if word.startswith("!")]

    def matches(row: FleetRow, why: str) -> bool:
        text = f"{_text(row)} {why}".lower()
        return all(word in text for word in needed) and not any(word in text for word in banned)

    return matches


def _text(row: FleetRow) -> str:
    labels = " ".join(f"label:{key}={value}" for key, value in row["labels"].items())
    stage = f"stage:{row['stage']['name']} workflow:{row['workflow']}" if row["stage"] else ""
    return (
        f"{row['id']} state:{row['state']} agent:{row['agent']} worker:{row['worker'] or '-'} repo:{row['repo']} "
        f"{stage} {labels} {row['prompt']}"
    )


def build_option_test(
    *, states: Sequence[str] = (), agents: Sequence[str] = (), labels: Sequence[str] = (), repos: Sequence[str] = ()
) -> Callable[[FleetRow], bool]:
    """Return a test of a row: True if the row has one of the states, agents and repositories, and all the labels. An
    empty option matches every row.

    A label is `KEY=VALUE`, or `KEY` for any value.
    """
    pairs = [label.partition("=") for label in labels]

    def matches(row: FleetRow) -> bool:
        return (
            (not states or row["state"] in states)
            and (not agents or row["agent"] in agents)
            and (not repos or row["repo"] in repos)
            and all(row["labels"].get(key) == value if sep else key in row["labels"] for key, sep, value in pairs)
        )

    return matches


class SortedRows:
    """Rows in order. A changed row is moved to its position, so that ten thousand rows are not sorted again."""

    def __init__(self, rows: Iterable[FleetRow], key: Callable[[FleetRow], Key]) -> None:
        self._key = key
        pairs = sorted(((key(row), row) for row in rows), key=lambda pair: pair[0])
        self._keys = [made for made, _row in pairs]
        self.rows = [row for _made, row in pairs]
        self._of = {row["id"]: made for made, row in pairs}

    def drop(self, task_id: str) -> None:
        made = self._of.pop(task_id, None)
        if made is not None:
            at = bisect_left(self._keys, made)
            del self._keys[at], self.rows[at]

    def put(self, row: FleetRow) -> None:
        made = self._key(row)
        if self._of.get(row["id"]) == made:
            self.rows[bisect_left(self._keys, made)] = row
            return
        self.drop(row["id"])
        at = bisect_left(self._keys, made)
        self._keys.insert(at, made)
        self.rows.insert(at, row)
        self._of[row["id"]] = made


def sort_as_tree(rows: Iterable[FleetRow]) -> tuple[list[FleetRow], dict[str, int]]:
    """Return the rows in the order of `ps`, and the depth of each row that is below another one.

    Subtasks stand behind their parent if the parent is listed.
    """
    known = sorted(rows, key=lambda row: row["seq"])
    ids = {row["id"] for row in known} if any(row["parent_id"] for row in known) else set()
    if not ids:
        return known, {}
    below: dict[str | None, list[FleetRow]] = {}
    for row in known:
        below.setdefault(row["parent_id"] if row["parent_id"] in ids else None, []).append(row)
    listed, levels = [], {}
    waiting = [(0, row) for row in reversed(below.get(None, []))]
    while waiting:
        level, row = waiting.pop()
        listed.append(row)
        if level:
            levels[row["id"]] = level
        waiting += [(level + 1, child) for child in reversed(below.get(row["id"], []))]
    return listed, levels


def sort_by_sign_of_life(rows: Iterable[FleetRow], signs: Mapping[str, float]) -> list[FleetRow]:
    now = time.time()
    return sorted(
        rows, key=lambda row: (row["state"] != "running", signs.get(row["id"], now), row["updated_at"], row["seq"])
    )
