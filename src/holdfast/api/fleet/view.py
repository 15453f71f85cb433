"""The fleet, kept up to date: after the first reading, only tasks that new events name are read again.

One `FleetReader` belongs to one thread. A `FleetSnapshot` is complete and never changes, so that another thread may
draw it.
"""

from __future__ import annotations

import math
import operator
import time
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from holdfast.api.fleet.filter import (
    LIFE,
    LINGER,
    ORDERS,
    RECENT,
    TREE,
    ListFilter,
    SortedRows,
    build_word_test,
    is_listed,
    sort_as_tree,
    sort_by_sign_of_life,
)
from holdfast.api.fleet.rows import LIVING, active_rows, all_rows, read_signs_of_life, rows_of, turn
from holdfast.api.tasks.why.activity import Activity, read_activities
from holdfast.api.tasks.why.circumstances import Circumstances
from holdfast.api.tasks.why.read import CircumstancesReader
from holdfast.base.dataclass import dataclass

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import JsonObject

MOST_EVENTS = 5000  # if more events are new, all tasks are read again
MOST_TASKS = 20_000  # most tasks in a list that includes finished ones
SIGNS_EVERY = 2.0  # seconds
RUNNING_EVERY = 10.0  # seconds; an agent's report is not always an event
WHOLE_EVERY = 120.0  # seconds; finds changes for which there was no event
LISTED_HOLD = 10.0  # seconds between two checks for tasks that are too old for the list


@dataclass(frozen=True)
class FleetSnapshot:
    rows: Sequence[FleetRow] = ()
    wish: ListFilter = field(default_factory=ListFilter)
    of: int = 0  # number of tasks without the filter
    left_out: int = 0  # finished tasks beyond the most that are listed
    levels: Mapping[str, int] = field(default_factory=dict)
    signs: Mapping[str, float] = field(default_factory=dict)
    around: Circumstances = field(default_factory=Circumstances)
    told: frozenset[str] = frozenset()  # of worker, stage, cost, repo: the columns that have something to tell

    def why(self, row: FleetRow, now: float) -> str:
        return self.around.why(row, now)

    def is_like(self, other: FleetSnapshot) -> bool:
        """True if a screen would show the same for both snapshots. Their lists are one object as long as no row
        changed."""
        return (
            self.rows is other.rows
            and (self.wish, self.of, self.left_out, self.told) == (other.wish, other.of, other.left_out, other.told)
            and self.signs == other.signs
            and self.around == other.around
        )


class FleetReader:
    def __init__(self, wish: ListFilter | None = None) -> None:
        self.wish = wish or ListFilter()  # set from any thread; the next reading uses it
        self.in_sight: frozenset[str] | None = None  # likewise: tasks whose signs of life are read; None: all
        self._queries: Queries | None = None
        self._looker = CircumstancesReader()
        self._after = 0
        self._whole_at = self._running_at = self._signs_at = self._listed_at = float("-inf")
        self._rows: dict[str, FleetRow] = {}
        self._running: dict[str, FleetRow] = {}
        self._needing: dict[str, FleetRow] = {}
        self._over: dict[str, FleetRow] = {}
        self._turns: dict[str, tuple[int, bool, int]] = {}
        self._queue: list[tuple[int, bool, int]] = []
        self._signs: dict[str, float] = {}
        self._activities: dict[str, Activity] = {}
        self._told: set[str] = set()
        self._repos: set[str] = set()
        self._left_out = 0
        self._wish_listed: ListFilter | None = None
        self._listed = SortedRows((), ORDERS["state"])
        self._shown: tuple[list[FleetRow], dict[str, int]] = ([], {})

    def read(self, queries: Queries) -> FleetSnapshot:
        try:
            return self._read(queries)
        except BaseException:
            self._wish_listed = None  # rows may be read but not listed yet: the next reading reads all tasks
            raise

    def _read(self, queries: Queries) -> FleetSnapshot:
        wish, now, tick = self.wish, time.time(), time.monotonic()
        changed = self._catch_up(queries, wish, now, tick)
        if tick >= self._signs_at + SIGNS_EVERY or changed is None:
            self._signs_at = tick
            self._signs = self._look_for_signs(queries, wish)
            self._activities = read_activities(queries.home, self._seen())
        around = self._looker.look(queries, self._queue, self._running, now, activities=self._activities)
        self._list(changed, wish, around, now, tick)
        rows, levels = self._shown
        return FleetSnapshot(
            rows=rows,
            wish=wish,
            of=len(rows) if not wish.words else self._count(wish, now),
            left_out=self._left_out,
            levels=levels,
            signs=self._signs,
            around=around,
            told=frozenset(self._told),
        )

    def _look_for_signs(self, queries: Queries, wish: ListFilter) -> dict[str, float]:
        """Read the signs of life of the running tasks on screen, or of all running tasks if the list is sorted by them.

        For running tasks that were not read, return the last known sign.
        """
        if wish.order == LIFE:
            return read_signs_of_life(queries.home, self._running)
        kept = {task: at for task, at in self._signs.items() if task in self._running}
        return kept | read_signs_of_life(queries.home, self._seen())

    def _seen(self) -> dict[str, FleetRow]:
        """Return the running tasks that are on screen, or all of them if the screen is not known."""
        if self.in_sight is None:
            return self._running
        return {task: self._running[task] for task in self.in_sight & self._running.keys()}

    # -- what is there -------------------------------------------------------------------------------------------------

    def _catch_up(self, queries: Queries, wish: ListFilter, now: float, tick: float) -> list[FleetRow] | None:
        """Read changed tasks again, and return their rows. None: all tasks were read."""
        until = queries.last_seq()  # before the rows: what happens meanwhile is read next time
        is_whole = (
            queries is not self._queries
            or self._wish_listed is None
            or wish.everything != self._wish_listed.everything
            or not 0 <= until - self._after <= MOST_EVENTS
            or tick >= self._whole_at + WHOLE_EVERY
        )
        touched: set[str] = set()
        if not is_whole and until > self._after:
            told = queries.view("touched", after=self._after, until=until)
            touched = {row["task"] for row in told if row["task"] is not None}
            is_whole = any(row["whole"] for row in told)
        if is_whole:
            self._read_all(queries, wish, now)
            self._queries, self._after = queries, until
            self._whole_at = self._running_at = tick
            return None
        found = rows_of(queries, self._with_dependents(touched)) if touched else []
        if tick >= self._running_at + RUNNING_EVERY and self._running:
            self._running_at = tick
            found += rows_of(
                queries, self._running.keys() if self.in_sight is None else self._running.keys() & self.in_sight
            )
        changed = [row for row in found if row != self._rows.get(row["id"])]
        for row in changed:
            self._take(row)
        self._after = until
        return changed

    def _read_all(self, queries: Queries, wish: ListFilter, now: float) -> None:
        if wish.everything:
            rows = all_rows(queries, MOST_TASKS)
            self._left_out = 0 if len(rows) < MOST_TASKS else sum(queries.counts().values()) - len(rows)
        else:
            rows, self._left_out = active_rows(queries, now - RECENT, now - LINGER), 0
        self._rows = {}
        self._running, self._needing, self._over, self._turns, self._told = {}, {}, {}, {}, set()
        self._queue, self._repos = [], set()
        for row in rows:
            self._rows[row["id"]] = row
            self._note(row)
            if row["state"] == "queued":
                self._turns[row["id"]] = turn(row)
        self._queue = sorted(self._turns.values())

    def _with_dependents(self, touched: set[str]) -> set[str]:
        """Add the tasks that need one of the touched tasks: their rows show its state."""
        waiting = {each for each, row in self._needing.items() if not touched.isdisjoint(row["needs"])}
        return touched | waiting

    def _take(self, row: FleetRow) -> None:
        self._rows[row["id"]] = row
        self._note(row)
        before, made = self._turns.get(row["id"]), turn(row) if row["state"] == "queued" else None
        if before == made:
            return
        self._queue = list(self._queue)  # a copy: another thread may draw the old list now
        if before is not None:
            del self._queue[bisect_left(self._queue, before)]
            del self._turns[row["id"]]
        if made is not None:
            insort(self._queue, made)
            self._turns[row["id"]] = made

    def _note(self, row: FleetRow) -> None:
        for kept, is_in in (
            (self._running, row["state"] == "running"),
            (self._needing, bool(row["needs"])),
            (self._over, row["state"] not in LIVING),
        ):
            if is_in:
                kept[row["id"]] = row
            else:
                kept.pop(row["id"], None)
        for what, has in (
            ("worker", row["worker"]),
            ("stage", row["stage"]),
            ("cost", row["tokens"] or row["cost_usd"]),
        ):
            if has:
                self._told.add(what)
        self._repos.add(row["repo_id"])
        if len(self._repos) > 1:
            self._told.add("repo")

    # -- what is listed ------------------------------------------------------------------------------------------------

    def _list(
        self, changed: list[FleetRow] | None, wish: ListFilter, around: Circumstances, now: float, tick: float
    ) -> None:
        is_new = changed is None or wish != self._wish_listed
        gone: list[str] = []
        if tick >= self._listed_at + LISTED_HOLD:
            self._listed_at, gone = tick, self._forget(wish, now)
        if not (is_new or changed or gone or wish.words or wish.order == LIFE):
            return
        if is_new or wish.words or wish.order in (TREE, LIFE):
            self._list_all(wish, around, now)
            self._wish_listed = wish
        else:
            for task_id in gone:
                self._listed.drop(task_id)
            for row in changed or ():
                if is_listed(row, wish.everything, now):
                    self._listed.put(row)
                else:
                    self._listed.drop(row["id"])
            self._show(self._listed.rows, {}, wish)

    def _forget(self, wish: ListFilter, now: float) -> list[str]:
        """Drop tasks that are too old for the list. Only ended tasks are checked."""
        gone = [task_id for task_id, row in self._over.items() if not is_listed(row, wish.everything, now)]
        for task_id in gone:
            del self._over[task_id], self._rows[task_id]
        return gone

    def _list_all(self, wish: ListFilter, around: Circumstances, now: float) -> None:
        rows: Iterable[FleetRow] = [row for row in self._rows.values() if is_listed(row, wish.everything, now)]
        if wish.words:
            matches = build_word_test(wish.words)
            rows = [row for row in rows if matches(row, around.why(row, now))]
        if wish.order == TREE:
            self._show(*sort_as_tree(rows), wish)
        elif wish.order == LIFE:
            self._show(sort_by_sign_of_life(rows, self._signs), {}, wish)
        else:
            self._listed = SortedRows(rows, ORDERS[wish.order])
            self._show(self._listed.rows, {}, wish)

    def _show(self, rows: list[FleetRow], levels: dict[str, int], wish: ListFilter) -> None:
        """Keep a copy of the list for the next snapshot, because our own list changes with the next reading.

        If nothing is different, keep the same object as before.
        """
        made = rows[::-1] if wish.backwards and not levels else rows[:]
        before, _levels = self._shown
        is_same = len(made) == len(before) and all(map(operator.is_, made, before))
        self._shown = (before if is_same else made, levels)

    def _count(self, wish: ListFilter, now: float) -> int:
        return sum(is_listed(row, wish.everything, now) for row in self._rows.values())


def as_json(picture: FleetSnapshot, now: float) -> list[JsonObject]:
    """Return the rows of a snapshot for scripts, with the facts that the screen shows. `ps` has more fields."""
    left = ("repo_id", "provider", "last_run", "begun", "workspace")
    return [
        {name: value for name, value in row.items() if name not in left}
        | {"needs": sorted(row["needs"]), "why": picture.why(row, now), "last_sign": picture.signs.get(row["id"])}
        for row in picture.rows
    ]


RECOUNT_FACTOR = 20.0  # history is not counted again for this many times as long as the count took


class TaskCounter:
    """Task counts by state, for a caller that reads again and again.

    Active states are counted by an index. Finished states have no index, so counting them reads every task. They are
    therefore counted rarely.
    """

    def __init__(self) -> None:
        self._over: dict[str, int] = {}
        self._queries: Queries | None = None
        self._seq = -1
        self._next = -math.inf

    def read(self, queries: Queries) -> dict[str, int]:
        living = {str(row["state"]): int(row["n"]) for row in queries.view("living_counts") if row["n"]}
        seq, began = queries.last_seq(), time.monotonic()
        if queries is not self._queries or (seq != self._seq and began >= self._next):
            self._over = {state: n for state, n in queries.counts().items() if state not in LIVING}
            self._queries, self._seq = queries, seq
            ended = time.monotonic()
            self._next = ended + (ended - began) * RECOUNT_FACTOR
        return {**living, **self._over}
