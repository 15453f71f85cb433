"""The central records of Holdfast as frozen values: tasks, runs, workspaces, requests, events. The store turns rows
into these values. This module does not know how they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.event_kinds import EVENTS
from holdfast.core.states import RunState, TaskState, WorkspaceState
from holdfast.core.task_settings import (
    DEFAULT_BUDGET,
    DEFAULT_CONTAINER,
    DEFAULT_HEALTH,
    DEFAULT_LIMITS,
    DEFAULT_SALVAGE,
    DEFAULT_SUBTASKS,
    DEFAULT_WORKSPACE,
    BudgetRules,
    ContainerRules,
    HealthRules,
    RunLimits,
    SalvageRules,
    SubtaskRules,
    WorkspaceRules,
)
from holdfast.core.workflows.workflow import START, Progress, Stages


class Strategy(StrEnum):
    """The kind of place in which a task's agent works."""

    WORKTREE = "worktree"
    CLONE = "clone"
    CONTAINER = "container"
    DIRECTORY = "directory"
    NONE = "none"


class PauseReason(StrEnum):
    """The reason why a task is paused."""

    RATE_LIMIT = "rate_limit"
    USAGE_LIMIT = "usage_limit"
    CONTEXT_LIMIT = "context_limit"
    BUDGET = "budget"
    AUTH = "auth"
    BILLING = "billing"
    APPROVAL = "approval"
    GATE = "gate"  # the gate's command could not be run, so it says nothing about the work
    OPERATOR = "operator"
    OUTAGE = "outage"


class StopWhy(StrEnum):
    """The reason why Holdfast asked a run to end. It is recorded before the signal is sent, so a death that Holdfast
    asked for is never counted as a crash."""

    CANCEL = "cancel"
    PAUSE = "pause"
    DOWN = "down"
    WORKER = "worker"  # an operator stopped the run's worker with `--now`
    STUCK = "stuck"
    LOOPING = "looping"
    STARTUP = "startup_timeout"
    DEADLINE = "deadline"  # the time limit of its parallel stage has passed
    CLAIMED = "claimed"  # the agent claimed its result and did not exit in time
    DOOMED = "doomed"  # the agent's own output shows that it cannot succeed, and it does not end
    BUDGET = "budget"  # the money or the tokens of its task are used up
    MEMORY = "out_of_memory"  # over its memory limit, measured by us where no cgroup enforces the limit


_RANK = (StopWhy.DOWN, StopWhy.PAUSE, StopWhy.CANCEL)


def outranks_stop(why: StopWhy, standing: StopWhy | None) -> bool:
    """True if a stop request replaces the present one.

    An operator's request replaces every verdict of ours. A pause replaces a `down`, because the task would continue by
    itself after a `down`. A cancel replaces every other request.
    """
    if standing is None:
        return True
    return why in _RANK and (standing not in _RANK or _RANK.index(why) > _RANK.index(standing))


class ReportKind(StrEnum):
    """The kinds of reports that an agent may send through its run's channel."""

    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"  # the agent asks for a checkpoint of its tree as it is now
    COMPLETE = "complete"  # a claimed result: core/runs/claimed_result.py decides what follows
    FAIL = "fail"  # a claimed result too


class RequestKind(StrEnum):
    """The kinds of requests that an operator may send to the supervisor."""

    CANCEL = "cancel"
    PAUSE = "pause"
    DOWN = "down"
    SWEEP = "sweep"
    TAKE_OVER = "take-over"


class Level(StrEnum):
    """The importance of an event."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, kw_only=True, slots=True)
class Repo:
    """A git repository that tasks may work on."""

    id: str
    path: str  # top level of the user's checkout
    common_dir: str  # the repository's git common directory: the same for all worktrees


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSpec:
    """A task as the user asked for it. Settings are resolved when the task is added and never looked up again."""

    id: str
    repo_id: str
    prompt: str
    agent: str
    agent_options: Mapping[str, object] = field(default_factory=dict)
    strategy: Strategy = Strategy.WORKTREE
    directory_copy: bool = False  # directory strategy: copy the checkout instead of starting empty
    base_ref: str = "HEAD"
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    parent_id: str | None = None
    base_from_parent: bool = False  # True: start from the parent's branch as of the claim. False: from `base_ref`
    needs: tuple[str, ...] = ()
    not_before: float | None = None
    timeout: float = 3600.0
    grace: float = 5.0
    orphan_grace: float = 120.0
    max_resumes: int = 3
    preserve_on_failure: bool | None = None  # three-valued: unset falls through to the next tier
    preserve_strategy_default: bool | None = None
    preserve_global_default: bool = False
    cleanup_on_complete: bool = True
    keep_workspace: bool = False
    commit_leftovers: str = "all"  # all | tracked | none
    environment: Mapping[str, object] = field(default_factory=dict)  # pass / set, as configured at add
    health: HealthRules = DEFAULT_HEALTH
    limits: RunLimits = DEFAULT_LIMITS
    workspace: WorkspaceRules = DEFAULT_WORKSPACE
    salvage: SalvageRules = DEFAULT_SALVAGE
    container: ContainerRules = DEFAULT_CONTAINER
    budget: BudgetRules = DEFAULT_BUDGET
    subtasks: SubtaskRules = DEFAULT_SUBTASKS
    provider: str = ""  # the service that answers the agent's requests; empty: unknown
    workflow: str = ""  # the name of its workflow; empty: none
    stages: Stages = ()  # the stages of its workflow. The values of the present stage are also in the fields above
    range_base: str | None = None  # the task examines `range_base`..`base_ref`; None: the task is not about a range
    schedule: str = ""  # the name of the schedule that added the task; empty: a person added it
    fire_time: str = ""  # the time that the task was scheduled for, in RFC 3339 form, in UTC
    # the timeout adapts to earlier runs, but never below this; None: the timeout is fixed
    adaptive_floor: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A task as the supervisor sees it: the specification and the current state."""

    spec: TaskSpec
    state: TaskState
    fence: int
    owner: str | None
    generation: int  # raised by an operator's retry: retry budgets count within one generation
    base_commit: str | None
    branch: str | None
    resume_attempts: int
    pause_reason: PauseReason | None
    session_id: str | None
    account: str | None  # the account that the task names, or that of its session; None: any
    fresh: bool  # the next attempt starts from the base, whatever was salvaged before
    forced: bool = False  # an operator allows the next run to use a parked or stopped account
    worker: str | None = None  # the named worker that has the task, or that the task waits for; None: any lane
    progress: Progress = START  # the task's position in its workflow

    @property
    def id(self) -> str:
        return self.spec.id


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """One line that an agent wrote to its run's channel, checked and cleaned."""

    kind: ReportKind
    message: str = ""
    percent: float | None = None

    def __str__(self) -> str:
        words = [f"{self.percent:g} %"] if self.percent is not None else []
        return ": ".join([*words, self.message] if self.message else words)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The result that an agent claimed. The first claim counts, from the time at which Holdfast read it."""

    kind: ReportKind
    message: str
    at: Instant


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportPosition:
    """The position up to which a run's reports were read. It is stored in the same transaction as the effects of the
    reports, so no report takes effect twice."""

    offset: int = 0  # bytes of the channel's file
    refused: int = 0  # lines that were not reports of this run
    contradicted: bool = False  # a different result was claimed after the first one, and an event reported that


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One agent process tree."""

    id: str
    task_id: str
    number: int  # 1 for the task's first run
    state: RunState
    stop_why: StopWhy | None
    stop_reason: str | None  # the evidence behind `stop_why`, for people
    timeout: float | None  # the run's own timeout, adapted to earlier runs; None: that of the task
    account: str | None  # the login that the run uses; None: its agent needs none
    outcome: str | None
    reason: str | None
    claim: Claim | None = None
    heard: ReportPosition = field(default_factory=ReportPosition)
    stage: str | None = None  # the stage that the run belongs to; None: its task has no workflow
    member: str = ""  # the member of a parallel stage that the run belongs to; empty: none


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """A ledger row about one workspace that Holdfast made or is about to make."""

    id: str
    task_id: str
    repo_id: str
    strategy: Strategy
    path: str
    branch: str | None
    base_commit: str | None
    state: WorkspaceState
    disposition: str | None  # decided when the task ended: clean | salvage (first, then clean) | preserve
    failures: int = 0  # how many attempts to remove the workspace failed
    reason: str | None = None  # why the workspace is in its state, or why its disposition was chosen
    expires_at: float | None = None  # preserved: when it expires (wall time); None: only when an operator drops it
    container: str | None = None  # preserved: the stopped container that belongs to the workspace
    member: str = ""  # the member of a parallel stage that owns the workspace; empty: the task owns it


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A durable request of an operator: who asked, when and why."""

    id: int
    kind: RequestKind
    task_id: str | None
    by: str
    at: float
    why: str
    data: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One decision or fact, emitted once, in the transaction that made it true."""

    kind: str
    message: str
    level: Level = Level.INFO
    component: str = "supervisor"
    task_id: str | None = None
    run_id: str | None = None
    reason: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in EVENTS:
            raise ValueError(f"{self.kind} is not a documented event. Add it to core/event_kinds.py")
