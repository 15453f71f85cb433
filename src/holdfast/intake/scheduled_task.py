"""The task that a schedule adds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.base.errors import UsageError
from holdfast.base.text import one_line
from holdfast.config.read_file import Layer
from holdfast.config.tables.schedule_keys import LABEL, TASK_KEYS
from holdfast.core.schedules.schedule import Schedule
from holdfast.intake import repository
from holdfast.intake.new_task import NewTask
from holdfast.intake.resolve import ResolvedTask, resolve_task

# The types of stored values that are not text.
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "labels": Mapping,
    "command": list,
    **dict.fromkeys(("priority", "tries", "budget_tokens", "max_turns", "max_resumes"), int),
    **dict.fromkeys(("timeout", "stuck_after", "startup_timeout", "budget_usd"), (int, float)),
    **dict.fromkeys(("preserve_on_failure", "keep_workspace"), bool),
}


def resolve_scheduled_task(
    home: str,
    schedule: Schedule,
    fire_time: float,
    *,
    before: Mapping[str, Layer] | None = None,
    commits: Mapping[str, str] | None = None,
) -> ResolvedTask:
    """Resolve the task of one occurrence. Raise HoldfastError with the reason if the occurrence cannot become a task.

    `before`: the last valid state of files that have a mistake now. `commits`: commits of names that were looked up
    already, so that git is not called.
    """
    task: dict[str, Any] = dict(schedule.task)
    for key, value in task.items():
        if key not in TASK_KEYS or not isinstance(value, _KINDS.get(key, str)):
            raise UsageError(
                f"The stored schedule '{schedule.name}' has a value for '{one_line(key, 60)}' that cannot be used. "
                f"No task was added. Change the schedule in its file: {schedule.place}."
            )
    labels = {str(key): str(word) for key, word in task.pop("labels", {}).items()}
    new = NewTask(
        prompt=task.pop("prompt", ""),  # a workflow may have its own
        directory=schedule.repo,
        labels={**labels, LABEL: schedule.name},
        schedule=schedule.name,
        fire_time=rfc3339(fire_time),
        **task,
    )
    place, head = repository.locate_fast(schedule.repo), repository.head_at(schedule.repo)
    return resolve_task(home, new, place, head, before, commits)


def rfc3339(moment: float) -> str:
    """Format a wall time in UTC, to the second. Empty: the time is beyond the calendar."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""
