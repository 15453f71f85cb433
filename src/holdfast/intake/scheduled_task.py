"""The task that a schedule adds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from holdfast.config.read_file import Layer
from holdfast.config.tables.schedule_keys import LABEL
from holdfast.core.schedules.schedule import Schedule
from holdfast.intake import repository
from holdfast.intake.new_task import NewTask
from holdfast.intake.resolve import ResolvedTask, resolve_task


def resolve_scheduled_task(
    home: str,
    schedule: Schedule,
    fire_time: float,
    *,
    before: Mapping[str, Layer] | None = None,
    commits: Mapping[str, str] | None = None,
) -> ResolvedTask:
    """Resolve the task of one occurrence. Raise HoldfastError with the reason if it cannot become a task.

    `before`: the last valid state of files that have a mistake now. `commits`: commits of names that were looked up
    already, so that git is not called.
    """
    task = dict(schedule.task)
    new = NewTask(
        prompt=_text(task, "prompt") or "",  # a workflow may have its own
        directory=schedule.repo,
        agent=_text(task, "agent"),
        model=_text(task, "model"),
        base=_text(task, "base"),
        ref=_text(task, "ref"),
        workflow=_text(task, "workflow"),
        labels={**_labels(task), LABEL: schedule.name},
        priority=_number(task, "priority") or 0,
        timeout=_seconds(task, "timeout"),
        schedule=schedule.name,
        fire_time=rfc3339(fire_time),
    )
    place, head = repository.locate_fast(schedule.repo), repository.head_at(schedule.repo)
    return resolve_task(home, new, place, head, before, commits)


def rfc3339(moment: float) -> str:
    """Format a wall time in UTC, to the second. Empty: the time is beyond the calendar."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""


def _text(task: Mapping[str, object], key: str) -> str | None:
    value = task.get(key)
    return None if value is None else str(value)


def _labels(task: Mapping[str, object]) -> dict[str, str]:
    value = task.get("labels")
    return {str(key): str(word) for key, word in value.items()} if isinstance(value, Mapping) else {}


def _number(task: Mapping[str, object], key: str) -> int | None:
    value = task.get(key)
    return value if isinstance(value, int) else None


def _seconds(task: Mapping[str, object], key: str) -> float | None:
    value = task.get(key)
    return float(value) if isinstance(value, int | float) else None
