"""One attempt, cancelled (the supervisor goes) or stopped (an operator's request) at every await; then a start."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.faults.stage import Stage, Work, cleanup_bound
from tests.fleet import Fleet
from tests.harness.await_walker import Ended, walk
from tests.sampling import amount

from holdfast.core.model import StopWhy
from holdfast.supervisor.daemon import Supervisor
from holdfast.supervisor.runs.attempt import Attempt
from holdfast.supervisor.runs.attempts import Attempts


@pytest.fixture
def stage(fleet: Fleet) -> Stage:
    return Stage(fleet)


WORK = "echo work >> work.txt"
# By design: whoever is cancelled leaves its agents to their keepers.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")


CLAIM = """; printf '{"token":"%s","report":"complete"}' "$HOLDFAST_RUN_TOKEN" >> "$HOLDFAST_CHANNEL/reports\""""


@pytest.mark.parametrize("script", [WORK, WORK + CLAIM], ids=["plain", "claims"])
def test_an_attempt_that_is_cancelled_is_finished_by_the_next_supervisor(stage: Stage, script: str) -> None:
    """R-TREE-01: whatever it held when it was cancelled; once more at every await of its clean-up."""
    current: list[str] = []

    def make() -> Work:
        current[:] = [stage.add(script)]
        return stage.drive([])

    def check(ended: Ended[None]) -> None:
        assert ended.cleanup_seconds < cleanup_bound()
        stage.assert_put_away_if_ended(current[0])
        stage.recover()
        stage.assert_ended_once(current[0], "completed")
        assert stage.fleet.file_on_branch(f"holdfast/{current[0]}", "work.txt") == "work"
        assert stage.events(current[0]).count("agent.claimed") == script.count(CLAIM)
        stage.assert_nothing_left()

    walk(make, check, second=True, most=amount(5 if script == WORK else 3, in_all=10), apart=True)


@pytest.mark.parametrize("why", [StopWhy.CANCEL, StopWhy.DOWN])
def test_an_attempt_that_is_stopped_ends_as_stopped(stage: Stage, why: StopWhy) -> None:
    """The stop of an operator, at every await: never taken for a crash, and nothing of the agent lives on."""
    current: list[str] = []
    attempts: list[Attempt] = []
    asked: set[asyncio.Task[None]] = set()

    def make() -> Work:
        current[:] = [stage.add(f"{WORK}; sleep 0.05")]
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
        outcomes = [run["outcome"] for run in task["runs"]]
        if why is StopWhy.CANCEL:
            assert task["state"] in ("cancelled", "completed"), task
            assert set(outcomes) <= {"cancelled", "completed"}, outcomes
        else:
            assert task["state"] == "completed", task  # run again by the next supervisor, where the first was stopped
            assert set(outcomes) <= {"stopped", "completed"}, outcomes
        stage.assert_nothing_left()

    walk(make, check, most=amount(4, in_all=8), apart=True, interrupt=stop)


def test_an_idle_supervisor_does_not_go_before_the_last_workspace_is_put_away(stage: Stage) -> None:
    """Found by the walk of a supervisor: a task that ended between the clean-up's look and the farewell."""
    stage.add(WORK)

    async def drive_then_close() -> None:
        await stage.drive([])
        with contextlib.ExitStack() as closing:
            supervisor = Supervisor(stage.context(closing))
            assert not await supervisor._close_if_idle()

    asyncio.run(drive_then_close())
    stage.recover()
    stage.assert_nothing_left()


def test_attempts_that_are_abandoned_before_their_first_step_are_not_waited_for_for_ever(stage: Stage) -> None:
    """Found by walking from await 0: a cancelled task that never ran has no `finally`, and was waited for endlessly."""
    stage.add(WORK)

    async def start_and_abandon() -> None:
        with contextlib.ExitStack() as closing:
            context = stage.context(closing)
            attempts = Attempts(context)
            task = await context.writer.write(lambda tx: tx.tasks.claim(context.host_id, context.clock()))
            assert task is not None
            attempts.start(task)
            attempts.abandon()
            async with asyncio.timeout(5):
                await attempts.wait_all()
            assert attempts.running == 0

    asyncio.run(start_and_abandon())
    stage.recover()
    stage.assert_nothing_left()
