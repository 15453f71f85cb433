"""The tasks that `ps` lists: selected by ids, filter words and options, in order, each with why it waits.

The rows are those of the fleet screen, so that a word means the same in `ps` and in the filter of `top`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from holdfast.api.fleet.filter import (
    FILTERS,
    ORDERS,
    RECENT,
    TREE,
    Key,
    build_option_test,
    build_word_test,
    sort_as_tree,
)
from holdfast.api.fleet.rows import LIVING, active_rows, all_rows, rows_of, turn
from holdfast.api.queries import SHORTEST_ID
from holdfast.api.tasks.why.activity import read_activities
from holdfast.api.tasks.why.circumstances import Circumstances
from holdfast.api.tasks.why.read import CircumstancesReader, depends_on_settings
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import NotFound, UsageError
from holdfast.base.text import one_line
from holdfast.core.states import TaskState

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow
    from holdfast.api.queries import Queries

SORTS: Mapping[str, Callable[[FleetRow], Key]] = {
    TREE: ORDERS[TREE],
    "state": ORDERS["state"],
    "agent": ORDERS["agent"],
    "cost": ORDERS["cost"],
    "id": lambda row: (row["id"],),
    "age": lambda row: (-row["created_at"], -row["seq"]),
    "updated": lambda row: (-row["updated_at"], row["seq"]),
    "priority": lambda row: (-row["priority"], row["seq"]),
    "repo": lambda row: (row["repo"], row["seq"]),
    "worker": lambda row: (row["worker"] or "~", row["seq"]),
    "runs": lambda row: (-row["runs"], row["seq"]),
    "prompt": lambda row: (row["prompt"].lower(), row["seq"]),
}
STATES = tuple(str(state) for state in TaskState)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A request for a list of tasks, as a person types it."""

    words: Sequence[str] = ()  # ids, filter words and text
    states: Sequence[str] = ()
    agents: Sequence[str] = ()
    labels: Sequence[str] = ()
    repos: Sequence[str] = ()
    everything: bool = False  # ended tasks too
    sort: str = TREE  # with `-` in front: the other way round
    limit: int | None = None


@dataclass(frozen=True)
class TaskListing:
    rows: Sequence[FleetRow] = ()
    levels: Mapping[str, int] = field(default_factory=dict)  # depth of subtasks below another listed task
    around: Circumstances = field(default_factory=Circumstances)
    matched: int = 0  # number of tasks without the limit
    candidates: Sequence[FleetRow] = ()  # before filters and limit


class ListingReader:
    """A reader of one listing, for repeated use."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._looker = CircumstancesReader()
        _refuse_unknown(selection)

    def read(self, queries: Queries) -> TaskListing:
        selection, now = self._selection, time.time()
        ids, words = _split_ids(queries, selection.words)
        repos = [find_repo(queries, path) for path in selection.repos]
        repos += [find_repo(queries, word[5:]) for word in words if is_repo_path(word)]
        words = [word for word in words if not is_repo_path(word)]
        rows = candidates = self._read_candidates(queries, ids, now)
        around = self._look(queries, rows if not ids else active_rows(queries, math.inf, math.inf), now)
        fits = build_option_test(
            states=selection.states, agents=selection.agents, labels=selection.labels, repos=repos
        )  # fmt: skip
        rows = [row for row in rows if fits(row)]
        if words:
            rows = _match_words(rows, candidates, words, around, now)
        levels: dict[str, int] = {}
        name = selection.sort.removeprefix("-")
        if selection.sort == TREE:
            rows, levels = sort_as_tree(rows)
        else:
            rows = sorted(rows, key=SORTS[name], reverse=selection.sort.startswith("-"))
        listed = rows if selection.limit is None else rows[: selection.limit]
        return TaskListing(rows=listed, levels=levels, around=around, matched=len(rows), candidates=candidates)

    def _read_candidates(self, queries: Queries, ids: Sequence[str], now: float) -> list[FleetRow]:
        selection = self._selection
        if ids:
            return rows_of(queries, ids)
        asked = [*selection.states, *(word[6:] for word in selection.words if word.startswith("state:"))]
        if selection.everything or any(
            state.startswith(word) for word in asked for state in STATES if state not in LIVING and word
        ):
            return all_rows(queries, -1)
        return active_rows(queries, now - RECENT, math.inf)

    def _look(self, queries: Queries, rows: Sequence[FleetRow], now: float) -> Circumstances:
        """Return the circumstances that delay tasks now. `rows` contains every active task."""
        running = {row["id"]: row for row in rows if row["state"] == "running"}
        return self._looker.look(
            queries,
            sorted(turn(row) for row in rows if row["state"] == "queued"),
            running,
            now,
            activities=read_activities(queries.home, running),
            with_settings=any(map(depends_on_settings, rows)),
        )


def _split_ids(queries: Queries, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the full ids of which a word is the beginning, and the other words. A short word counts as text, because
    it could be the beginning of an id by chance."""
    ids, others = [], []
    for word in words:
        is_like_id = len(word) >= SHORTEST_ID and word.isalnum() and word.isascii()
        found = [str(row["id"]) for row in queries.view("ids_like", prefix=word)] if is_like_id else []
        ids += found
        others += [] if found else [word]
    return ids, others


def _match_words(
    rows: list[FleetRow], candidates: Sequence[FleetRow], words: Sequence[str], around: Circumstances, now: float
) -> list[FleetRow]:
    why = {row["id"]: around.why(row, now) for row in candidates}
    for word in words:
        if ":" in word or word.startswith("!"):
            continue
        matches = build_word_test(word)
        if not any(matches(row, why[row["id"]]) for row in candidates):
            raise NotFound(
                f"No task has '{one_line(word, 80)}': no id begins with it, and no listed task contains it. "
                f"Finished tasks too: `holdfast ps --all {one_line(word, 40)}`. Filters: {_names(FILTERS)}."
            )
    matches = build_word_test(" ".join(words))
    return [row for row in rows if matches(row, why[row["id"]])]


def _names(filters: Sequence[str]) -> str:
    return ", ".join(f"{name}:" for name in filters)


def _refuse_unknown(selection: Selection) -> None:
    """Raise UsageError with the known words if a filter, a state or an order is not known."""
    asked = [(state, False) for state in selection.states]
    for word in (word.removeprefix("!") for word in selection.words):
        name, colon, value = word.partition(":")
        if colon and name not in FILTERS:
            raise UsageError(
                f"There is no filter '{one_line(name, 40)}:'. The filters are {_names(FILTERS)}. "
                "To search for text, leave the colon out."
            )
        asked += [(value, True)] if name == "state" and colon else []
    for state, may_be_part in asked:
        if not any(state and state in known if may_be_part else state == known for known in STATES):
            raise UsageError(f"There is no state '{one_line(state, 40)}'. The states are {', '.join(STATES)}.")
    if selection.sort.removeprefix("-") not in SORTS:
        raise UsageError(
            f"--sort: there is no order '{one_line(selection.sort, 40)}'. The orders are {', '.join(SORTS)}; "
            "a leading - reverses the order."
        )


def is_repo_path(word: str) -> bool:
    return word.startswith(("repo:.", "repo:/", "repo:~"))


def find_repo(queries: Queries, path: str) -> str:
    """Return the registered repository that the path is in. Raise NotFound with the known ones."""
    known = {row["path"] for row in queries.repos()}
    place = os.path.realpath(os.path.expanduser(path))
    while place not in known:
        above = os.path.dirname(place)
        if above == place:
            listed = ", ".join(sorted(map(one_line, known))) or "none"
            raise NotFound(f"No task belongs to a repository at {one_line(path, 120)}. Repositories: {listed}.")
        place = above
    return place
