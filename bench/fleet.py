"""Scripted tasks end to end with many agents at once, against the very same commands under `xargs -P`.

In worktrees the commands change a file, and xargs runs a line of shell that adds, commits and removes a worktree
(bench/by_hand.py). The time ends when all worktrees are removed on both sides.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from bench.by_hand import BY_HAND, environment, refusals, wait_gone
from bench.figures import Figure, Scale
from bench.stage import Stage

from holdfast.agents.port import WorkOrder
from holdfast.agents.scripted import ScriptedAgent
from holdfast.base.ids import new_id
from holdfast.core.model import Strategy, TaskSpec

PRINT = [{"do": "print", "with": "working", "run": None}]
WRITE = [*PRINT, {"do": "write", "with": {"path": "new.txt", "text": "work\n"}, "run": None}]
STEPS = {Strategy.DIRECTORY: PRINT, Strategy.WORKTREE: WRITE}
# A shell only opens the files and becomes the command: xargs itself can give every child but one standard input.
BARE = 'n=$0; exec "$@" < "$SCRIPT" > "$OUT/$n.out"'
IN_WORKTREE = "n=$0; " + BY_HAND.format(command='"$@" < "$SCRIPT" > "$OUT/$n.out"')


def run(scale: Scale, folder: Path) -> list[Figure]:
    """xargs before and after each fleet: what it takes in between is the mean of the two."""
    figures = []
    for strategy, line in ((Strategy.DIRECTORY, BARE), (Strategy.WORKTREE, IN_WORKTREE)):
        found = []
        for name in ("before", "after"):
            found.append(_under_xargs(Stage(folder / f"xargs-{strategy}-{name}"), scale, strategy, line))
            if name == "before":
                fleet = _supervised(scale, folder / f"fleet-{strategy}", strategy)
        before, after = found
        between = _Spent(
            (before.seconds + after.seconds) / 2, (before.cpu + after.cpu) / 2, before.refusals + after.refusals
        )
        figures.append(_figure(scale, strategy, fleet, between))
    return figures


class _Spent(NamedTuple):
    seconds: float
    cpu: float
    refusals: int = 0  # of git to the script, while others made worktrees


class _Fleet(NamedTuple):
    seconds: float  # until all worktrees are removed
    completed: float  # seconds until all tasks have completed
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
                    agent_options={"steps": STEPS[strategy]},
                    strategy=strategy,
                )
                for _ in range(scale.fleet_tasks)
            ]
        )
        stage.wait_completed(scale.fleet_tasks)
        completed = time.perf_counter() - began
        if strategy is Strategy.WORKTREE:
            wait_gone(stage)
        seconds = time.perf_counter() - began
        own, children = stage.supervisor_cpu()
        peak = stage.supervisor_peak_mib()
    finally:
        stage.down()
    return _Fleet(seconds, completed, own - own_before, children - children_before, peak)


def _figure(scale: Scale, strategy: Strategy, fleet: _Fleet, bare: _Spent) -> Figure:
    return Figure(
        name="fleet.by_hand" if strategy is Strategy.WORKTREE else "fleet.directory",
        value=fleet.seconds / bare.seconds,
        unit="× the time of xargs",
        goal=1.5 if strategy is Strategy.WORKTREE else None,
        detail={
            "tasks": scale.fleet_tasks,
            "agents": scale.fleet_agents,
            "× until all completed": round(fleet.completed / bare.seconds, 2),
            "tasks/s": round(scale.fleet_tasks / fleet.seconds, 1),
            "xargs commands/s": round(scale.fleet_tasks / bare.seconds, 1),
            "supervisor CPU s": round(fleet.supervisor_cpu, 2),
            "supervisor CPU ms per task": round(fleet.supervisor_cpu / scale.fleet_tasks * 1e3, 1),
            "CPU s of keepers, agents and git": round(fleet.children_cpu, 2),
            "xargs CPU s with its commands": round(bare.cpu, 2),
            "refusals of git to the script": bare.refusals,
            "supervisor peak MiB": round(fleet.peak_mib, 1),
        },
    )


def _under_xargs(stage: Stage, scale: Scale, strategy: Strategy, line: str) -> _Spent:
    """Wall and CPU seconds of the same command lines with the same standard input, as many at once."""
    work = stage.folder / "out"
    work.mkdir()
    options = {"steps": STEPS[strategy]}
    command = ScriptedAgent().build(WorkOrder(prompt="work", run_number=1, session_id=None, options=options))
    assert json.loads(command.stdin)["steps"] == STEPS[strategy]
    script = work / "script.json"
    script.write_text(command.stdin)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(
        ["xargs", "-P", str(scale.fleet_agents), "-I", "{}", "sh", "-c", line, "{}", *command.argv],
        input="\n".join(str(number) for number in range(scale.fleet_tasks)).encode(),
        env={**os.environ, **environment(stage, work), "SCRIPT": str(script)},
        check=True,
    )
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = [file.read_text() for file in work.glob("*.out")]
    assert len(said) == scale.fleet_tasks
    assert all('"success"' in text for text in said)
    return _Spent(seconds, (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime), refusals(work))
