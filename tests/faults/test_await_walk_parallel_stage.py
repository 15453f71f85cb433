"""A parallel stage, cancelled (the supervisor goes) or stopped (an operator's request) at every await; then the next
start."""

from __future__ import annotations

import asyncio

import pytest
from tests.faults.stage import Stage, Work, cleanup_bound
from tests.fleet import Fleet
from tests.harness.await_walker import Ended, walk
from tests.swarm import draft, queue_swarm, results

from holdfast.core.model import StopWhy
from holdfast.supervisor.runs.attempt import Attempt

# By design: whoever is cancelled leaves its agents to their keepers.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
SCRIPTS = {"one": "echo 1", "two": "echo 2; exit 3"}


@pytest.fixture
def stage(fleet: Fleet) -> Stage:
    return Stage(fleet)


def test_a_group_that_is_cancelled_is_finished_by_the_next_supervisor(stage: Stage) -> None:
    """R-TREE-01, R-CRON-05: whoever had started is adopted and not started again, whoever had not, is; once more at
    every await of the clean-up."""
    current: list[str] = []

    def make() -> Work:
        current[:] = [queue_swarm(stage.fleet, draft(SCRIPTS))]
        return stage.drive([])

    def check(ended: Ended[None]) -> None:
        task_id = current[0]
        assert ended.cleanup_seconds < cleanup_bound()
        stage.assert_put_away_if_ended(task_id)
        stage.recover()
        task, events = stage.task(task_id), stage.events(task_id)
        assert task["state"] == "completed", task
        assert (events.count("task.completed"), events.count("stage.collected")) == (1, 1)
        ran = sorted(str(run["member"]) for run in task["runs"] if run["pid"] is not None)
        assert ran == ["one", "two"], task["runs"]
        found = {name: (result.outcome, result.text) for name, result in results(stage.fleet, task_id).items() if name}
        assert found == {"one": ("completed", "1"), "two": ("failed", "2")}
        assert stage.fleet.branches() == []
        stage.assert_nothing_left()

    walk(make, check, second=True, most=4, apart=True)


@pytest.mark.parametrize("why", [StopWhy.CANCEL, StopWhy.DOWN])
def test_a_group_that_is_stopped_ends_as_stopped(stage: Stage, why: StopWhy) -> None:
    """An operator's stop_request, at every await: it reaches every member, and nothing of them lives on."""
    current: list[str] = []
    attempts: list[Attempt] = []
    asked: set[asyncio.Task[None]] = set()
    scripts = {name: f"{script}; sleep 0.05" for name, script in SCRIPTS.items()}

    def make() -> Work:
        current[:] = [queue_swarm(stage.fleet, draft(scripts))]
        return whole()

    async def whole() -> None:
        await stage.drive(attempts)
        if asked:
            await asyncio.wait(asked)

    def stop(_task: object) -> None:
        if attempts:
            asked.add(asyncio.ensure_future(attempts[-1].stop(why, fast=True)))

    def check(ended: Ended[None]) -> None:
        assert ended.how == "returned", ended
        stage.recover()
        task = stage.task(current[0])
        outcomes = {run["outcome"] for run in task["runs"]}
        if why is StopWhy.CANCEL:
            assert task["state"] in ("cancelled", "completed"), task
            assert outcomes <= {"cancelled", "completed", "failed"}, outcomes
        else:
            assert task["state"] == "completed", task  # run again by the next supervisor, where the first was stopped
            assert outcomes <= {"stopped", "completed", "failed"}, outcomes
            assert stage.events(current[0]).count("stage.collected") == 1
        stage.assert_nothing_left()

    walk(make, check, most=3, apart=True, interrupt=stop)
