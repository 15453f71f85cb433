"""A timetable that a test writes: what the files would say, and tasks that carry the occurrence they are for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.base.errors import LaunchError
from holdfast.base.ids import new_id
from holdfast.core.model import Repo, Strategy, Task, TaskSpec
from holdfast.core.schedules.schedule import Schedule
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.ports import ReadSchedules

FILE = "/config.toml"


class Board:
    """`now` says when a task is added."""

    def __init__(self, repo: Repo, clock: Callable[[], object]) -> None:
        self._repo = repo
        self._clock = clock
        self._changes = 0
        self._schedules: Sequence[Schedule] = ()
        self._problem: str | None = None
        self.refuses: str | None = None  # why no task can be made
        self.asked = 0
        self.meanwhile: Callable[[], object] = lambda: None  # what happens while a task is prepared

    def write(self, *schedules: Schedule, problem: str | None = None) -> None:
        self._schedules, self._problem = schedules, problem
        self._changes += 1

    def stamp(self, _repos: Sequence[Repo]) -> object:
        return self._changes

    def read(self, _repos: Sequence[Repo]) -> ReadSchedules:
        if self._problem is not None:
            return ReadSchedules(schedules={}, problems={FILE: self._problem})
        return ReadSchedules(schedules={FILE: self._schedules})

    async def resolve_task(self, schedule: Schedule, fire_time: float, by: str) -> Callable[[Transaction], Task]:
        self.asked += 1
        await asyncio.sleep(0)
        self.meanwhile()
        if self.refuses is not None:
            raise LaunchError(self.refuses)
        spec = TaskSpec(
            id=new_id(),
            repo_id=self._repo.id,
            prompt=f"{schedule.name} {fire_time:.0f}",
            agent="played",
            strategy=Strategy.DIRECTORY,
            labels={"schedule": schedule.name, "fire_time": f"{fire_time:.0f}", "by": by},
        )
        return lambda tx: tx.tasks.add(spec, self._clock())  # type: ignore[arg-type]  # an Instant
