"""Schedules that add tasks: the definition of a schedule, and its stored state. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.core.states import TASK_TERMINAL, TaskState

SPAN = 86400.0  # seconds; decided occurrences that are closer together are remembered as one stretch of time


class Overlap(StrEnum):
    """The rule for an occurrence whose last task has not ended yet."""

    SKIP = "skip"  # this occurrence is reported and skipped
    QUEUE = "queue"  # it waits until the last task has ended
    REPLACE = "replace"  # the last task is cancelled


class Misfire(StrEnum):
    """The rule for occurrences that were missed because no supervisor ran, or the clock jumped."""

    LAST = "last"  # the latest one is made up for
    SKIP = "skip"  # none is made up for
    ALL = "all"  # each of them is made up for, at most the latest `most`


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """One checked `[[schedule]]`: all of its values are valid."""

    name: str
    repo: str  # top level of the checkout that its tasks work on
    cron: str  # five fields, or six with seconds first
    zone: str = "UTC"  # IANA name
    # the task to add: prompt, workflow, agent, labels, base, …
    task: Mapping[str, object] = field(default_factory=dict)
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.LAST
    most: int = 10  # for `Misfire.ALL`
    jitter: float = 0.0  # seconds over which the starts of its tasks are spread
    enabled: bool = True
    place: str = field(default="", compare=False)  # file and line, for people

    @property
    def key(self) -> str:
        """Return the identity of the schedule. It includes the repository, because two repositories may each have a
        schedule "nightly"."""
        return f"{self.repo}\0{self.name}"

    @property
    def max_waiting(self) -> int:
        """Return how many occurrences may wait. If there are more, only the latest ones wait. With `replace` only one
        waits, because the agents of the others would be started only to be ended at once."""
        return max(1, self.most) if self.misfire is Misfire.ALL and self.overlap is not Overlap.REPLACE else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleRecord:
    """A schedule and its state in the store."""

    schedule: Schedule
    file: str  # the file that defines it
    enabled: bool  # set by an operator, or else by the file
    by: str | None = None  # the operator who set `enabled`; None: the file did
    cursor: float  # every occurrence until then is decided
    waiting: tuple[float, ...] = ()  # admitted occurrences that have no task yet, oldest first
    last_fire: float | None = None  # the occurrence of its last task; for a fire by hand, its time
    last_fired_at: float | None = None
    last_task: str | None = None
    last_task_state: TaskState | None = None  # None: there is no last task, or it was deleted
    replacing: str | None = None  # the task that was asked to end for the next one
    trouble: str | None = None  # why the last fire was refused
    failures: int = 0
    tried_at: float | None = None
    next_try: float | None = None

    @property
    def is_busy(self) -> bool:
        """True if the last task of the schedule has not ended yet."""
        return self.last_task_state is not None and self.last_task_state not in TASK_TERMINAL


def merge_spans(spans: Sequence[tuple[float, float]], decided: Sequence[float]) -> list[tuple[float, float]]:
    """Return the stretches of time in which no occurrence fires again.

    The list stays small, however many occurrences there were. It matters only when the clock is set back into a
    stretch. A clock that was years ahead leaves a stretch years ahead, not one that covers all time until then.
    """
    merged: list[tuple[float, float]] = []
    for began, ended in sorted([*spans, *((moment, moment) for moment in decided)]):
        if merged and began - merged[-1][1] <= SPAN:
            merged[-1] = merged[-1][0], max(merged[-1][1], ended)
        else:
            merged.append((began, ended))
    return merged
