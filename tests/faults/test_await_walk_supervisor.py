"""A whole supervisor, cancelled at every await of its own and of everything that it started; then the next start.

R-TREE-01: a real repository, a real subprocess; the directory is gone, the admin entry is gone, every process is dead,
branch and work are kept, and nothing was run twice.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.faults.stage import Stage, Work, cleanup_bound
from tests.fleet import Fleet
from tests.harness.await_case import run_case
from tests.harness.await_walker import Ended, walk
from tests.sampling import amount

WORK = "echo work >> work.txt"
# By design: whoever is cancelled leaves its agents to their keepers.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")


@pytest.fixture
def stage(fleet: Fleet) -> Stage:
    return Stage(fleet)


def assert_done_once(stage: Stage, task_id: str) -> None:
    stage.assert_ended_once(task_id, "completed")
    assert stage.fleet.file_on_branch(f"holdfast/{task_id}", "work.txt") == "work"


def test_the_life_of_a_task_under_a_supervisor_that_is_cancelled(stage: Stage) -> None:
    current: list[str] = []

    def make() -> Work:
        current[:] = [stage.add(WORK)]
        return stage.supervise()

    def check(ended: Ended[None]) -> None:
        assert ended.cleanup_seconds < cleanup_bound()
        stage.recover()
        assert_done_once(stage, current[0])
        stage.assert_nothing_left()

    walk(make, check, second=True, most=amount(4, in_all=7), apart=True)


def test_a_task_that_fails_under_a_supervisor_that_is_cancelled(stage: Stage) -> None:
    """What it left uncommitted is salvaged, once."""
    current: list[str] = []

    def make() -> Work:
        current[:] = [stage.add(f"{WORK}; exit 3")]
        return stage.supervise()

    def check(_ended: Ended[None]) -> None:
        stage.recover()
        stage.assert_ended_once(current[0], "failed")
        task = stage.task(current[0])
        assert stage.fleet.branches() == []  # it has no commit
        shadows = list((stage.fleet.home / "shadows").glob("*.git"))
        saved = [stage.fleet.git("show", f"{row['commit']}:work.txt", cwd=shadows[0]) for row in task["salvages"]]
        assert set(saved) == {"work"}
        stage.assert_nothing_left()

    walk(make, check, second=True, most=amount(3, in_all=6), apart=True)


def test_a_start_that_adopts_and_sweeps_is_cancelled(stage: Stage) -> None:
    """Start-up: an agent of an earlier supervisor is at work, another task waits, a removal is unfinished."""
    current: list[str] = []

    def make() -> Work:
        stage.go.unlink(missing_ok=True)
        stage.at_work.unlink(missing_ok=True)
        running = stage.add(f"{WORK}; touch {stage.at_work}; while [ ! -e {stage.go} ]; do sleep 0.1; done")
        interrupted = run_case(until_at_work(), None, apart=True)
        assert interrupted.how == "returned", interrupted
        current[:] = [running, stage.add(WORK)]
        stage.go.touch()
        return stage.supervise()

    async def until_at_work() -> None:
        life = asyncio.create_task(stage.supervise())
        while not stage.at_work.exists():  # noqa: ASYNC110 - a file rings no bell
            await asyncio.sleep(0.01)
        life.cancel()
        await asyncio.wait([life])

    def check(_ended: Ended[None]) -> None:
        stage.recover()
        for task_id in current:
            assert_done_once(stage, task_id)
        stage.assert_nothing_left()

    walk(make, check, second=True, most=amount(3, in_all=5), apart=True)
