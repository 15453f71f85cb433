"""Killed between any two steps of a launch: never two agents, never a lost task.

The steps are not listed here: a rehearsal writes down which crash points a launch passes, so new steps are covered as
soon as there are some.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.fleet import Fleet, lives, wait_until
from tests.harness.mutations import BY_TASK
from tests.hostile import solo
from tests.hostile.gate import Gate, by_task, keeper_at_work
from tests.hostile.stage import Stage
from tests.sampling import sampled

from holdfast.api.queries import Queries
from holdfast.api.tasks.models import RunRow

LONG_START = 1.5  # the launcher looks for a keeper that says nothing after a second
LET_GO = "keeper.let_go"  # passed: the agent may exec


class Launches:
    """Tasks of agents that count themselves, one directory of notes for each."""

    def __init__(self, stage: Stage) -> None:
        self.fleet: Fleet = stage.fleet
        self.fleet.mutant = BY_TASK
        self.stage = stage
        self._number = 0

    def add(self, *, go: bool = True, gated: bool = False) -> Launch:
        self._number += 1
        folder = self.fleet.root / f"notes-{self._number}"
        folder.mkdir()
        if go:
            (folder / "go").touch()
        gate = Gate(self.fleet.root / f"gate-{self._number}") if gated else None
        task_id = self.fleet.add(
            "count",
            "--workspace",
            "none",
            command=(sys.executable, "-I", "-S", solo.__file__, folder, 30),
            env=gate.env if gate else None,
        )
        return Launch(self, task_id, folder, gate)

    def steps_of_supervisor(self) -> list[str]:
        """`point:hit` of every step from the intent to the record of the start."""
        trace = self.fleet.root / "trace-supervisor"
        launch = self.add()
        supervisor = self.fleet.up("--idle-exit", "0s", env={"HOLDFAST_FAULT_TRACE": str(trace)})
        assert supervisor.wait(timeout=60) == 0, self.fleet.log()
        launch.assert_ran_once()
        steps = [":".join(line.split(":")[:2]) for line in trace.read_text().split()]
        window = steps[steps.index("tx.run.intend:1") : steps.index("tx.run.started:1") + 1]
        # Each of them once; tests/faults goes to every hit, and to the commits, whose number varies.
        first: dict[str, str] = {}
        for step in window:
            first.setdefault(step.partition(":")[0], step)
        return [step for point, step in first.items() if "writer" not in point]

    def steps_of_keeper(self) -> list[str]:
        """Its steps in order, from its first to its last; a supervisor must be up."""
        trace = self.fleet.root / "trace-keeper"
        task_id = self.fleet.add("count", "--workspace", "none", command=("true",), env=by_task(trace))
        queries = Queries(str(self.fleet.home))
        wait_until(lambda: queries.state(task_id)["state"] == "completed", "the rehearsal is completed")
        return [line.partition(":")[0] for line in trace.read_text().split()]


class Launch:
    def __init__(self, launches: Launches, task_id: str, folder: Path, gate: Gate | None) -> None:
        self.fleet = launches.fleet
        self.stage = launches.stage
        self.task_id = task_id
        self.folder = folder
        self.gate = gate
        self.queries = Queries(str(self.fleet.home))  # by the CLI this would take most of the test's time

    def runs(self) -> list[RunRow]:
        return self.queries.task(self.task_id)["runs"]

    def wait_event(self, kind: str) -> None:
        wait_until(lambda: kind in [event["kind"] for event in self.queries.events(task_id=self.task_id)], kind)

    def wait_completed(self) -> None:
        wait_until(lambda: self.queries.state(self.task_id)["state"] == "completed", "the task is completed")

    @property
    def executions(self) -> int:
        ran = self.folder / "ran"
        return len(ran.read_text().splitlines()) if ran.exists() else 0

    def hold_before(self, steps: list[str]) -> tuple[str, int]:
        """Let the first keeper pass exactly these steps; (run, keeper)."""
        assert self.gate is not None
        run_id = str(wait_until(self.runs, "a run is intended")[0]["id"])
        keeper = keeper_at_work(self.fleet, run_id)
        self.gate.wait_held(keeper)
        assert [self.gate.step(keeper) for _ in steps] == steps
        return run_id, keeper

    def assert_ran_once(self) -> None:
        self.wait_completed()
        self.assert_alone()
        assert self.executions == 1

    def assert_alone(self) -> None:
        assert not (self.folder / "overlap").exists(), (self.folder / "ran").read_text()


@pytest.mark.parametrize("part", sampled([0, 1], keep=1))
def test_supervisor_killed_at_each_of_its_steps(plain_stage: Stage, part: int) -> None:
    """R-TERM-02, R-TERM-10: from the intent to the record of the start; the next one finds it, and it runs once."""
    launches = Launches(plain_stage)
    steps = launches.steps_of_supervisor()
    assert {"keeper.locked", "process.spawn", "process.spawned"} <= {step.partition(":")[0] for step in steps}
    for step in steps[part::2]:
        launch = launches.add()
        dying = plain_stage.fleet.up("--idle-exit", "0s", env={"HOLDFAST_FAULT": f"{step}:kill"})
        alone = step.startswith("cradle.")  # a step of the process that forks keepers: only that one dies
        assert dying.wait(timeout=60) == (0 if alone else -signal.SIGKILL), f"{step} was not reached"
        second = plain_stage.fleet.up("--idle-exit", "0s")
        assert second.wait(timeout=60) == 0, plain_stage.fleet.log()
        launch.assert_ran_once()


def test_supervisor_killed_while_the_keeper_is_at_each_step_of_its_start(plain_stage: Stage) -> None:
    """R-TERM-10: before the fork, after it, before pid.json, before exec. The lock is inherited, so the next
    supervisor waits for a keeper that has said nothing yet, and starts no second agent."""
    launches = Launches(plain_stage)
    fleet = plain_stage.fleet
    supervisor = fleet.up()
    steps = launches.steps_of_keeper()
    for number in range(steps.index(LET_GO) + 1):
        launch = launches.add(gated=True)
        assert launch.gate is not None
        run_id, keeper = launch.hold_before(steps[:number])
        fleet.kill_supervisor(supervisor)
        supervisor = fleet.up()
        launch.wait_event("task.adopted")
        assert lives(keeper)
        assert launch.executions == 0 or steps[number] == LET_GO
        launch.gate.open(keeper)
        launch.assert_ran_once()
        assert [run["id"] for run in launch.runs()] == [run_id], f"held before {steps[number]}"


def test_the_pid_of_a_slow_start_is_the_agents(plain_stage: Stage) -> None:
    """R-TERM-02, R-TERM-10: adopted before its keeper had forked, and held there: what is shown as the agent's pid is
    the agent's, never the keeper's."""
    launches = Launches(plain_stage)
    fleet = plain_stage.fleet
    supervisor = fleet.up()
    launch = launches.add(gated=True)
    assert launch.gate is not None
    run_id, keeper = launch.hold_before([])
    fleet.kill_supervisor(supervisor)
    fleet.up()
    launch.wait_event("task.adopted")
    time.sleep(LONG_START)
    launch.gate.open(keeper)
    launch.assert_ran_once()
    assert launch.runs()[0]["pid"] == plain_stage.record(run_id, "pid.json")["agent"]["pid"]
    assert int((launch.folder / "ran").read_text().split()[1]) == launch.runs()[0]["pid"]


def test_keeper_killed_at_each_of_its_steps(plain_stage: Stage) -> None:
    """R-TERM-09: its supervisor lives and ends what it left: run again where the agent had not finished, never twice
    at the same time, never for ever."""
    launches = Launches(plain_stage)
    fleet = plain_stage.fleet
    fleet.env["HOLDFAST_MASS_DEATH_AGENTS"] = "0"  # so many dead keepers within moments are one, and hold the rest back
    fleet.up()
    steps = launches.steps_of_keeper()
    for number, step in enumerate(steps):
        launch = launches.add(gated=True)
        assert launch.gate is not None
        run_id, keeper = launch.hold_before(steps[:number])
        launch.gate.open_for_others()
        os.kill(keeper, signal.SIGKILL)
        launch.wait_completed()
        outcomes = [run["outcome"] for run in launch.runs()]
        assert outcomes in (["completed"], ["lost", "completed"]), step
        launch.assert_alone()
        if number <= steps.index(LET_GO) and step != LET_GO:
            assert (outcomes, launch.executions) == (["lost", "completed"], 1), step
        else:
            assert launch.executions <= len(outcomes), step
        assert (fleet.home / "runs" / run_id / "empty.json").exists() or number < steps.index(LET_GO), step


@pytest.mark.parametrize("stage", sampled(["subreaper", "cgroup"], keep=1), indirect=True)
def test_both_killed_at_each_step_of_a_start(stage: Stage) -> None:
    """R-TERM-10: nobody is left who could prove anything. Without pid.json no agent ever ran, so it runs now; with it
    the task is frozen and told (or proven, where there is a cgroup)."""
    launches = Launches(stage)
    fleet = stage.fleet
    supervisor = fleet.up()
    steps = launches.steps_of_keeper()
    for number in range(steps.index(LET_GO) + 1):
        launch = launches.add(gated=True)
        assert launch.gate is not None
        run_id, keeper = launch.hold_before(steps[:number])
        recorded = (fleet.home / "runs" / run_id / "pid.json").exists()
        fleet.kill_supervisor(supervisor)
        launch.gate.open_for_others()
        os.kill(keeper, signal.SIGKILL)
        supervisor = fleet.up()
        if recorded and not stage.has_cgroup(run_id):
            launch.wait_event("task.frozen")
            assert len(launch.runs()) == 1
            assert launch.executions <= (steps[number] == LET_GO), steps[number]
            fleet.cli("cancel", launch.task_id, "--assume-dead")
        else:
            launch.wait_completed()
            assert launch.executions <= 1 + (steps[number] == LET_GO), steps[number]
            assert launch.executions >= 1
        launch.assert_alone()
