"""The current activity of the agents of running tasks, as the supervisor saved it.

The supervisor reads the output of every agent anyway. It saves the last tool or line, without secrets, in the run
directory. A list of tasks reads that file instead of the output. The module imports little, because `ps` has to start
fast.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.api.format import duration
from holdfast.base import clock
from holdfast.base.text import as_sentence, one_line

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow
    from holdfast.api.tasks.models import TaskDetails

_STATE, _LARGEST = "reading.json", 1 << 18  # the same as in processes/observe/run_view.py
_MOST = 200  # characters


class Activity(NamedTuple):
    """The last tool or line of an agent, and its wall time."""

    text: str
    at: float

    def age(self, now: float) -> str:
        """Return how long ago the activity was: "12s"."""
        return duration(max(1.0, now - self.at))


def read_activities(home: str, running: Mapping[str, FleetRow]) -> dict[str, Activity]:
    """Return task → the newest activity of its agents, for tasks whose agents did something."""
    found = {task_id: _read_newest(home, row["open_runs"]) for task_id, row in running.items()}
    return {task_id: activity for task_id, activity in found.items() if activity is not None}


def activity_lines(home: str, task: TaskDetails) -> list[str]:
    """Return a sentence about what the agent of a task does, for `why`."""
    runs = [run["id"] for run in task["runs"] if run["state"] in ("started", "stopping")]
    newest = _read_newest(home, runs) if task["state"] == "running" else None
    return [] if newest is None else [as_sentence(f"Its agent {newest.age(time.time())} ago: {newest.text}")]


def _read_newest(home: str, runs: Sequence[str]) -> Activity | None:
    boot, ahead = clock.boot_id(), time.time() - clock.monotonic()
    found = [_read_activity(os.path.join(home, "runs", run, _STATE), boot, ahead) for run in runs]
    return max((one for one in found if one is not None), key=lambda one: one.at, default=None)


def _read_activity(path: str, boot: str, ahead: float) -> Activity | None:
    """Return what the file says, or None. The agent can write to the file too, so nothing in it is trusted."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            kept = json.loads(os.read(fd, _LARGEST))
        finally:
            os.close(fd)
        text, at = kept["does"]
        moment = min(max(0.0, float(at) + ahead), time.time())
        return Activity(one_line(text, _MOST), moment) if text and kept["boot_id"] == boot else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
