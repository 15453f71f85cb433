"""Work that comes by the clock, for the supervisor: what the files say, and the task of an occurrence."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.base.errors import Refused
from holdfast.config.read_file import Layer
from holdfast.config.schedule_files import read_timetable, stamp_of
from holdfast.core.model import Repo, Task
from holdfast.core.schedules.schedule import Schedule
from holdfast.intake.repository import head_at
from holdfast.intake.scheduled_task import resolve_scheduled_task
from holdfast.supervisor.ports import Timetable
from holdfast.workspaces.git.git import Git

PATIENCE = 30.0  # seconds for git to name a commit: a disk that hangs holds up this schedule only


class RepoTimetables:
    """As the files say now. A file with a mistake changes nothing: its settings of before hold for tasks, too."""

    def __init__(self, home: str, git: Git) -> None:
        self._home = home
        self._git = git
        self._before: dict[str, Layer] = {}  # by file, as it was when it last read well

    def stamp(self, repos: Sequence[Repo]) -> object:
        return stamp_of(self._home, [repo.path for repo in repos])

    def read(self, repos: Sequence[Repo]) -> Timetable:
        found = read_timetable(self._home, [repo.path for repo in repos])
        self._before |= found.layers
        return Timetable(schedules=found.schedules, problems=found.problems, absent=found.absent)

    async def resolve_task(self, schedule: Schedule, fire_time: float, _by: str) -> Callable[[Any], Task]:
        """Return the operation that adds the task of an occurrence. HoldfastError says why there is none."""
        commits = await self._commits(schedule) if os.path.isdir(schedule.repo) else {}
        resolved = resolve_scheduled_task(self._home, schedule, fire_time, before=self._before, commits=commits)
        return resolved.add

    async def _commits(self, schedule: Schedule) -> dict[str, str]:
        """What its `base` and `ref` stand for at this moment."""
        names = [str(schedule.task[key]) for key in ("base", "ref") if key in schedule.task]
        if "base" not in schedule.task and names:
            names.append(head_at(schedule.repo))
        found = {}
        for name in names:
            words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
            code, out, _err = await self._git.ask(*words, cwd=schedule.repo, timeout=PATIENCE)
            if code != 0 or not out.split():
                raise Refused(f"'{name}' is not a commit or branch in {schedule.repo}.")
            found[name] = out.split()[-1]
        return found
