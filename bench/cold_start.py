"""Cold commands as multiples of a bare interpreter's CPU time, with compiled files."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.figures import Figure, Scale, median
from bench.history import fill
from bench.stage import Stage

import holdfast
from holdfast.api.queries import Queries
from holdfast.base.ids import new_id
from holdfast.core.model import TaskSpec
from holdfast.store.sqlite.rows import encode_settings

GOALS = {"help": 2.5, "ps": 4.0, "add": 6.0}
LISTED = 50  # of all tasks, how many `ps` shows: the rest are finished


def run(scale: Scale, folder: Path) -> list[Figure]:
    compileall.compile_dir(Path(holdfast.__file__).parent, quiet=2)
    stage = _home_with_tasks(scale, folder)
    ended = next(row["id"] for row in Queries(str(stage.home)).tasks(everything=True) if row["state"] == "completed")
    holdfast_words = [sys.executable, "-m", "holdfast"]
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "help": [*holdfast_words, "--help"],
        "ps": [*holdfast_words, "ps", "--json"],
        "ps-all": [*holdfast_words, "ps", "--all", "--json"],
        "add": [*holdfast_words, "add", "work", "--json", "--", "true"],
        "show": [*holdfast_words, "show", ended, "--json"],
        "why": [*holdfast_words, "why", ended, "--json"],
        "wait": [*holdfast_words, "wait", ended, "--json"],
    }
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(scale.cold_rounds + 1):
        for name, command in commands.items():
            cpu, wall = _spent(command, stage)
            if number:
                samples[name].append((cpu, wall))
    listed = {"ps": min(LISTED, scale.cold_tasks), "ps-all": scale.cold_tasks}
    return [
        _figure(name, samples, {"tasks": scale.cold_tasks, "listed": listed[name]} if name in listed else {})
        for name in commands
        if name != "python"
    ]


def _figure(name: str, samples: dict[str, list[tuple[float, float]]], detail: dict[str, float | str]) -> Figure:
    cpu, bare = [cpu for cpu, _ in samples[name]], samples["python"]
    return Figure(
        name=f"cold.{name}",
        value=median(cpu) / median(cpu for cpu, _ in bare),
        unit="× python -c pass",
        goal=GOALS.get(name),
        detail={
            **detail,
            "CPU ms": round(median(cpu) * 1e3, 1),
            "wall ms": round(median(wall for _, wall in samples[name]) * 1e3, 1),
            "python CPU ms": round(median(cpu for cpu, _ in bare) * 1e3, 1),
            "python wall ms": round(median(wall for _, wall in bare) * 1e3, 1),
        },
    )


def _home_with_tasks(scale: Scale, folder: Path) -> Stage:
    """Mostly finished tasks, as in a home that was used for a while, and some that wait."""
    stage = Stage(folder / "cold")
    waiting = [
        TaskSpec(id=new_id(), repo_id=stage.repo_id, prompt="fix the flaky test", agent="command")
        for _ in range(min(LISTED, scale.cold_tasks))
    ]
    finished = scale.cold_tasks - len(waiting)
    if finished:
        an_hour_ago = time.time() - 3600
        fill(str(stage.home / "holdfast.db"), stage.repo_id, encode_settings(waiting[0]), finished, an_hour_ago)
    stage.queue(waiting)
    return stage


def _spent(command: list[str], stage: Stage) -> tuple[float, float]:
    """CPU and wall seconds of one process."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | stage.env
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=stage.repo, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _pid, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # reaped here, so that its usage is known
    assert process.returncode == 0, command
    return used.ru_utime + used.ru_stime, time.perf_counter() - began
