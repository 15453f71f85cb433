"""An idle supervisor's start and stop, in CPU time of the process and of all that it started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.figures import Figure, Scale, median
from bench.stage import Stage

GOAL = 50.0


def run(scale: Scale, folder: Path) -> list[Figure]:
    stage = Stage(folder / "start-stop")
    samples = [(cpu_of_start_and_stop(stage), _bare()) for _ in range(scale.start_rounds + 1)][1:]
    spent = median(cpu for cpu, _ in samples)
    return [
        Figure(
            name="start_stop.cpu",
            value=spent * 1e3,
            unit="ms",
            goal=GOAL,
            detail={
                "rounds": scale.start_rounds,
                "× python -c pass": round(spent / median(bare for _, bare in samples), 1),
                "least ms": round(min(cpu for cpu, _ in samples) * 1e3, 1),
            },
        )
    ]


def cpu_of_start_and_stop(stage: Stage) -> float:
    """Return the CPU seconds of a supervisor that finds nothing to do and ends at once; its children are counted."""
    env = {key: value for key, value in stage.env.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with (stage.folder / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "up", "--agents", "1", "--idle-exit", "0s"],
            cwd=stage.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return cpu_of(process)


def _bare() -> float:
    return cpu_of(subprocess.Popen([sys.executable, "-c", "pass"]))


def cpu_of(process: subprocess.Popen[bytes]) -> float:
    """Wait for the process. Return its CPU seconds and those of its children."""
    _pid, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # reaped here, so that its usage is known
    if process.returncode != 0:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime
