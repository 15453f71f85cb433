"""What a second reading found: waits that did not end, and words of operators that got lost, each through whole
supervisors under a clock that the test moves (played.py)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.integration.supervisor.played import PlayedWatch, World
from tests.integration.supervisor.test_holds import DONE, KILLED, YEARS, alerts, holds, live, states, task_of

from holdfast.api.fleet.dispatch import release
from holdfast.core.dispatch.spending_caps import LabelCap, SharedCaps, SpendingCap, UsedSpending
from holdfast.core.dispatch.terms import Lane
from holdfast.core.dispatch.workers import Worker, WorkerList
from holdfast.core.model import RequestKind
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.supervisor.dispatch.mass_death import seconds_until_failure_decided


def unfinished(world: World) -> int:
    """What keeps `--idle-exit` here."""
    from holdfast.supervisor.dispatch.terms import find_operator_blocks

    return int(world.write(lambda tx: tx.tasks.unfinished_count(find_operator_blocks(world.context, tx))))


def ask_to_pause(world: World, task: str, seconds: float) -> None:
    data = {"until": world.now.wall + seconds, "seconds": seconds, "force": False}
    world.write(lambda tx: tx.requests.ask(RequestKind.PAUSE, task, "ann", "", data, world.now))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pause_that_is_shorter_than_the_grace_of_its_agent_ends(restarted: bool) -> None:
    """R-RES-01: `pause --for 2s`, and the agent takes longer than that to end: it continues by itself all the same."""

    async def play(world: World) -> None:
        task = world.add()
        await world.look()
        [run] = world.unfrozen
        world.processes.runs[run].stop = lambda *, fast: None  # type: ignore[method-assign]  # it takes its time
        ask_to_pause(world, task, 2.0)
        await world.look()
        world.pass_time(3)
        await (world.start() if restarted else world.look())
        assert world.row(task)["state"] == "running"
        del world.processes.runs[run].stop
        world.processes.runs[run].stop(fast=False)
        await world.look()
        assert states(world, [task]) == ["running"], "resumed: its time was over"
        assert world.row(task)["resume_attempts"] == 0
        assert world.write(lambda tx: tx.requests.pending()) == []

    live(play)


def test_a_cancel_that_comes_too_late_for_the_run_leaves_subtasks_alone_all_the_same() -> None:
    """`cancel --keep-subtasks`, and its agent crashes in the same moment: the request finds a task that waits."""

    async def play(world: World) -> None:
        parent = world.add()
        await world.look()
        child = world.add(parent_id=parent)
        [run] = world.unfrozen
        await world.end(run, KILLED)
        assert states(world, [parent]) == ["queued"]
        data = {"assume_dead": False, "subtasks": False}
        world.write(lambda tx: tx.requests.ask(RequestKind.CANCEL, parent, "ann", "", data, world.now))
        await world.look()
        assert states(world, [parent, child]) == ["cancelled", "running"]

    live(play, agents=1)


def test_a_death_before_a_reboot_is_not_waited_with_though_the_clock_was_set_back() -> None:
    """The thirty seconds for which a death may turn out to be one of many do not last for years."""

    async def play(world: World) -> None:
        for _ in range(8):
            world.add()
        await world.look()
        victim = world.unfrozen[0]
        task = world.write(lambda tx: tx.tasks.get(task_of(world, victim)))
        world.processes.runs[victim].end(KILLED, world.now.wall)
        while not world.write(lambda tx: tx.holds.death(victim)):  # noqa: ASYNC110 - a fact in the store
            await asyncio.sleep(0.01)
        assert world.write(lambda tx: seconds_until_failure_decided(world.context, tx, task, victim)) == 30.0
        world.set_clock(-YEARS)
        world.now = world.now._replace(boot_id="another")
        assert world.write(lambda tx: seconds_until_failure_decided(world.context, tx, task, victim)) == 0.0

    live(play, agents=8, limits=RetryLimits(crash=1))


def test_a_probe_that_is_paused_says_nothing_about_a_mass_death() -> None:
    """R-CRASH-07: only an agent that lived lets the others follow."""

    async def play(world: World) -> None:
        for _ in range(6):
            world.add()
        await world.look()
        for run in world.unfrozen:
            world.processes.runs[run].end(KILLED, world.now.wall)
        await world.look()
        world.pass_time(400)
        await world.look()
        assert len(world.unfrozen) == 1
        probe = holds(world)["fleet:all"].probe
        assert probe is not None
        ask_to_pause(world, probe.task_id, 3600.0)
        await world.look()
        assert states(world, [probe.task_id]) == ["paused"]
        assert len(world.unfrozen) == 1, "another one starts first"

    live(play, agents=6)


def test_a_third_mass_death_keeps_no_supervisor() -> None:
    """R-CRASH-07: what only an operator lets start is no reason to stay, and continues with the operator's word."""

    async def play(world: World) -> None:
        world.context.services.health = PlayedWatch(world)  # who starts first is seen to live
        for _ in range(6):
            world.add()
        await world.look()
        for storm in range(3):
            for run in world.unfrozen:
                world.processes.runs[run].end(KILLED, world.now.wall)
            await world.look()
            assert world.unfrozen == []
            assert unfinished(world) == (6 if storm < 2 else 0)
            if storm < 2:
                world.pass_time(4000)
                await world.look()
                world.pass_time(61)
                await world.look()
                assert len(world.unfrozen) == 6
        release(world.home, None)
        await world.look()
        assert len(world.unfrozen) == 6
        for run in world.unfrozen:
            await world.end(run, DONE)
        assert unfinished(world) == 0

    live(play, agents=6)


def test_a_spent_label_keeps_no_supervisor_nor_does_what_needs_its_task() -> None:
    async def play(world: World) -> None:
        cap = SharedCaps(labels={"team=web": LabelCap(total=SpendingCap(tokens=1))})
        world.context.limits = replace(world.limits, caps=cap)
        one = world.add(labels={"team": "web"})
        world.write(lambda tx: tx.spending.begin(cap.all()[0], UsedSpending(tokens=5), None, world.now))
        two = world.add(needs=(one,))
        other = world.add()
        assert unfinished(world) == 1
        world.write(lambda tx: tx.tasks.cancel_waiting(other, "ann", "", world.now))
        assert unfinished(world) == 0
        world.write(lambda tx: tx.spending.end("team=web/total", "raised", world.now))
        assert unfinished(world) == 2
        world.write(lambda tx: tx.tasks.pause_waiting(one, "ann", "", None, world.now))
        assert unfinished(world) == 0, f"{two} needs a task that somebody has to resume"

    live(play)


def test_without_anonymous_agents_a_stopped_worker_keeps_no_supervisor() -> None:
    async def go() -> None:
        staff = WorkerList(workers=(Worker(lane=Lane(name="web", labels={"team": "web"}), restart=True),))
        world = World(RetryLimits(), agents=0, staff=staff)
        try:
            await world.start()
            world.write(lambda tx: tx.workers.stop("web", "ann", world.now))
            world.add(labels={"team": "web"})
            assert unfinished(world) == 0
            world.write(lambda tx: tx.workers.start("web", "ann", world.now))
            assert unfinished(world) == 1
        finally:
            await world.close()

    asyncio.run(go())


def test_a_wait_from_the_future_stays_over_whatever_is_done_with_the_task() -> None:
    """A clock that was years ahead when a task was to wait; `keep`, or `pause` and `resume`, after it was set right."""

    async def play(world: World) -> None:
        world.set_clock(YEARS)
        kept, paused, limited = (world.add(not_before=world.now.wall + 3600) for _ in range(3))
        world.write(lambda tx: tx.tasks.pause_waiting(limited, "ann", "", world.now.wall + 3600, world.now))
        world.set_clock(-YEARS)
        world.write(lambda tx: [tx.preserved.keep(task, 3600.0, "ann", world.now) for task in (kept, limited)])
        world.write(lambda tx: tx.tasks.pause_waiting(paused, "ann", "", None, world.now))
        world.write(lambda tx: tx.tasks.resume(paused, "ann", world.now))
        await world.look()
        assert states(world, [kept, paused, limited]) == ["running"] * 3
        assert alerts(world) == []

    live(play)
