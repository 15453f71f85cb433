"""The DBOS side of the store benchmark: run by .venv-bench's Python, prints one JSON line.

A trivial workflow, enqueued on a queue, started by its worker, completed: what DBOS makes durable of one task. All are
enqueued first, then waited for, and the worker looks into the queue every 50 ms. DBOS leaves SQLite's journal mode at
its default (`delete`); with `wal` it is measured too, as the best that a user could make of it.
"""

from __future__ import annotations

import json
import resource
import sqlite3
import sys
import time
from importlib import import_module
from importlib.metadata import version

POLL = 0.05  # seconds; its own default of 1 s would only measure the waiting


def main(path: str, count: int, journal: str) -> None:
    with sqlite3.connect(path) as made:  # the mode stays with the file: DBOS itself never sets one
        made.execute(f"PRAGMA journal_mode = {journal}")
    made.close()
    dbos = import_module("dbos")
    dbos.DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{path}",
            "log_level": "ERROR",
            "application_version": "bench",
            "scheduler_polling_interval_sec": 60.0,
        }
    )

    def nothing(number: int) -> int:
        return number

    workflow = dbos.DBOS.workflow()(nothing)
    dbos.DBOS.launch()
    queue = dbos.DBOS.register_queue("bench", polling_interval_sec=POLL)
    queue.enqueue(workflow, -1).get_result()  # the first one pays for connections and prepared statements
    cpu, began = _cpu(), time.perf_counter()
    handles = [queue.enqueue(workflow, number) for number in range(count)]
    enqueued = time.perf_counter() - began
    results = [handle.get_result(polling_interval_sec=POLL) for handle in handles]
    seconds, spent = time.perf_counter() - began, _cpu() - cpu
    assert results == list(range(count))
    print(
        json.dumps({"seconds": seconds, "enqueue_seconds": enqueued, "cpu_seconds": spent, "version": version("dbos")})
    )
    dbos.DBOS.destroy()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
