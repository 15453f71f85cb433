"""A schedule whose cursor is broken fires its review swarm again and again, and every fire is cancelled somewhere.
Each case is a process of its own; HOLDFAST_STORM_FIRES=200 is the whole storm."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests.faults.stage import Stage
from tests.fleet import Fleet
from tests.harness.await_case import Case, Mode, run_case
from tests.harness.mutations import Mutation
from tests.swarm import draft

from holdfast.base import clock
from holdfast.base.instant import Instant
from holdfast.core.model import Repo, Task
from holdfast.core.schedules.schedule import Schedule
from holdfast.intake.new_task import NewTask
from holdfast.intake.resolve import resolve_task
from holdfast.store.port.transaction import Transaction
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.supervisor.ports import ReadSchedules
from holdfast.supervisor.runs.attempt import Attempt
from holdfast.supervisor.services.schedules import ScheduleService

pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
FIRES = int(os.environ.get("HOLDFAST_STORM_FIRES", "3"))
RECOVER_EVERY = 5  # fires: a supervisor takes over what they left
FILE = "/schedules.toml"
SWARM = draft({"one": "echo 1", "two": "echo 2; sleep 0.02"}, name="storm")


class Nightly:
    """What the files would say: one schedule, whose tasks are review swarms."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.schedule = Schedule(name="nightly", repo=str(stage.fleet.repo), cron="* * * * *")

    def stamp(self, repos: Sequence[Repo]) -> object:
        return 1

    def read(self, repos: Sequence[Repo]) -> ReadSchedules:
        return ReadSchedules(schedules={FILE: (self.schedule,)})

    async def resolve_task(self, schedule: Schedule, fire_time: float, by: str) -> Callable[[Transaction], Task]:
        new = NewTask(prompt="review", directory=str(self._stage.fleet.repo), workflow=SWARM)
        place = str(self._stage.fleet.repo), str(self._stage.fleet.repo / ".git")
        return resolve_task(self._stage.home, new, place).add


def an_hour_ago() -> Instant:
    now = clock.now()
    return now._replace(wall=now.wall - 3600.0)


def enrol(stage: Stage) -> None:
    """As if it had been seen an hour ago: what is due when a schedule is first seen does not fire."""
    fleet, schedule = stage.fleet, Nightly(stage).schedule

    def write(tx: Transaction) -> None:
        tx.workspaces.register_repo(str(fleet.repo), str(fleet.repo / ".git"), clock.now())
        tx.schedules.enrol(FILE, [schedule], clock.now())
        tx.schedules.rewind(tx.schedules.get(schedule.key), an_hour_ago())

    store = SqliteStore(stage.home)
    try:
        store.write(write)
    finally:
        store.close()


async def fire_and_drive(stage: Stage) -> None:
    """As the supervisor's loop would: the schedule is due, its task is claimed and driven."""
    Mutation("cursor").apply()
    with contextlib.ExitStack() as closing:
        context = stage.context(closing)
        context.ports = replace(context.ports, schedule_files=Nightly(stage))
        scheduling = ScheduleService(context)
        scheduling._seen = 1, (str(stage.fleet.repo),)  # its file was read before, and did not change
        await scheduling.tick()
        task = await context.writer.write(lambda tx: tx.tasks.claim(context.host_id, context.clock()))
        assert task is not None
        await Attempt(context, task).drive()


def test_a_storm_of_fires_each_cancelled_somewhere_leaves_nothing(fleet: Fleet) -> None:
    """R-TREE-02: no worktree, no branch, no process, however often the same occurrence fires."""
    stage = Stage(fleet)
    chance = random.Random(int(os.environ.get("HOLDFAST_STORM_SEED", "7")))
    enrol(stage)
    alone = run_case(fire_and_drive(stage), None, apart=True)
    assert alone.how == "returned", alone
    cancelled = 0
    for number in range(1, FIRES + 1):
        case = Case(k=chance.randint(0, alone.awaits), mode=chance.choice(list(Mode)))
        ended = run_case(fire_and_drive(stage), case, apart=True)
        assert ended.how in ("cancelled", "returned"), f"{case} {ended}"
        assert not ended.left, f"{case}: {ended.left}"
        cancelled += ended.how == "cancelled"
        if number % RECOVER_EVERY == 0 or number == FIRES:
            stage.recover()
            enrol(stage)  # that supervisor found no such schedule in any file
    states = [task["state"] for task in stage.tasks()]
    print(f"storm: {FIRES} fires, {cancelled} cancelled at one of {alone.awaits} awaits, {len(states)} tasks")
    assert len(states) > FIRES // 2  # it was a storm: the same occurrence, again and again
    assert set(states) == {"completed"}, states
    assert fleet.branches() == []
    stage.assert_nothing_left()
