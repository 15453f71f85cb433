"""500 agents: all started, all adopted after kill -9 of their supervisor, all ended by `down --now`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import apsw
from bench import proc
from bench.figures import Figure, Scale
from bench.living import Living
from bench.stage import Stage

ADOPTED = "SELECT count(*) FROM events WHERE kind = 'task.adopted'"
GOALS = {"started": 25.0, "adopted": 3.0, "ended": 5.0}


def run(scale: Scale, folder: Path) -> list[Figure]:
    stage, count = Stage(folder / "many"), scale.many_agents
    living = Living(stage)
    store = apsw.Connection(str(stage.home / "holdfast.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        stage.up(agents=count)
        began = time.monotonic()
        agents = living.idle(count)
        started, cpu_started = time.monotonic() - began, sum(stage.supervisor_cpu())
        stage.kill_supervisor()
        began = time.monotonic()
        stage.up(agents=count)
        stage.wait(lambda: store.execute(ADOPTED).get >= count, "all agents are adopted")
        adopted, cpu_adopted = time.monotonic() - began, sum(stage.supervisor_cpu())
        keepers = living.keepers()
        began = time.monotonic()
        down = [sys.executable, "-m", "holdfast", "down", "--now"]
        subprocess.run(down, env=stage.env, stdout=subprocess.DEVNULL, check=True)
        ended = time.monotonic() - began
        left = sum(proc.parent(agent.pid) in keepers for agent in agents)
    finally:
        store.close()
        stage.down()
    more: dict[str, dict[str, float | str]] = {
        "started": {"CPU s of the supervisor and what it has reaped": round(cpu_started, 2)},
        "adopted": {"CPU s of the supervisor": round(cpu_adopted, 2)},
        "ended": {"agents that live after it": left},
    }
    return [
        Figure(
            name=f"many_agents.{name}",
            value=seconds,
            unit="s",
            goal=GOALS[name],
            detail={"agents": count, **more[name]},
        )
        for name, seconds in (("started", started), ("adopted", adopted), ("ended", ended))
    ]
