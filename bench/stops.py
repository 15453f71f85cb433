"""From `cancel` to the proof that nothing of the tree is left, checked by a witness of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench import proc
from bench.figures import Figure, Scale, percentile
from bench.living import Agent, Living
from bench.stage import Stage

from holdfast.api.commands import Commands

TREE = str(Path(__file__).with_name("hostile_tree.py"))
GRACE = 1.0  # seconds between TERM and KILL when a task is cancelled


class Stop(NamedTuple):
    """Seconds since the cancel."""

    proven: float  # empty.json is there
    gone: float  # nobody holds the witness any more
    survivors: int  # when the proof was written
    proof: str


class Tree(NamedTuple):
    agent: Agent
    witness: Path


def run(scale: Scale, folder: Path) -> list[Figure]:
    stage = Stage(folder / "stops")
    living = Living(stage)
    commands = Commands(str(stage.home))
    kinds = {"plain": ["--plain"], "stubborn": ["--stubborn"], "hostile": []}
    trees: list[Tree] = []
    figures = []
    try:
        stage.up(agents=4)
        for kind, how in kinds.items():
            stops = []
            for number in range(scale.stops):
                trees.append(plant(living, f"{kind}-{number}", how))
                stops.append(stop(living, commands, trees[-1]))
            figures.append(_figure(kind, stops))
        trees.append(plant(living, "many", ["--many", str(scale.big_tree)]))
        figures.append(_many(stop(living, commands, trees[-1]), scale.big_tree))
    finally:
        stage.down()
        for tree in trees:
            proc.end(proc.holders(tree.witness), tree.witness)
    return figures


def plant(living: Living, name: str, how: list[str]) -> Tree:
    """An agent that is such a tree, when all of it runs."""
    witness, ready = living.stage.folder / f"{name}.witness", living.stage.folder / f"{name}.ready"
    agent = living.start([[sys.executable, "-S", TREE, str(witness), str(ready), *how]])[0]
    living.until(ready.exists, f"the tree {name} has grown")
    return Tree(agent, witness)


def stop(living: Living, commands: Commands, tree: Tree) -> Stop:
    began = time.monotonic()
    commands.cancel(tree.agent.task, "benchmark")
    proven = living.until((living.directory(tree.agent) / "empty.json").exists, "the tree is proven empty") - began
    survivors = len(proc.holders(tree.witness))
    gone = living.until(lambda: not proc.holders(tree.witness), "nobody holds the witness") - began
    living.wait_ended(tree.agent.task)
    return Stop(proven, gone, survivors, str(living.record(tree.agent, "empty.json")["proof"]))


def _figure(kind: str, stops: list[Stop]) -> Figure:
    waits = [each.proven * 1e3 for each in stops]
    return Figure(
        name=f"processes.stop.{kind}",
        value=max(waits),
        unit="ms",
        goal=2000.0,
        detail={
            "trees": len(stops),
            "p50 ms": round(percentile(waits, 0.5), 1),
            "most ms": round(max(waits), 1),
            "of which grace ms": 0 if kind == "plain" else GRACE * 1e3,
            "survivors at the proof, by the witness": sum(each.survivors for each in stops),
            "proof": stops[0].proof,
        },
    )


def _many(found: Stop, size: int) -> Figure:
    return Figure(
        name="processes.stop.many",
        value=(found.proven - GRACE) * 1e3,
        unit="ms",
        goal=1000.0,
        detail={
            "processes": size,
            "ms from the cancel to the proof": round(found.proven * 1e3),
            "of which grace ms": GRACE * 1e3,
            "ms until the witness sees nobody": round(found.gone * 1e3),
            "survivors at the proof, by the witness": found.survivors,
            "proof": found.proof,
        },
    )
