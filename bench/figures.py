"""What a benchmark returns: figures with goals, in a shape that JSON can hold."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One number. `goal` is met from above (`at_least`) or from below; no goal: it is only told."""

    name: str
    value: float | None  # None: it could not be measured, and `skipped` says why
    unit: str
    goal: float | None = None
    at_least: bool = False
    skipped: str | None = None
    detail: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        if self.goal is None or self.value is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How much is measured: the whole, a quick look, or the least that still runs every line."""

    name: str
    store_rounds: int
    callers: int
    cycles_per_caller: int
    plain_cycles: int
    history: int  # finished tasks in the table
    dbos_workflows: int
    claims: int
    fleet_tasks: int
    fleet_agents: int
    cold_rounds: int
    cold_tasks: int
    events: int
    exit_fleets: tuple[int, ...]  # idle agents beside those whose deaths are timed
    keeper_fleets: tuple[int, ...]  # idle agents whose keepers are looked at
    idle_seconds: float
    deaths: int  # agents killed at each size
    stops: int  # trees stopped of each kind
    big_tree: int  # processes
    peers: bool  # other managers are compared with
    settle: float  # seconds that a manager has, after it said "stopped", before survivors are counted
    second_copy: float  # seconds that a restarted manager has to start the tree a second time
    tree_sizes: tuple[int, ...]  # files of the repositories in which worktrees are made
    tree_rounds: int  # for small ones; a quarter of it for large ones
    leaked: int  # worktrees that a start finds
    burst: int  # tasks that come at once
    top_rounds: int  # first paints, and events that are looked for on the screen
    start_rounds: int  # starts and stops of an idle supervisor
    many_agents: int  # started, adopted and ended together
    long_history: int  # finished tasks, with ten events each
    history_rounds: int
    life_tasks: int = 40  # tasks of one kind, one after the other, whose CPU time `make bench-check` compares


WHOLE = Scale(
    name="whole",
    store_rounds=5,
    callers=1_000,
    cycles_per_caller=5,
    plain_cycles=1_000,
    history=100_000,
    dbos_workflows=500,
    claims=200,
    fleet_tasks=500,
    fleet_agents=50,
    cold_rounds=40,
    cold_tasks=10_000,
    events=400,
    exit_fleets=(1, 100, 500),
    keeper_fleets=(10, 100, 500),
    idle_seconds=30.0,
    deaths=100,
    stops=5,
    big_tree=1_000,
    peers=True,
    settle=2.0,
    second_copy=8.0,
    tree_sizes=(100, 10_000),
    tree_rounds=20,
    leaked=1_000,
    burst=20,
    top_rounds=10,
    start_rounds=15,
    many_agents=500,
    long_history=1_000_000,
    history_rounds=9,
)
QUICK = Scale(
    name="quick",
    store_rounds=1,
    callers=1_000,
    cycles_per_caller=3,
    plain_cycles=600,
    history=100_000,
    dbos_workflows=100,
    claims=20,
    fleet_tasks=40,
    fleet_agents=20,
    cold_rounds=8,
    cold_tasks=10_000,
    events=50,
    exit_fleets=(1, 100),
    keeper_fleets=(10, 100),
    idle_seconds=6.0,
    deaths=10,
    stops=2,
    big_tree=200,
    peers=True,
    settle=0.5,
    second_copy=8.0,
    tree_sizes=(100, 10_000),
    tree_rounds=4,
    leaked=100,
    burst=20,
    top_rounds=3,
    start_rounds=5,
    many_agents=50,
    long_history=100_000,
    history_rounds=5,
)
SMOKE = Scale(
    name="smoke",
    store_rounds=1,
    callers=20,
    cycles_per_caller=1,
    plain_cycles=10,
    history=100,
    dbos_workflows=0,
    claims=3,
    fleet_tasks=4,
    fleet_agents=2,
    cold_rounds=2,
    cold_tasks=100,
    events=5,
    exit_fleets=(1,),
    keeper_fleets=(10,),
    idle_seconds=0.5,
    deaths=7,  # more than a mass death has
    stops=1,
    big_tree=10,
    peers=False,
    settle=0.2,
    second_copy=0.5,
    tree_sizes=(10,),
    tree_rounds=1,
    leaked=2,
    burst=2,
    top_rounds=1,
    start_rounds=1,
    many_agents=3,
    long_history=200,
    history_rounds=1,
    life_tasks=2,
)


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
