"""Work that comes by the clock, for the supervisor: what the files say, and the task of an occurrence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.api.firing import accepting
from holdfast.config.files import Layer
from holdfast.config.timetable import read_timetable, stamp_of
from holdfast.core.model import Repo, Task
from holdfast.core.schedules import Schedule
from holdfast.supervisor.context import Timetable


class RepoTimetables:
    """As the files say now. A file with a mistake changes nothing: its settings of before hold for tasks, too."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._before: dict[str, Layer] = {}  # by file, as it was when it last read well

    def stamp(self, repos: Sequence[Repo]) -> object:
        return stamp_of(self._home, [repo.path for repo in repos])

    def read(self, repos: Sequence[Repo]) -> Timetable:
        found = read_timetable(self._home, [repo.path for repo in repos])
        self._before |= found.layers
        return Timetable(schedules=found.schedules, problems=found.problems)

    def accepting(self, schedule: Schedule, fire_time: float, _by: str) -> Callable[[Any], Task]:
        """Raises HoldfastError when no task can be made of it (its repository is gone, say)."""
        return accepting(self._home, schedule, fire_time, before=self._before)
