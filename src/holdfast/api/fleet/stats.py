"""The reliability of agents: the outcomes and durations of their runs, over time (R-TERM-16)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from holdfast.api.queries import Queries
from holdfast.core.runs.outcome import EXPECTED

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import StatsRow, TaskSumsRow
    from holdfast.api.tasks.models import JsonObject

TOOK = ("tokens", "input", "output", "cached", "cost_usd")  # None: no agent reported it
WIDTHS = {None: 0, "hour": 3600, "day": 86400}


def read_reliability(
    queries: Queries, *, agent: str | None = None, after: float = 0.0, by: str | None = None
) -> list[StatsRow]:
    """Return one row per agent, and per hour or day (UTC) if asked: runs that ended since `after`."""
    question = {"agent": agent, "after": after, "width": WIDTHS[by]}
    percentiles = {(row["since"], row["agent"]): row for row in queries.view("percentiles", **question)}
    found: dict[tuple[float | None, str], JsonObject] = {}
    for row in queries.view("ends", **question):
        key = row["since"], row["agent"]
        _add(found.setdefault(key, _empty_row(*key, percentiles.get(key))), row)
    for row in queries.view("ended_tasks", **question):
        key = row["since"], row["agent"]
        if by is None and key not in found:
            continue  # tasks without a run say nothing about their agent
        found.setdefault(key, _empty_row(*key, None)).update(tasks=row["tasks"], completed=row["completed"])
    for row in queries.view("took", **question, by_session=_by_session({name for _since, name in found})):
        total = found.get((row["since"], row["agent"]))
        if total is not None:
            total.update({name: row[name] for name in TOOK})
    rows = sorted(found.values(), key=lambda row: (row["since"] or 0.0, row["agent"]))
    return [cast("StatsRow", _with_averages(row)) for row in rows]


def read_task_sums(queries: Queries, by: str, *, agent: str | None = None, after: float = 0.0) -> list[TaskSumsRow]:
    """Return sums over the tasks that ended since `after`. `by`: agent, repo, model or `label:KEY`."""
    kind, _, label = by.partition(":")
    rows = queries.view("task_sums", by=kind, label=label, agent=agent, after=after)
    for row in rows:
        judged = row["completed"] + row["failed"]
        row |= {"by": by, "success": row["completed"] / judged if judged else None}
    return cast("list[TaskSumsRow]", rows)


def _by_session(agents: set[str]) -> str:
    from holdfast.api.tasks.usage import reports_session_totals

    return json.dumps([name for name in sorted(agents) if reports_session_totals(name)])


def _empty_row(since: float | None, agent: str, ranks: JsonObject | None) -> JsonObject:
    return {
        "agent": agent,
        "since": since,
        "runs": 0,
        "ends": {},
        "unexpected": 0,
        "unexpected_share": 0.0,
        "restarts": 0,
        "duration": {
            "mean": None,
            "p50": ranks["p50"] if ranks else None,
            "p95": ranks["p95"] if ranks else None,
        },
        "forgotten": 0,
        "tasks": 0,
        "completed": 0,
        **dict.fromkeys(TOOK),
        "timed": 0,
        "seconds": 0.0,
    }


def _add(total: JsonObject, row: JsonObject) -> None:
    total["ends"][row["outcome"]] = row["runs"]
    for name in ("runs", "restarts", "forgotten", "timed", "seconds"):
        total[name] += row[name]
    if row["outcome"] not in EXPECTED:
        total["unexpected"] += row["runs"]


def _with_averages(row: JsonObject) -> JsonObject:
    timed, seconds = row.pop("timed"), row.pop("seconds")
    row["duration"]["mean"] = seconds / timed if timed else None
    row["unexpected_share"] = row["unexpected"] / row["runs"] if row["runs"] else 0.0
    return row
