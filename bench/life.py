"""What the life of one task costs: exact counts, and the supervisor's CPU time. `make bench-check` compares these."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.figures import Figure, Scale
from bench.stage import Stage

from holdfast.base.ids import new_id
from holdfast.core.model import Strategy, TaskSpec

ROWS = {
    "add, worktree": "add",
    "task, directory, nothing changed": "directory",
    "task, worktree, nothing changed": "worktree",
    "task, worktree, a new file": "worktree-file",
}
WARM_UP = 3  # tasks before the measured ones


def run(scale: Scale, folder: Path) -> list[Figure]:
    """The counts do not depend on the machine. The CPU time does, but little on its load: tasks come one by one."""
    (folder / "life").mkdir()
    figures = _counts(folder / "life")
    for strategy in (Strategy.DIRECTORY, Strategy.WORKTREE):
        figures.append(_cpu(scale, folder / "life" / strategy, strategy))
    return figures


def _counts(folder: Path) -> list[Figure]:
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.fleet import Fleet
    from tests.harness.exact_counts import measure, strace_problem

    (folder / "counts").mkdir()
    fleet = Fleet(folder / "counts")
    try:
        found = measure(fleet, syncs=not strace_problem()).counts
    finally:
        fleet.close()
    return [
        Figure(
            name=f"life.count.{short}",
            value=float(found[row].git),
            unit="git processes",
            goal={"add": 1.0, "directory": 0.0, "worktree": 4.0, "worktree-file": 7.0}[short],
            detail={key: number for key, number in found[row]._asdict().items() if number is not None},
        )
        for row, short in ROWS.items()
    ]


def _cpu(scale: Scale, folder: Path, strategy: Strategy) -> Figure:
    stage = Stage(folder)
    spent, children = 0.0, 0.0
    try:
        stage.up(agents=1)
        for count, is_measured in ((WARM_UP, False), (scale.life_tasks, True)):
            before = stage.supervisor_cpu()
            stage.queue([_task(stage, strategy) for _ in range(count)])
            stage.wait_completed(count + (WARM_UP if is_measured else 0))
            after = stage.supervisor_cpu()
            spent, children = after[0] - before[0], after[1] - before[1]
    finally:
        stage.down()
    return Figure(
        name=f"life.cpu.{strategy}",
        value=spent / scale.life_tasks * 1e3,
        unit="ms of the supervisor's CPU per task",
        goal=4.0 if strategy is Strategy.DIRECTORY else 15.0,
        detail={
            "tasks": scale.life_tasks,
            "CPU ms of keepers, agents and git per task": round(children / scale.life_tasks * 1e3, 1),
        },
    )


def _task(stage: Stage, strategy: Strategy) -> TaskSpec:
    return TaskSpec(
        id=new_id(),
        repo_id=stage.repo_id,
        prompt="work",
        agent="command",
        agent_options={"argv": ["true"]},
        strategy=strategy,
    )
