"""`holdfast top` on a terminal: CPU at rest and in a storm of events, the first paint, and how soon an event is seen.

Baselines of the same run: an empty Textual application (what the toolkit itself costs), and the commands that one would
use without `top`: `holdfast ps` once a second, and `holdfast events -f`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import apsw
from bench.figures import Figure, Scale, median, percentile
from bench.living import Living
from bench.screen import Screen
from bench.stage import Stage

from holdfast.base.ids import new_id
from holdfast.core.model import TaskSpec

CALM = 3.0
RATE = 1_000  # events a second
BATCH = 10  # in one transaction: a supervisor's group commit
TOP = [sys.executable, "-m", "holdfast", "top"]
EMPTY = [
    sys.executable,
    "-c",
    "from textual.app import App\nfrom textual.widgets import Static\n"
    "class Empty(App):\n    def compose(self):\n        yield Static('painted')\nEmpty().run()",
]
PAINTED = "paint me"


def run(scale: Scale, folder: Path) -> list[Figure]:
    return [*_first_paint(scale, folder), *_at_work(scale, folder)]


def _first_paint(scale: Scale, folder: Path) -> list[Figure]:
    """All tasks are waiting, so that all of them are listed."""
    stage = Stage(folder / "paint")
    stage.queue(
        [
            TaskSpec(id=new_id(), repo_id=stage.repo_id, prompt=f"{PAINTED} {number}", agent="command")
            for number in range(scale.cold_tasks)
        ]
    )
    ours, bare = [], []
    for number in range(scale.top_rounds + 1):
        bare.append(_seconds(EMPTY, stage, "painted"))
        ours.append(_seconds(TOP, stage, PAINTED))
        if not number:
            bare.clear()  # the first one compiles
            ours.clear()
    return [
        Figure(
            name="top.first_paint",
            value=median(ours) * 1e3,
            unit="ms",
            goal=1_000.0,
            detail={
                "tasks listed": scale.cold_tasks,
                "rounds": scale.top_rounds,
                "slowest ms": round(max(ours) * 1e3),
                "an empty Textual application ms": round(median(bare) * 1e3),
            },
        )
    ]


def _seconds(command: list[str], stage: Stage, words: str) -> float:
    screen = Screen(command, stage.env)
    try:
        return screen.seconds_until(words)
    finally:
        screen.close()


def _at_work(scale: Scale, folder: Path) -> list[Figure]:
    stage = Stage(folder / "work")
    count = max(scale.exit_fleets)
    try:
        stage.up(agents=count + scale.top_rounds)
        living = Living(stage)
        tasks = [agent.task for agent in living.idle(count)]
        seen = _seen(living, scale)
        screen, empty = Screen(TOP, stage.env), Screen(EMPTY, stage.env)
        try:
            screen.seconds_until("running")
            empty.seconds_until("painted")
            time.sleep(min(CALM, scale.idle_seconds))
            screen.forget()
            idle, bare = _share((screen, empty), scale.idle_seconds)
            figures = [_idle(stage, idle, bare, count, screen.forget(), scale), seen]
            storm = _Storm(stage, tasks)
            try:
                time.sleep(min(CALM, scale.idle_seconds))
                screen.forget()
                told, (busy, _bare) = storm.told, _share((screen,), scale.idle_seconds)
                drawn, rate = screen.forget(), (storm.told - told) / scale.idle_seconds
                follower = _follower(stage, scale.idle_seconds)
            finally:
                storm.end()
        finally:
            screen.close()
            empty.close()
    finally:
        stage.down()
    return [*figures, _busy(busy, follower, count, rate, drawn / scale.idle_seconds)]


def _share(screens: tuple[Screen, ...], seconds: float) -> tuple[float, float]:
    """Percent of a core, of the first and the last."""
    before, began = [screen.cpu_seconds() for screen in screens], time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    used = [(screen.cpu_seconds() - was) / passed * 100 for screen, was in zip(screens, before, strict=True)]
    return used[0], used[-1]


def _idle(stage: Stage, idle: float, bare: float, count: int, drawn: int, scale: Scale) -> Figure:
    asked = [_cpu([sys.executable, "-m", "holdfast", "ps"], stage) for _ in range(3)]
    return Figure(
        name="top.idle.cpu",
        value=idle,
        unit="% of a core",
        goal=0.5,
        detail={
            "idle agents": count,
            "seconds": scale.idle_seconds,
            "bytes drawn/s": round(drawn / scale.idle_seconds),
            "an empty Textual application %": round(bare, 2),
            "`holdfast ps` every second %": round(median(asked) * 100, 1),
        },
    )


def _busy(busy: float, follower: float, count: int, rate: float, drawn: float) -> Figure:
    return Figure(
        name="top.busy.cpu",
        value=busy,
        unit="% of a core",
        detail={
            "agents": count,
            "events/s": round(rate),
            "KiB drawn/s": round(drawn / 1024, 1),
            "`holdfast events -f` beside it %": round(follower, 1),
        },
    )


def _seen(living: Living, scale: Scale) -> Figure:
    """`kill -9` of an agent until the screen says so, beside the whole fleet."""
    probes = living.idle(scale.top_rounds)
    screen, waits = Screen(TOP, living.stage.env), []
    try:
        screen.seconds_until("running")
        for number, agent in enumerate(probes):
            time.sleep(random.Random(number).uniform(0.1, 0.4))
            screen.forget()
            os.kill(agent.pid, signal.SIGKILL)
            waits.append(screen.seconds_until(f"task {agent.task}: killed"))
    finally:
        screen.close()
    return Figure(
        name="top.seen",
        value=max(waits) * 1e3,
        unit="ms",
        goal=1_000.0,
        detail={
            "deaths": len(waits),
            "idle agents": len(living.look().agents),
            "median ms": round(percentile(waits, 0.5) * 1e3),
        },
    )


def _follower(stage: Stage, seconds: float) -> float:
    command = [sys.executable, "-m", "holdfast", "events", "-f", "--json"]
    process = subprocess.Popen(command, env=stage.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        time.sleep(min(1.0, seconds))
        before = _ticks(process.pid)
        time.sleep(min(seconds, 10.0))
        return (_ticks(process.pid) - before) / min(seconds, 10.0) * 100
    finally:
        process.terminate()
        process.wait()


def _ticks(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _cpu(command: list[str], stage: Stage) -> float:
    process = subprocess.Popen(command, env=stage.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _pid, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


class _Storm:
    """Agents that tell how far they are, more often than any real fleet: the rows that change, and their events."""

    EVENT = (
        "INSERT INTO events (at, level, component, kind, task_id, message, data)"
        " VALUES (?, 'info', 'agent', 'agent.progress', ?, ?, '{}')"
    )

    def __init__(self, stage: Stage, tasks: list[str]) -> None:
        self._path, self._tasks = str(stage.home / "holdfast.db"), tasks
        self.told = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()

    def _tell(self) -> None:
        chance, store = random.Random(7), apsw.Connection(self._path)
        store.setbusytimeout(10_000)
        began = time.monotonic()
        while not self._ends.is_set():
            wall, words = time.time(), f"its agent is at step {self.told}"
            named = [chance.choice(self._tasks) for _ in range(BATCH)]
            with store:
                store.executemany("UPDATE tasks SET reason = ? WHERE id = ?", [(words, task) for task in named])
                store.executemany(self.EVENT, [(wall, task, words) for task in named])
            self.told += BATCH
            self._ends.wait(max(0.0, began + self.told / RATE - time.monotonic()))
        store.close()
