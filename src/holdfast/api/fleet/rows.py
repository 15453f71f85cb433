"""Rows of the fleet: a task as a list of thousands shows it, and the last sign of life of its agents."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from holdfast.api.tasks.stages import read_running_gate, read_stage
from holdfast.api.tasks.why.outcome import decode_truth
from holdfast.base.stored_json import stored_data_errors

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import JsonObject

LIVING = ("queued", "running", "paused")
_OUTPUT = ("out.log", "err.log")
_CHANNEL = ("channel/heartbeat", "channel/reports")  # the same names as in processes/observe/run_view.py


def all_rows(queries: Queries, most: int) -> list[FleetRow]:
    """Return the newest tasks, in any state."""
    return [_row(row) for row in queries.view("slim_all", most=most)]


def active_rows(queries: Queries, recent: float, just: float) -> list[FleetRow]:
    """Return tasks that are active, that failed since `recent`, or that ended since `just`."""
    return [_row(row) for row in queries.view("slim_active", recent=recent, just=just)]


def rows_of(queries: Queries, ids: Iterable[str]) -> list[FleetRow]:
    return [_row(row) for row in queries.view("slim_of", ids=json.dumps(sorted(ids)))]


@stored_data_errors
def _row(row: JsonObject) -> FleetRow:
    """Decode a raw row. `last_run`: (state, started at, why it is stopped, progress); `needs`: id → state."""
    labels, stages, last = row["labels"], row.pop("stages"), row["last_run"]
    row["labels"] = json.loads(labels) if labels and labels != "{}" else {}
    row["tokens"], row["cost_usd"] = json.loads(row.pop("took"))
    row["begun"] = row["progress"] is not None  # a workflow that has begun goes before tasks that have not
    decoded = json.loads(stages) if stages else None
    row["stage"] = read_stage({"stages": decoded, "workflow": row["workflow"]}, row["progress"])
    row["running_gate"] = read_running_gate(row["state"], decoded, row["progress"])
    row["open_runs"] = json.loads(row["open_runs"]) if row["open_runs"] else []
    row["last_run"] = json.loads(last) if last else None
    row["needs"] = json.loads(row["needs"]) if row["needs"] and row["needs"] != "{}" else {}
    del row["progress"]
    decode_truth(row)
    return cast("FleetRow", row)


def turn(row: FleetRow) -> tuple[int, bool, int]:
    """Return the sort key of the queue (queries/tasks.sql, `turn`)."""
    return -row["priority"], not row["begun"], row["seq"]


def read_signs_of_life(home: str, running: Mapping[str, FleetRow]) -> dict[str, float]:
    """Return task → the wall time at which one of its agents last printed or reported something, or started."""
    found = {}
    for task_id, row in running.items():
        started = row["last_run"][1] if row["last_run"] else None
        heard = [at for run in row["open_runs"] if (at := _last_sign(os.path.join(home, "runs", run))) is not None]
        newest = max(heard, default=started)
        if newest is not None:
            found[task_id] = newest
    return found


def _last_sign(directory: str) -> float | None:
    newest = None
    for name in (*_OUTPUT, *_CHANNEL):
        try:
            found = os.stat(os.path.join(directory, name), follow_symlinks=False)
        except OSError:
            continue
        if name in _OUTPUT and found.st_size == 0:
            continue  # empty since the start of the run
        newest = found.st_mtime if newest is None else max(newest, found.st_mtime)
    return newest
