"""How much work SQLite does for each statement, counted: steps of its virtual machine, which no load changes.

`statement_steps.py FILE ARGUMENTS…` runs `holdfast` and writes (statement, most steps of one run, rows of whole tables
that it walked) as JSON when the process ends.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

if TYPE_CHECKING:
    from holdfast.store.port.history import OldTask
    from holdfast.store.port.transaction import Transaction

ROOT = Path(__file__).resolve().parents[2]
Steps = dict[str, tuple[int, int]]  # by the text of a statement


def count_steps() -> Steps:
    """Count on every connection that is opened from now on."""
    found: Steps = {}
    counted: dict[tuple[int, int], tuple[int, int, int]] = {}

    def profiled(event: dict[str, Any]) -> None:
        status = event["stmt_status"]
        now = tuple(status[f"SQLITE_STMTSTATUS_{name}"] for name in ("RUN", "VM_STEP", "FULLSCAN_STEP"))
        key = id(event["connection"]), event["id"]
        was = counted.get(key, (0, 0, 0))
        if now[0] <= was[0]:  # the statement was made anew at the same address, or its counts begin again
            was = (0, 0, 0)
        counted[key] = now
        runs = max(1, now[0] - was[0])
        steps, walked = (now[1] - was[1]) // runs, (now[2] - was[2]) // runs
        words = " ".join(event["sql"].split())
        found[words] = tuple(map(max, found.get(words, (0, 0)), (steps, walked)))

    apsw.connection_hooks.append(lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profiled))
    return found


def read_fleet_and_vitals(home: str) -> None:
    """Read what `top` reads: all at first, then what changed."""
    from holdfast.api.fleet.status import VitalsReader
    from holdfast.api.fleet.view import FleetReader
    from holdfast.api.queries import Queries

    queries, fleet, vitals = Queries(home), FleetReader(), VitalsReader(home)
    for _ in range(2):
        fleet.read(queries)
        vitals.read(queries)
    queries.close()


def drop_old_records(home: str) -> None:
    """Carry out the transactions of a pass of retention, one piece of each."""
    from holdfast.store.sqlite.engine.store import SqliteStore
    from holdfast.supervisor.services.retention import PIECE

    before, store = time.time(), SqliteStore(home)
    store.write(lambda tx: tx.history.drop_events(0, before, PIECE))
    old, _ = store.write(lambda tx: tx.history.find_old_tasks(sys.maxsize, before, PIECE))
    store.write(lambda tx: tx.history.drop_small_records(before, PIECE))
    for task in old[:3]:
        store.write(partial(_forget, task))
    store.forget_old_operations(before)
    store.close()


def _forget(task: OldTask, tx: Transaction) -> None:
    tx.history.forget_task(task, time.time())


OTHERS: dict[str, Callable[[str], None]] = {"top": read_fleet_and_vitals, "retention": drop_old_records}


def main(path: str, *words: str) -> None:
    sys.path[0] = str(ROOT)
    found = count_steps()
    atexit.register(lambda: Path(path).write_text(json.dumps(found)))
    if words[0] in OTHERS:
        OTHERS[words[0]](os.environ["HOLDFAST_HOME"])
        return
    from holdfast import __main__

    sys.argv = [__main__.__file__, *words]
    __main__.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
