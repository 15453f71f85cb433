"""From an agent's death to its `run.ended` in the store, with ever more idle agents beside it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, percentile
from bench.living import Agent, Living

SEED = 4
PAUSE = (0.02, 0.08)  # seconds between two deaths: the first is settled when the second comes
GOAL = 50.0


class Exit(NamedTuple):
    """Seconds since the kill."""

    recorded: float  # the keeper has the exit status
    proven: float  # the keeper knows that nothing is left
    noticed: float  # the supervisor acts on it
    visible: float  # everybody can see it in the store


def measure(living: Living, idle: int, samples: int) -> tuple[Figure, list[Agent]]:
    """Kill `samples` agents, one after the other, beside `idle` others; and the agents, whose starts tell more."""
    chance = random.Random(SEED)
    at_once = max(1, idle // 5)
    exits: list[Exit] = []
    probes: list[Agent] = []
    while len(exits) < samples:
        some = living.idle(min(at_once, samples - len(exits)))
        probes += some
        for agent in some:
            time.sleep(chance.uniform(*PAUSE))
            exits.append(_kill(living, agent))
    visible = [each.visible * 1e3 for each in exits]
    detail: dict[str, float | str] = {
        "idle agents": idle,
        "deaths": len(exits),
        "p50 ms": round(percentile(visible, 0.5), 1),
        "p99 ms": round(percentile(visible, 0.99), 1),
        "most ms": round(max(visible), 1),
    }
    for name, words in (
        ("recorded", "keeper has the status"),
        ("proven", "keeper has the proof"),
        ("noticed", "supervisor acts"),
    ):
        detail[f"p50 ms until the {words}"] = round(percentile([getattr(e, name) * 1e3 for e in exits], 0.5), 1)
    return Figure(
        name=f"processes.exit.{idle}",
        value=percentile(visible, 0.99),
        unit="ms",
        goal=GOAL,
        detail=detail,
    ), probes


def _kill(living: Living, agent: Agent) -> Exit:
    wall, moment = time.time(), time.monotonic()
    os.kill(agent.pid, signal.SIGKILL)  # it is the keeper's unreaped child: the number is its own
    visible = living.wait_ended(agent.task) - moment
    return Exit(
        recorded=float(living.record(agent, "exit.json")["at"]) - wall,
        proven=float(living.record(agent, "empty.json")["at"]) - wall,
        noticed=float(living.ended[agent.task]["at"]) - wall,
        visible=visible,
    )


def baselines(ours: Figure, children: int, samples: int) -> list[Figure]:
    """What an asyncio program with plain children and one that polls would have seen: in memory, with no proof."""
    script = Path(__file__).with_name("exit_baselines.py")
    figures = []
    for name in ("asyncio", "polling"):
        done = subprocess.run(
            [sys.executable, str(script), name, str(children), str(samples)],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        theirs = [1e3 * seconds for seconds in json.loads(done.stdout)]
        p50, p99 = percentile(theirs, 0.5), percentile(theirs, 0.99)
        figures.append(
            Figure(
                name=f"processes.exit.{name}",
                value=float(ours.detail["p50 ms"]) / p50,
                unit="× its time",
                detail={
                    "children": children,
                    "deaths": len(theirs),
                    "p50 ms": round(p50, 2),
                    "p99 ms": round(p99, 2),
                    "ours p50 / its p50": round(float(ours.detail["p50 ms"]) / p50, 3),
                    "ours p99 / its p99": round(float(ours.detail["p99 ms"]) / p99, 3),
                },
            )
        )
    return figures
