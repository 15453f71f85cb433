"""Scripted tasks end to end with many agents at once, against the very same commands under `xargs -P`."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path

from bench.figures import Figure, Scale
from bench.stage import Stage

from holdfast.agents.port import WorkOrder
from holdfast.agents.scripted import ScriptedAgent
from holdfast.core.model import Strategy, TaskSpec
from holdfast.ids import new_id

STEPS = [{"do": "print", "with": "working", "run": None}]


def run(scale: Scale, folder: Path) -> list[Figure]:
    bare_seconds, bare_cpu = _under_xargs(folder, scale.fleet_tasks, scale.fleet_agents)
    figures = []
    for strategy in (Strategy.DIRECTORY, Strategy.WORKTREE):
        figures.append(_supervised(scale, folder, strategy, bare_seconds, bare_cpu))
    return figures


def _supervised(scale: Scale, folder: Path, strategy: Strategy, bare_seconds: float, bare_cpu: float) -> Figure:
    stage = Stage(folder / f"fleet-{strategy}")
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
    return Figure(
        name=f"fleet.{strategy}",
        value=seconds / bare_seconds,
        unit="× the time of xargs",
        detail={
            "tasks": scale.fleet_tasks,
            "agents": scale.fleet_agents,
            "tasks/s": round(scale.fleet_tasks / seconds, 1),
            "xargs commands/s": round(scale.fleet_tasks / bare_seconds, 1),
            "supervisor CPU s": round(own - own_before, 2),
            "supervisor CPU ms per task": round((own - own_before) / scale.fleet_tasks * 1e3, 1),
            "CPU s of keepers, agents and git": round(children - children_before, 2),
            "xargs CPU s with its commands": round(bare_cpu, 2),
            "supervisor peak MiB": round(peak, 1),
        },
    )


def _under_xargs(folder: Path, tasks: int, agents: int) -> tuple[float, float]:
    """Wall and CPU seconds of the same command lines with the same standard input, `agents` at once."""
    work = folder / "xargs"
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
    return seconds, (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
