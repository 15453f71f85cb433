"""What a long history costs: a claim, `ps` and a start beside a million finished tasks, against an empty store.

CPU time, both homes in turn; a ratio is taken of the medians.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import apsw
from bench.figures import Figure, Scale, median
from bench.history import fill_long
from bench.stage import Stage
from bench.start_stop import cpu_of, cpu_of_start_and_stop

from holdfast.base import clock
from holdfast.base.ids import new_id
from holdfast.core.model import TaskSpec
from holdfast.store.port.transaction import Host
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.store.sqlite.rows import encode_settings

GOAL = 1.2
CLAIMS = 20  # in one sample
EVENTS_EACH = 2  # with 10 the store takes 2 GB, and each start copies it: 8 GB on the disk of the machine
STARTS = 2  # of each home: a start copies the store


def run(scale: Scale, folder: Path) -> list[Figure]:
    empty, full = Stage(folder / "empty"), Stage(folder / "full")
    began = time.perf_counter()
    events = _fill(full, scale.long_history)
    filled = time.perf_counter() - began
    size = os.path.getsize(full.home / "holdfast.db")
    detail: dict[str, float | str] = {
        "finished tasks": scale.long_history,
        "events": events,
        "MiB": round(size / 2**20),
        "s to fill": round(filled, 1),
    }
    figures = []
    measured: tuple[tuple[str, Callable[[Stage], float]], ...] = (
        ("claim", _claims),
        ("ps", _ps),
        ("start", cpu_of_start_and_stop),
    )
    for name, measure in measured:
        rounds = min(STARTS, scale.history_rounds) if name == "start" else scale.history_rounds
        samples = [(measure(empty), measure(full)) for _ in range(rounds + 1)][1:]
        without, beside = median(one for one, _ in samples), median(other for _, other in samples)
        each = CLAIMS if name == "claim" else 1
        figures.append(
            Figure(
                name=f"history.{name}",
                value=beside / without,
                unit="× an empty store",
                goal=GOAL,
                detail={
                    **detail,
                    "CPU ms, empty": round(without / each * 1e3, 2),
                    "CPU ms, full": round(beside / each * 1e3, 2),
                    "rounds": rounds,
                },
            )
        )
    return figures


def _fill(stage: Stage, count: int) -> int:
    """Tasks of the last twelve days, so that nothing is due for retention. Return the number of events."""
    settings = encode_settings(_task(stage))
    path = str(stage.home / "holdfast.db")
    fill_long(path, stage.repo_id, settings, count, time.time() - 3600, EVENTS_EACH)
    store = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    events = int(store.execute("SELECT count(*) FROM events").get)
    store.close()
    return events


def _task(stage: Stage) -> TaskSpec:
    return TaskSpec(id=new_id(), repo_id=stage.repo_id, prompt="work", agent="command")


def _claims(stage: Stage) -> float:
    """CPU seconds of claims, each a transaction of its own. Nothing waits after it."""
    stage.queue([_task(stage) for _ in range(CLAIMS)])
    store, now = SqliteStore(str(stage.home)), clock.now()
    host = Host(id=new_id(), boot_id=now.boot_id, pid=os.getpid(), start_ticks=1, version="bench", agents=CLAIMS)
    store.write(lambda tx: tx.hosts.open(host, 36_000, now))
    began = time.process_time()
    for _ in range(CLAIMS):
        if store.write(lambda tx: tx.tasks.claim(host.id, clock.now())) is None:
            raise RuntimeError("no task was claimed")
    spent = time.process_time() - began
    store.close()
    raw = apsw.Connection(str(stage.home / "holdfast.db"))
    with raw:  # as if they had been completed, and the host had ended
        raw.execute("UPDATE tasks SET state = 'completed', owner = NULL, ended_at = 0 WHERE state = 'running'")
        raw.execute("UPDATE hosts SET state = 'stopped', ended_at = 0")
    raw.close()
    return spent


def _ps(stage: Stage) -> float:
    command = [sys.executable, "-m", "holdfast", "ps", "--json"]
    return cpu_of(subprocess.Popen(command, env=stage.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
