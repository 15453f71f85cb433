"""Work that comes by the clock: what a schedule says, and where it stands. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.core.states import TASK_TERMINAL, TaskState

SPAN = 86400.0  # seconds between two decided occurrences that are remembered as one stretch of time


class Overlap(StrEnum):
    """When its last task has not ended yet."""

    SKIP = "skip"  # this occurrence is told of, and left out
    QUEUE = "queue"  # it waits for its turn, after the last one
    REPLACE = "replace"  # the last one is cancelled


class Misfire(StrEnum):
    """When occurrences were missed: nobody ran, or the clock jumped."""

    LAST = "last"  # the latest one is made up for
    SKIP = "skip"  # none
    ALL = "all"  # each of them, the latest `most` at the most


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """One `[[schedule]]`, checked: whatever is in here can be computed with."""

    name: str
    repo: str  # top level of the checkout that its tasks work on
    cron: str  # five fields, or six with seconds first
    zone: str = "UTC"  # IANA name
    task: Mapping[str, object] = field(default_factory=dict)  # what is added: prompt, workflow, agent, labels, base, …
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.LAST
    most: int = 10  # of `Misfire.ALL`
    jitter: float = 0.0  # seconds, over which its tasks' starts are spread
    enabled: bool = True
    place: str = field(default="", compare=False)  # file and line, for people

    @property
    def key(self) -> str:
        """Its identity: two repositories may each have a "nightly"."""
        return f"{self.repo}\0{self.name}"

    @property
    def may_wait(self) -> int:
        """How many of its occurrences wait at the most; of more, the latest. Where each replaces the one before, it is
        one: agents would be started only to be ended at once."""
        return max(1, self.most) if self.misfire is Misfire.ALL and self.overlap is not Overlap.REPLACE else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleRecord:
    """A schedule and where it stands, as the store has it."""

    schedule: Schedule
    file: str  # where it is written
    enabled: bool  # an operator's word, or else the file's
    by: str | None = None  # the operator whose word that is; None: the file's
    cursor: float  # whatever was due until then is decided
    waiting: tuple[float, ...] = ()  # occurrences that were let in and have no task yet, oldest first
    last_fire: float | None = None  # the occurrence that its last task was for; when, if it was fired by hand
    last_fired_at: float | None = None
    last_task: str | None = None
    last_task_state: TaskState | None = None  # None: it has none, or it was forgotten
    replacing: str | None = None  # the task that was asked to end for the next one
    trouble: str | None = None  # why the last fire was refused
    failures: int = 0
    tried_at: float | None = None
    next_try: float | None = None

    @property
    def is_busy(self) -> bool:
        """Whether its last task has not ended yet."""
        return self.last_task_state is not None and self.last_task_state not in TASK_TERMINAL


def merged_spans(spans: Sequence[tuple[float, float]], decided: Sequence[float]) -> list[tuple[float, float]]:
    """Stretches of time in which no occurrence fires again: little to remember, however many there were. Only a clock
    set back into one meets it; and one that was years ahead leaves a stretch years ahead, not all until then."""
    merged: list[tuple[float, float]] = []
    for began, ended in sorted([*spans, *((moment, moment) for moment in decided)]):
        if merged and began - merged[-1][1] <= SPAN:
            merged[-1] = merged[-1][0], max(merged[-1][1], ended)
        else:
            merged.append((began, ended))
    return merged
