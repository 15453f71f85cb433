"""Usage of running agents so far, read from their output as it grows, a little at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.transcript import Transcript

PATIENCE = 0.1  # seconds of reading per look, however much there is; the next look continues
SILENT = ("command", "scripted")  # these agents do not report tokens


class LiveCost(NamedTuple):
    tokens: int
    cost_usd: float | None


class LiveCosts:
    """Live costs of fleet rows. Used by one thread at a time."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[Transcript, Iterator[bool]]] = {}

    def look(self, queries: Queries, running: Iterable[FleetRow]) -> dict[str, LiveCost]:
        """Return task → usage of its runs, for tasks with an open run that reported usage."""
        wanted = [row for row in running if row["agent"] not in SILENT and row["open_runs"]]
        runs = {run: row for row in wanted for run in row["open_runs"]}
        self._runs = {run: kept for run, kept in self._runs.items() if run in runs}
        until = time.monotonic() + PATIENCE
        for run, row in runs.items():
            self._read_on(queries, run, row["agent"], until)
        costs = {row["id"]: self._sum(row) for row in wanted}
        return {task_id: cost for task_id, cost in costs.items() if cost is not None}

    def _read_on(self, queries: Queries, run: str, agent: str, until: float) -> None:
        from holdfast.api.tasks.transcript import Transcript

        if run not in self._runs:
            made = Transcript(queries.run_directory(run), agent, {"id": run, "number": 0})
            self._runs[run] = (made, made.measure())
        transcript, events = self._runs[run]
        while time.monotonic() < until:
            if next(events, None) is None:
                self._runs[run] = (transcript, transcript.measure())  # to read what is written later
                return

    def _sum(self, row: FleetRow) -> LiveCost | None:
        """Return the usage of all runs of a task. None: no open run has reported any.

        An agent that reports the sum of its session includes earlier runs in its own number.
        """
        from holdfast.api.tasks.transcript import totals
        from holdfast.api.tasks.usage import reports_session_totals

        told = [found for run in row["open_runs"] if (found := totals(self._runs[run][0].digest)) is not None]
        if not told:
            return None
        tokens = sum(found["input"] + found["output"] for found in told)
        known = [found["cost_usd"] for found in told if found["cost_usd"] is not None]
        cost = sum(known) if known else None
        if reports_session_totals(row["agent"]):
            return LiveCost(max(tokens, row["tokens"] or 0), row["cost_usd"] if cost is None else cost)
        before = row["cost_usd"]
        return LiveCost(tokens + (row["tokens"] or 0), before if cost is None else cost + (before or 0.0))
