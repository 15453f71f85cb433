"""How many tasks are in which state, asked again and again: those that are not over by an index, those that are seldom.

There is no index on finished states, and history grows: counting it reads every task.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.api.queries import Queries

Row = dict[str, Any]
LIVING = ("queued", "running", "paused")
REST = 20.0  # times as long as it took, history is not counted again


class Counts:
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
            self._next = ended + (ended - began) * REST
        return {**living, **self._over}
