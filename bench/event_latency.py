"""From an event's moment to its line in `holdfast events -f --json`."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

from bench.figures import Figure, Scale, percentile
from bench.proc import Patience
from bench.stage import Stage

from holdfast.base import clock
from holdfast.core.model import Event
from holdfast.store.sqlite.engine.store import SqliteStore

PAUSE = (0.005, 0.075)  # seconds between two events: longer and shorter than the follower's own pause
SEED = 3


def run(scale: Scale, folder: Path) -> list[Figure]:
    stage = Stage(folder / "events")
    follower = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "events", "-f", "--json"],
        env=stage.env,
        cwd=stage.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    seen: dict[str, float] = {}
    reader = threading.Thread(target=_read, args=(follower, seen), daemon=True)
    reader.start()
    store = SqliteStore(str(stage.home))
    try:
        _until_it_follows(store, seen)
        told = _tell(store, scale.events)
        patience = Patience(10)
        while not told.keys() <= seen.keys() and not patience.is_over():
            time.sleep(0.01)
    finally:
        follower.terminate()
        follower.wait()
        reader.join()
        store.close()
    waits = sorted(seen[name] - at for name, at in told.items())
    return [
        Figure(
            name="events.p99",
            value=percentile(waits, 0.99) * 1e3,
            unit="ms",
            goal=100.0,
            detail={
                "events": len(waits),
                "p50 ms": round(percentile(waits, 0.5) * 1e3, 1),
                "p99 ms": round(percentile(waits, 0.99) * 1e3, 1),
                "most ms": round(waits[-1] * 1e3, 1),
            },
        )
    ]


def _read(follower: subprocess.Popen[str], seen: dict[str, float]) -> None:
    assert follower.stdout is not None
    with follower.stdout:
        for line in follower.stdout:
            now = time.time()
            event = json.loads(line)
            seen[str(event["reason"])] = now


def _emit(store: SqliteStore, name: str) -> float:
    """The event's moment: before its transaction begins, so that the commit counts too."""
    now = clock.now()
    event = Event(kind="attempt.trouble", message="a benchmark's event", reason=name)
    store.write(lambda tx: tx.events.emit(event, now))
    return now.wall


def _until_it_follows(store: SqliteStore, seen: dict[str, float]) -> None:
    patience = Patience(30)
    number = 0
    while not any(name.startswith("hello") for name in seen):
        if patience.is_over():
            raise RuntimeError("`holdfast events -f` shows nothing")
        _emit(store, f"hello {number}")
        number += 1
        time.sleep(0.1)


def _tell(store: SqliteStore, count: int) -> dict[str, float]:
    chance = random.Random(SEED)
    told = {}
    for number in range(count):
        time.sleep(chance.uniform(*PAUSE))
        told[f"event {number}"] = _emit(store, f"event {number}")
    return told
