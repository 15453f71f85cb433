"""Scripted tasks end to end with many agents at once, against the very same commands under `xargs -P`."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, Scale
from bench.stage import Stage

from holdfast.agents.port import WorkOrder
from holdfast.agents.scripted import ScriptedAgent
from holdfast.base.ids import new_id
from holdfast.core.model import Strategy, TaskSpec

STEPS = [{"do": "print", "with": "working", "run": None}]


def run(scale: Scale, folder: Path) -> list[Figure]:
    """xargs before and after each fleet: what it takes in between is the mean of the two."""
    before = _under_xargs(folder / "xargs-0", scale.fleet_tasks, scale.fleet_agents)
    figures = []
    for number, strategy in enumerate((Strategy.DIRECTORY, Strategy.WORKTREE), start=1):
        fleet = _supervised(scale, folder / f"fleet-{strategy}", strategy)
        after = _under_xargs(folder / f"xargs-{number}", scale.fleet_tasks, scale.fleet_agents)
        between = _Spent((before.seconds + after.seconds) / 2, (before.cpu + after.cpu) / 2)
        figures.append(_figure(scale, strategy, fleet, between))
        before = after
    return figures


class _Spent(NamedTuple):
    seconds: float
    cpu: float


class _Fleet(NamedTuple):
    seconds: float
    supervisor_cpu: float
    children_cpu: float
    peak_mib: float


def _supervised(scale: Scale, folder: Path, strategy: Strategy) -> _Fleet:
    stage = Stage(folder)
    try:
        stage.up(agents=scale.fleet_agents)
        own_before, children_before = stage.supervisor_cpu()
        began = time.perf_counter()
        stage.queue(
            [
                TaskSpec(
                    id=new_id(),
                    repo_id=stage.repo_id,
                    prompt="work",
                    agent="scripted",
                    agent_options={"steps": STEPS},
                    strategy=strategy,
                )
                for _ in range(scale.fleet_tasks)
            ]
        )
        stage.wait_completed(scale.fleet_tasks)
        seconds = time.perf_counter() - began
        own, children = stage.supervisor_cpu()
        peak = stage.supervisor_peak_mib()
    finally:
        stage.down()
    return _Fleet(seconds, own - own_before, children - children_before, peak)


def _figure(scale: Scale, strategy: Strategy, fleet: _Fleet, bare: _Spent) -> Figure:
    return Figure(
        name=f"fleet.{strategy}",
        value=fleet.seconds / bare.seconds,
        unit="× the time of xargs",
        detail={
            "tasks": scale.fleet_tasks,
            "agents": scale.fleet_agents,
            "tasks/s": round(scale.fleet_tasks / fleet.seconds, 1),
            "xargs commands/s": round(scale.fleet_tasks / bare.seconds, 1),
            "supervisor CPU s": round(fleet.supervisor_cpu, 2),
            "supervisor CPU ms per task": round(fleet.supervisor_cpu / scale.fleet_tasks * 1e3, 1),
            "CPU s of keepers, agents and git": round(fleet.children_cpu, 2),
            "xargs CPU s with its commands": round(bare.cpu, 2),
            "supervisor peak MiB": round(fleet.peak_mib, 1),
        },
    )


def _under_xargs(work: Path, tasks: int, agents: int) -> _Spent:
    """Wall and CPU seconds of the same command lines with the same standard input, `agents` at once."""
    work.mkdir()
    command = ScriptedAgent().build(WorkOrder(prompt="work", run_number=1, session_id=None, options={"steps": STEPS}))
    assert json.loads(command.stdin)["steps"] == STEPS
    script = work / "script.json"
    script.write_text(command.stdin)
    # A shell only opens the files and becomes the command: xargs itself can give every child but one standard input.
    line = 'exec "$@" < "$SCRIPT" > "$OUT/$0.out"'
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(
        ["xargs", "-P", str(agents), "-I", "{}", "sh", "-c", line, "{}", *command.argv],
        input="\n".join(str(number) for number in range(tasks)).encode(),
        env={**os.environ, "SCRIPT": str(script), "OUT": str(work)},
        check=True,
    )
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = [file.read_text() for file in work.glob("*.out")]
    assert len(said) == tasks
    assert all('"success"' in text for text in said)
    return _Spent(seconds, (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime))
