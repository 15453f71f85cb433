"""The source of schedules for the supervisor: it reads the schedule files, and resolves the task of each occurrence."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from holdfast.base.errors import Refused
from holdfast.config.read_file import Layer
from holdfast.config.schedule_files import fingerprint_files, read_schedule_files
from holdfast.core.model import Repo, Task
from holdfast.core.schedules.schedule import Schedule
from holdfast.intake.repository import head_at
from holdfast.intake.scheduled_task import resolve_scheduled_task
from holdfast.supervisor.ports import ReadSchedules
from holdfast.workspaces.git.git import Git

PATIENCE = 30.0  # seconds for git to find a commit, so that a disk that hangs delays only this schedule


class RepoScheduleFiles:
    """The current schedule files. If a file has a mistake, its earlier settings stay in force, also for the tasks of
    its schedules."""

    def __init__(self, home: str, git: Git) -> None:
        self._home = home
        self._git = git
        self._before: dict[str, Layer] = {}  # by file, from the last time it was read without a mistake

    def stamp(self, repos: Sequence[Repo]) -> object:
        return fingerprint_files(self._home, [repo.path for repo in repos])

    def read(self, repos: Sequence[Repo]) -> ReadSchedules:
        found = read_schedule_files(self._home, [repo.path for repo in repos])
        self._before |= found.layers
        return ReadSchedules(schedules=found.schedules, problems=found.problems, absent=found.absent)

    async def resolve_task(self, schedule: Schedule, fire_time: float, _by: str) -> Callable[[Any], Task]:
        """Return the operation that adds the task of an occurrence. Raise HoldfastError with the reason if the task
        cannot be added."""
        commits = await self._resolve_commits(schedule) if os.path.isdir(schedule.repo) else {}
        resolved = resolve_scheduled_task(self._home, schedule, fire_time, before=self._before, commits=commits)
        return partial(resolved.add, by=f"the schedule {schedule.name}")

    async def _resolve_commits(self, schedule: Schedule) -> dict[str, str]:
        """Return the commits that the schedule's `base` and `ref` name at this moment."""
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
