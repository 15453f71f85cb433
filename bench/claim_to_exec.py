"""From the claim to the agent's own first breath: supervisor, workspace rows, run directory, keeper, exec."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.figures import Figure, Scale, percentile
from bench.stage import Stage

from holdfast.api.queries import Queries
from holdfast.base.ids import new_id
from holdfast.core.model import Strategy, TaskSpec


def run(scale: Scale, folder: Path) -> list[Figure]:
    """The agent is `date +%s%N`: it tells the time at which it runs. `--workspace none`: one at a time."""
    stage = Stage(folder / "claims")
    date = shutil.which("date") or "date"
    stage.queue(
        [
            TaskSpec(
                id=new_id(),
                repo_id=stage.repo_id,
                prompt="tell the time",
                agent="command",
                agent_options={"argv": [date, "+%s%N"]},
                strategy=Strategy.NONE,
            )
            for _ in range(scale.claims)
        ]
    )
    try:
        stage.up(agents=4)
        stage.wait_completed(scale.claims)
    finally:
        stage.down()
    waits = sorted(_waits(stage, scale.claims))
    return [
        Figure(
            name="claim_to_exec.p99",
            value=percentile(waits, 0.99) * 1e3,
            unit="ms",
            goal=150.0,
            detail={
                "tasks": len(waits),
                "p50 ms": round(percentile(waits, 0.5) * 1e3, 1),
                "p99 ms": round(percentile(waits, 0.99) * 1e3, 1),
                "most ms": round(waits[-1] * 1e3, 1),
            },
        )
    ]


def _waits(stage: Stage, count: int) -> list[float]:
    """Claimed: by the event. Running: by the agent's output."""
    queries = Queries(str(stage.home))
    claimed = {
        str(event["task"]): float(event["at"])
        for event in queries.events(limit=count * 50)
        if event["kind"] == "task.claimed"
    }
    waits = []
    for task, at in claimed.items():
        run_id = queries.task(task)["runs"][0]["id"]
        told = (stage.home / "runs" / run_id / "out.log").read_text()
        waits.append(int(told) / 1e9 - at)
    return waits
