"""The columns of the fleet, and the parts of a line that change with the time of day."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.api.fleet.view import Picture
from holdfast.api.format import money
from holdfast.api.tasks.live_cost import Cost
from holdfast.tui.colours import STATES
from holdfast.tui.widgets.grid import Cell, Column

Row = dict[str, Any]
STEP = 5  # seconds
QUIET = 300.0  # seconds without a sign of life that are worth a colour


class Painter(Protocol):
    picture: Picture
    live: Mapping[str, Cost]  # of tasks whose agents tell while they work


def columns(view: Painter, told: frozenset[str]) -> tuple[Column, ...]:
    """Those that say something: workers, stages and costs only where there are some."""
    made = [
        Column("ID", 10, lambda row: row["id"]),
        Column("STATE", 9, lambda row: Cell(row["state"], STATES[row["state"]])),
        Column("AGENT", 8, lambda row: row["agent"], spare=6),
        Column("AGE", 4, lambda row: age(row, time.time()), spare=5, right=True),
        Column("HEARD", 5, lambda row: heard(view.picture, row, time.time()), spare=2, right=True),
    ]
    if "worker" in told:
        made.insert(3, Column("WORKER", 8, lambda row: row["worker"] or "-", spare=7))
    if "stage" in told:
        made.append(Column("STAGE", 11, stage, spare=3))
    if "cost" in told:
        made.append(Column("COST", 8, lambda row: cost(view, row), spare=4, right=True))
    made += [
        Column("PROMPT", 14, lambda row: prompt(view.picture, row), grow=True, spare=1),
        Column("WHY", 16, lambda row: view.picture.why(row, time.time()), grow=True),
    ]
    return tuple(made)


def stamp(view: Painter, row: Row) -> tuple[object, ...]:
    """What else a line depends on."""
    now = time.time()
    picture, task_id = view.picture, row["id"]
    return (
        age(row, now),
        heard(picture, row, now),
        picture.why(row, now),
        picture.levels.get(task_id),
        view.live.get(task_id),
    )


def age(row: Row, now: float) -> str:
    return since(row["created_at"], now)


def heard(picture: Picture, row: Row, now: float) -> Cell:
    """When an agent of the task last printed something or reported."""
    at = picture.signs.get(row["id"]) if row["state"] == "running" else None
    if at is None:
        return Cell("")
    silent = now - at
    return Cell("now" if silent < 5 else since(at, now), "yellow" if silent > QUIET else "")


def stage(row: Row) -> str:
    found = row["stage"]
    return "" if found is None else f"{found['number']}/{found['of']} {found['name']}"


def cost(view: Painter, row: Row) -> str:
    """Money where it is known, else tokens; of a running agent what it told so far."""
    tokens, dollars = view.live.get(row["id"], Cost(row["tokens"] or 0, row["cost_usd"]))
    if dollars is not None:
        return money(dollars)
    return f"{tokens / 1000:.0f}k tok" if tokens >= 10_000 else f"{tokens} tok" if tokens else ""


def prompt(picture: Picture, row: Row) -> str:
    level = picture.levels.get(row["id"], 0)
    return f"└{'─' * (min(level, 4) - 1)} {row['prompt']}" if level else row["prompt"]


def since(moment: float, now: float) -> str:
    """In four letters: 12s, 3m, 2h, 41d. From ten seconds on all lines change at the same moment, every five seconds: a
    line that is drawn costs little beside the drawing itself."""
    whole = max(0, int(now - moment))
    if whole >= 10:
        whole = max(10, int(now - now % STEP - moment))
    if whole < 60:
        return f"{whole // STEP * STEP}s" if whole >= 10 else f"{whole}s"
    for unit, size, most in (("m", 60, 3600), ("h", 3600, 48 * 3600)):
        if whole < most:
            return f"{whole // size}{unit}"
    return f"{whole // 86400}d"
