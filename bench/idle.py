"""What idle agents cost: the supervisor's memory, CPU and wakes, and their keepers'. Deaths are timed on the way."""

from __future__ import annotations

import time
from pathlib import Path

from bench import exits, proc
from bench.figures import Figure, Scale, median
from bench.living import Agent, Living
from bench.stage import Stage

CALM = 3.0  # seconds after the last start or death before an idle machine is measured
MIB = 2**20


def run(scale: Scale, folder: Path) -> list[Figure]:
    """One supervisor; the number of its idle agents grows, and each size is measured before the next."""
    stage = Stage(folder / "idle")
    most = max(*scale.exit_fleets, *scale.keeper_fleets)
    living = Living(stage)
    figures: list[Figure] = []
    try:
        # An agent that was killed is not run again, and our own kills are no mass death.
        alone = {"HOLDFAST_RUNS_MAX": "1", "HOLDFAST_MASS_DEATH_AGENTS": "0"}
        stage.up(agents=most + max(1, most // 5), env=alone)
        for count in sorted({*scale.exit_fleets, *scale.keeper_fleets}):
            living.idle(count - len(living.agents))
            if count in scale.keeper_fleets:
                figures.append(_keepers(living, count))
            if count in scale.exit_fleets:
                ours, probes = exits.measure(living, count, scale.deaths)
                figures += [ours, _starts(probes, count)]
        figures += exits.baselines(ours, max(scale.exit_fleets), scale.deaths)
        figures += _at_rest(living, most, scale.idle_seconds)
    finally:
        stage.down()
    return figures


def _keepers(living: Living, count: int) -> Figure:
    """Private memory of a keeper, and the CPU time that it has used to start."""
    keepers = living.keepers()
    found = [proc.memory(pid) for pid in keepers]
    return Figure(
        name=f"processes.keeper.memory.{count}",
        value=median(each.private for each in found) / MIB,
        unit="MiB",
        goal=1.0 if count > 100 else None,
        detail={
            "keepers": len(keepers),
            "private MiB of all": round(sum(each.private for each in found) / MIB, 1),
            "resident MiB each, shared pages counted": round(median(each.resident for each in found) / MIB, 1),
            "CPU ms to start": round(median(proc.cpu_seconds(pid) for pid in keepers) * 1e3, 1),
        },
    )


def _starts(probes: list[Agent], count: int) -> Figure:
    waits = [(agent.started_at - agent.claimed_at) * 1e3 for agent in probes]
    return Figure(
        name=f"processes.keeper.start.{count}",
        value=median(waits),
        unit="ms",
        detail={"idle agents": count, "starts": len(waits), "at once": max(1, count // 5)},
    )


def _at_rest(living: Living, count: int, seconds: float) -> list[Figure]:
    time.sleep(min(CALM, seconds))
    supervisor, keepers = living.stage.supervisor_pid(), living.keepers()
    own, woken, theirs = _used(supervisor, keepers)
    began = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    own_after, woken_after, theirs_after = _used(supervisor, keepers)
    memory = proc.memory(supervisor)
    spent: dict[str, float | str] = {"idle agents": count, "seconds": round(passed)}
    return [
        Figure(
            name="processes.idle.cpu",
            value=(own_after - own) / passed * 100,
            unit="% of a core",
            goal=0.5,
            detail={**spent, "wakes/s": round((woken_after - woken) / passed, 1)},
        ),
        Figure(
            name="processes.idle.memory",
            value=memory.resident / MIB,
            unit="MiB",
            goal=120.0,
            detail={
                "idle agents": count,
                "private MiB": round(memory.private / MIB, 1),
                "fair share (PSS) MiB": round(memory.fair / MIB, 1),
            },
        ),
        Figure(
            name="processes.keepers.cpu",
            value=(theirs_after - theirs) / passed * 100,
            unit="% of a core",
            detail={**spent, "µs per keeper and second": round((theirs_after - theirs) / passed / count * 1e6, 1)},
        ),
    ]


def _used(supervisor: int, keepers: list[int]) -> tuple[float, int, float]:
    return proc.cpu_seconds(supervisor), proc.wakes(supervisor), sum(proc.cpu_seconds(pid) for pid in keepers)
