"""Read models of schedules, trackers, workflows and statistics.

Each model is a TypedDict: a plain dict at run time, with the field names of docs/reference/json.md. Modules import
this file for type checks only, so that `holdfast ps` does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from holdfast.api.tasks.models import JsonObject


class ScheduleRow(TypedDict):
    """A schedule with its times."""

    name: str
    repo: str
    file: str
    place: str
    cron: str
    words: str
    timezone: str
    task: JsonObject
    overlap: str
    misfire: str
    max_catch_up: int
    jitter: float
    enabled: bool
    enabled_by: str | None
    seen: bool
    last_fire: float | None
    last_fired_at: float | None
    last_task: str | None
    last_task_state: str | None
    next_fire: float | None
    waiting: list[float]
    trouble: str | None
    next_try: float | None
    problem: NotRequired[str | None]


class ScheduleLine(ScheduleRow):
    """A schedule as the screen lists it."""

    key: str


class FireRow(TypedDict):
    """The result of one occurrence of a schedule: its task, or why there is none."""

    fire_time: float
    hand: int
    state: str
    task: str | None
    task_state: str | None
    why: str
    decided_at: float
    by_hand: bool


class FiredRow(TypedDict):
    schedule: str
    repo: str
    task: str


class TrackerRow(TypedDict):
    """A tracker that is asked for issues."""

    repo: str
    kind: str
    trouble: str | None
    since: float | None
    failures: int
    next_at: float | None
    name: str | None


class LinkRow(TypedDict):
    """An issue of a tracker and its task."""

    id: int
    repo: str
    issue: str
    task: str | None
    state: str
    assignee: str
    reason: str
    at: float
    task_state: str | None


class AgentChoiceRow(TypedDict):
    agent: str | None
    model: str | None
    permission: str | None
    account: str | None
    command: list[str] | None
    scenario: list[JsonObject] | None


class WorkflowRow(TypedDict):
    """A workflow with its stages."""

    name: str
    origin: str
    place: str | None
    about: str
    prompt: str
    wants_prompt: bool
    wants_range: bool
    preserve_on_failure: bool | None  # of its tasks; null: the settings decide
    keep_workspace: bool  # true: the workspaces of its tasks are preserved, whatever the outcome
    stages: list[JsonObject]
    problems: list[str]


class DurationRow(TypedDict):
    """Seconds that runs took."""

    mean: float | None
    p50: float | None
    p95: float | None


class StatsRow(TypedDict):
    """The reliability of one agent, in all or in one hour or day."""

    agent: str
    since: float | None  # the beginning of the hour or day, UTC
    runs: int
    ends: dict[str, int]
    unexpected: int
    unexpected_share: float
    restarts: int
    duration: DurationRow
    forgotten: int  # runs of forgotten tasks; they are not in the percentiles
    tasks: int  # that ended, and are not forgotten
    completed: int
    tokens: int | None
    input: int | None
    output: int | None
    cached: int | None
    cost_usd: float | None


class ScheduleListRow(ScheduleRow):
    """A line of `schedule list`: a schedule."""

    record: Literal["schedule"]


class ScheduleProblemRow(TypedDict):
    """A line of `schedule list`: a file whose schedules are not in force."""

    record: Literal["problem"]
    file: str
    problem: str


class ScheduleDetails(ScheduleRow):
    """A schedule as `schedule show` prints it."""

    next_fires: list[float]
    last_fires: list[FireRow]


class ScheduleFiredRow(TypedDict):
    """A schedule that was fired by hand."""

    schedule: str
    repo: str
    task: str
    supervisor: bool


class ScheduleSwitchedRow(TypedDict):
    """A schedule that was enabled or disabled."""

    schedule: str
    repo: str
    enabled: bool
    changed: bool
    supervisor: bool


class TrackerListRow(TrackerRow):
    """A line of `tracker list`: a tracker."""

    record: Literal["tracker"]


class LinkListRow(LinkRow):
    """A line of `tracker list`: an issue with its task."""

    record: Literal["link"]


class SyncRow(TypedDict):
    """The answer to `tracker sync`."""

    asked: bool
    supervisor: bool


class WorkflowProblemRow(TypedDict):
    """A mistake in a workflow."""

    problem: str
    place: str
    line: int | None


class TaskSumsRow(TypedDict):
    """The ended tasks of one repository, agent, model or value of a label, with their tokens and money."""

    by: str
    name: str | None  # None: unknown, or the label is not set
    tasks: int
    completed: int
    failed: int
    success: float | None  # the completed share of those that completed or failed; None: there is none of them
    runs: int
    tokens: int | None
    cost_usd: float | None
