"""Named workers in whole supervisors over played agents: windows, clocks, restarts and operators, in milliseconds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.supervisor.played import PATIENCE, Ending, World

from holdfast.core.dispatch.terms import Lane
from holdfast.core.dispatch.workers import Worker, WorkerList
from holdfast.core.runs.outcome import Cause, Outcome
from holdfast.core.runs.retry_budgets import RetryLimits

YEAR = 365.25 * 86400
EXAMPLES = int(os.environ.get("HOLDFAST_TEST_WORKER_EXAMPLES", "12"))
KILLED = Ending(name="killed", signal=9)
DONE = Ending(name="completed", said=Outcome.COMPLETED)
LIMITED = Ending(name="limited", said=Outcome.USAGE_LIMITED, resets_in=3600.0)


def staff(*, restart: bool = True, release_claims: bool = True, **lane: Any) -> WorkerList:
    return WorkerList(workers=(Worker(lane=Lane(name="web", **lane), restart=restart),), release_claims=release_claims)


def play(scene: Callable[[World], Awaitable[None]], crew: WorkerList, *, agents: int = 0, **limits: Any) -> None:
    async def whole() -> None:
        world = World(RetryLimits(**limits), agents=agents, staff=crew)
        try:
            await world.start()
            await scene(world)
        finally:
            await world.close()

    asyncio.run(whole())


def worker(world: World) -> dict[str, Any]:
    [row] = world.store.view("workers")
    return row


def kinds(world: World, prefix: str) -> list[str]:
    rows = world.store.view("events", after=0, task=None, limit=100000)
    return [str(row["kind"]) for row in rows if str(row["kind"]).startswith(prefix)]


async def crash(world: World) -> None:
    [run] = world.unfrozen
    await world.end(run, KILLED)


@pytest.mark.parametrize("clock", [0.0, -10 * YEAR, 10 * YEAR])
def test_a_bench_lasts_for_a_quiet_window(clock: float) -> None:
    """R-CRASH-04: whatever the wall clock does; across supervisors; then crashes count again."""

    async def scene(world: World) -> None:
        for _ in range(6):
            world.add()
        for _ in range(3):
            await world.look()
            await crash(world)
            world.pass_time(100.0)
        await world.start()
        assert (worker(world)["state"], world.unfrozen) == ("benched", [])
        world.set_clock(clock)
        world.pass_time(499.0)  # 599 s since the last crash
        await world.look()
        assert worker(world)["state"] == "benched"
        world.pass_time(1.0)
        await world.look()
        assert worker(world)["state"] == "ready"
        assert kinds(world, "alert.") == ["alert.raised", "alert.acknowledged"]
        await crash(world)
        await crash(world)
        assert worker(world)["state"] == "ready"
        await crash(world)
        assert worker(world)["state"] == "benched"

    play(scene, staff())


def test_a_clock_that_is_set_back_over_a_reboot_benches_nobody_for_years() -> None:
    """DESIGN, clocks: a wait that was decided in the future is over."""

    async def scene(world: World) -> None:
        world.add()
        await world.look()
        await crash(world)
        assert worker(world)["state"] == "benched"
        world.reboot()
        world.set_clock(-10 * YEAR)
        await world.start()
        assert worker(world)["state"] == "ready"

    play(scene, staff(), crash=1)


def test_what_is_no_crash_leaves_its_worker_alone() -> None:
    """R-CRASH-01: a limit, an error, a timeout and a lost keeper; and a stop of ours that came before the death."""

    async def scene(world: World) -> None:
        endings = [
            LIMITED,
            Ending(name="failed", said=Outcome.FAILED),
            Ending(name="timeout", cause=Cause.TIMEOUT),
            Ending(name="keeper died", cause=Cause.KEEPER_DIED),
        ]
        for ending in endings:
            world.add()
            await world.look()
            [run] = world.unfrozen
            await world.end(run, ending)
            assert worker(world)["state"] == "ready"
            for left in world.unfrozen:
                await world.end(left, DONE)
            world.pass_time(4000.0)
        assert world.store.view("worker_crashes", worker="web") == []

    play(scene, staff(restart=False))


def test_a_worker_rests_while_its_account_is_shut() -> None:
    """It would claim and give back for ever: one limit, and nothing is claimed until the reset."""

    async def scene(world: World) -> None:
        first, second = world.add(), world.add()
        await world.look()
        [run] = world.unfrozen
        assert [row["account"] for row in world.store.view("runs", id=first)] == ["work"]
        await world.end(run, LIMITED)
        for _ in range(3):
            await world.look()
        assert kinds(world, "task.claimed") == ["task.claimed"]
        assert world.row(second)["state"] == "queued"
        world.pass_time(3700.0)
        await world.look()
        while world.unfrozen:
            await world.end(world.unfrozen[0], DONE)
        assert {world.row(task)["state"] for task in (first, second)} == {"completed"}
        assert [row["account"] for row in world.store.view("runs", id=second)] == ["work"]

    play(scene, staff(agent="played", account="work"))


def test_a_mass_death_stops_no_worker() -> None:
    """R-CRASH-07: five of five die at once. The first were taken for crashes of their workers; that is taken back."""
    crew = WorkerList(workers=tuple(Worker(lane=Lane(name=f"w{n}"), restart=n % 2 == 0) for n in range(5)))

    async def scene(world: World) -> None:
        for _ in range(5):
            world.add()
        await world.look()
        for run in world.unfrozen:
            await world.end(run, KILLED)
        rows = world.store.view("workers")
        assert [row["state"] for row in rows] == ["ready"] * 5
        assert [world.store.view("worker_crashes", worker=row["name"]) for row in rows] == [[]] * 5
        assert [row["key"] for row in world.store.view("alerts", all=False)] == ["mass-death"]
        assert "worker.stopped" in kinds(world, "worker."), "it was not known at first"

    play(scene, crew)


def test_after_a_limit_a_worker_waits_for_the_one_that_goes_first() -> None:
    """R-RES-08: two workers of one account; while one probes it, the other claims nothing, and does not loop."""
    lanes = [Lane(name=name, agent="played", account="work") for name in ("a", "b")]
    crew = WorkerList(workers=tuple(Worker(lane=lane, restart=False) for lane in lanes))

    async def scene(world: World) -> None:
        tasks = [world.add() for _ in range(3)]
        await world.look()
        for run in world.unfrozen:
            await world.end(run, LIMITED)
        world.pass_time(3700.0)
        for _ in range(4):
            await world.look()
        assert len(world.unfrozen) == 1
        assert len(kinds(world, "task.claimed")) == 3, "two at first, then the one that starts first"
        while world.unfrozen:
            await world.end(world.unfrozen[0], DONE)
            await world.look()
        assert {world.row(task)["state"] for task in tasks} == {"completed"}

    play(scene, crew)


steps = st.lists(
    st.sampled_from(
        ["killed", "killed", "done", "restart", "stop", "stop-now", "start", "wait", "new", "reboot", "back"]
    ),
    min_size=4,
    max_size=16,
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps, restart=st.booleans(), release=st.booleans(), agents=st.integers(0, 1))
def test_whatever_happens_no_worker_has_two_tasks_and_all_comes_to_rest(
    steps: list[str], restart: bool, release: bool, agents: int
) -> None:
    """Promises 3 and 4: one task per worker; every crash is counted once; in the end all tasks end."""

    async def scene(world: World) -> None:
        crashes = 0
        for _ in range(2):
            world.add()
        for step in steps:
            await world.look()
            if step in ("killed", "done") and world.unfrozen:
                run = world.unfrozen[0]
                crashes += step == "killed" and _of_a_worker(world, run)
                await world.end(run, KILLED if step == "killed" else DONE)
            elif step == "wait":
                world.pass_time(700.0)
            elif step == "back":
                world.set_clock(-YEAR)
            elif step == "new":
                await world.start()
            elif step == "reboot":
                world.reboot()
                await world.start()
            else:
                _ask(world, step)
                await world.look()
            held = [row for row in world.store.view("tasks") if row["state"] == "running"]
            assert sum(row["worker"] == "web" for row in held) <= 1
            assert sum(row["worker"] is None for row in held) <= agents
        recorded = world.store.view("crashes", task=None, since=0.0)
        assert sum(row["worker"] == "web" for row in recorded) == crashes
        _ask(world, "restart")
        for _ in range(20):
            world.pass_time(700.0)
            await world.look()
            while world.unfrozen:
                await world.end(world.unfrozen[0], DONE)
        assert {row["state"] for row in world.store.view("tasks")} <= {"completed", "failed"}
        assert not [row for row in world.store.view("tasks") if row["worker"]]

    play(scene, staff(restart=restart, release_claims=release), agents=agents)


def test_claims_may_ask_who_is_at_work_while_attempts_end() -> None:
    """They ask in the writer's thread, and attempts end in the loop's: here, in the very middle of the question."""

    async def scene(world: World) -> None:
        assert world.supervisor is not None
        attempts = world.supervisor._attempts

        class Name(str):
            def __hash__(self) -> int:
                attempts._forget("another")
                return super().__hash__()

        attempts._workers.update({"one": Name("web"), "another": None, "third": None})
        assert attempts.workers == {"web"}
        attempts._workers.clear()

    play(scene, staff())


def test_a_keeper_that_waits_for_less_than_a_beat_is_told_in_time() -> None:
    """R-TERM-10: the next beat was settled before its task was claimed; its keeper would take us for dead."""

    async def scene(world: World) -> None:
        assert world.supervisor is not None
        beat = asyncio.create_task(world.supervisor._attempts.wait_for_next_heartbeat(3600.0))
        await asyncio.sleep(0)
        world.add(orphan_grace=0.3)
        await world.look()
        await asyncio.wait_for(beat, PATIENCE)
        await asyncio.wait_for(world.supervisor._attempts.wait_for_next_heartbeat(3600.0), PATIENCE)

    play(scene, staff(), agents=1)


def _of_a_worker(world: World, run_id: str) -> bool:
    tasks = [str(row["id"]) for row in world.store.view("tasks")]
    return any(run["id"] == run_id and run["worker"] for task in tasks for run in world.store.view("runs", id=task))


def _ask(world: World, what: str) -> None:
    """An operator's word; a conflict is an answer too."""
    from holdfast.base.errors import Conflict

    try:
        if what in ("stop", "stop-now"):
            world.write(lambda tx: tx.workers.stop("web", "ann", world.now, at_once=what == "stop-now"))
        elif what == "start":
            world.write(lambda tx: tx.workers.start("web", "ann", world.now))
        else:
            world.write(lambda tx: tx.workers.restart("web", "ann", world.now))
    except Conflict:
        return
