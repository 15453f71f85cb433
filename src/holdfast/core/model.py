"""The nouns of Holdfast as frozen values. Rows of the store become these; nothing here knows how they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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
    """Where a task's agent works."""

    WORKTREE = "worktree"
    CLONE = "clone"
    CONTAINER = "container"
    DIRECTORY = "directory"
    NONE = "none"


class PauseReason(StrEnum):
    """Why a task waits although nothing it depends on is missing."""

    RATE_LIMIT = "rate_limit"
    USAGE_LIMIT = "usage_limit"
    CONTEXT_LIMIT = "context_limit"
    BUDGET = "budget"
    AUTH = "auth"
    BILLING = "billing"
    APPROVAL = "approval"
    OPERATOR = "operator"
    OUTAGE = "outage"


class StopWhy(StrEnum):
    """Why we asked a run to end. Recorded before the signal, so that a death we asked for is never a crash."""

    CANCEL = "cancel"
    PAUSE = "pause"
    DOWN = "down"
    WORKER = "worker"  # an operator stopped its worker, and did not want to wait
    STUCK = "stuck"
    LOOPING = "looping"
    STARTUP = "startup_timeout"
    DEADLINE = "deadline"  # the time of the parallel stage that it is a member of was up
    CLAIMED = "claimed"  # it reported its result and did not exit in time
    DOOMED = "doomed"  # its own words say that it cannot succeed, and it does not end
    BUDGET = "budget"  # it has used up the money or the tokens of its task
    MEMORY = "out_of_memory"  # beyond its limit, seen by us where no cgroup holds it


_RANK = (StopWhy.DOWN, StopWhy.PAUSE, StopWhy.CANCEL)


def outranks(why: StopWhy, standing: StopWhy | None) -> bool:
    """Whether a wish replaces the one that stands: an operator's word any verdict of ours, a pause a `down` (after
    which it would go on by itself), a cancel all others."""
    if standing is None:
        return True
    return why in _RANK and (standing not in _RANK or _RANK.index(why) > _RANK.index(standing))


class ReportKind(StrEnum):
    """What an agent may say of itself, through its run's channel."""

    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"  # it wants its tree to be kept as it is now
    COMPLETE = "complete"  # a claimed result: what becomes of it is core/runs/claimed_result.py
    FAIL = "fail"  # likewise


class RequestKind(StrEnum):
    """What an operator may ask of the supervisor."""

    CANCEL = "cancel"
    PAUSE = "pause"
    DOWN = "down"
    SWEEP = "sweep"


class Level(StrEnum):
    """How loud an event is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, kw_only=True, slots=True)
class Repo:
    """A git repository that tasks may work on."""

    id: str
    path: str  # top level of the user's checkout
    common_dir: str  # its git common directory: the same for all worktrees


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSpec:
    """What the user asked for. Settings are resolved when it is added and never looked up again."""

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
    base_from_parent: bool = (
        False  # starts from its parent's branch as that is when it is claimed; else from `base_ref`
    )
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
    provider: str = ""  # who answers its agent's requests; empty: nobody knows
    workflow: str = ""  # its name; empty: none
    stages: Stages = ()  # of its workflow; what the present one says stands in the fields above too
    range_base: str | None = None  # what it looks at is `range_base`..`base_ref`; None: it is about no range
    schedule: str = ""  # the name of the one that added it; empty: somebody did
    fire_time: str = ""  # the moment that it was scheduled for, as RFC 3339 has it, in UTC
    adaptive_floor: float | None = None  # the timeout adapts to earlier runs, but never below this; None: it does not


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A task as the supervisor sees it: what was asked, and where it stands."""

    spec: TaskSpec
    state: TaskState
    fence: int
    owner: str | None
    generation: int  # raised by an operator's retry: budgets count within one generation
    base_commit: str | None
    branch: str | None
    resume_attempts: int
    pause_reason: PauseReason | None
    session_id: str | None
    account: str | None  # the one that it names, or that of its session; None: any
    fresh: bool  # the next attempt starts from the base, whatever was salvaged before
    forced: bool = False  # an operator lets its next run have an account that is shut
    worker: str | None = None  # the named worker that has it, or that it waits for; None: any lane
    progress: Progress = START  # where it stands in its workflow

    @property
    def id(self) -> str:
        return self.spec.id


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """One line of an agent's own, checked and cleaned."""

    kind: ReportKind
    message: str = ""
    percent: float | None = None

    def __str__(self) -> str:
        words = [f"{self.percent:g} %"] if self.percent is not None else []
        return ": ".join([*words, self.message] if self.message else words)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The result that an agent claimed. The first one counts, from the moment we knew of it."""

    kind: ReportKind
    message: str
    at: Instant


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """How far a run's reports were taken in. Durable with what followed from them, so nothing is told twice."""

    offset: int = 0  # bytes of the channel's file
    refused: int = 0  # lines that were no reports of this run
    contradicted: bool = False  # another result was claimed after the first, and that was told


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One agent process tree."""

    id: str
    task_id: str
    number: int  # 1 for the task's first run
    state: RunState
    stop_why: StopWhy | None
    stop_reason: str | None  # the evidence behind `stop_why`, for people
    timeout: float | None  # its own, adapted to earlier runs; None: the task's
    account: str | None  # the login that it runs under; None: its agent needs none
    outcome: str | None
    reason: str | None
    claim: Claim | None = None
    heard: Heard = field(default_factory=Heard)
    stage: str | None = None  # the stage that it is a run of; None: its task has no workflow
    member: str = ""  # of a parallel stage: whose run it is


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """A ledger row: something outside the store that we made, or are about to make."""

    id: str
    task_id: str
    repo_id: str
    strategy: Strategy
    path: str
    branch: str | None
    base_commit: str | None
    state: WorkspaceState
    disposition: str | None  # decided at the ending: clean | salvage (first, then clean) | preserve
    failures: int = 0  # how often it could not be put away
    reason: str | None = None  # why it is in its state, or why it was disposed of so
    expires_at: float | None = None  # preserved: when it goes by itself (wall time); None: when somebody says so
    container: str | None = None  # preserved: the stopped container that belongs to it
    member: str = ""  # of a parallel stage, if it is that one's own; else the task's


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A durable wish of an operator: who, when, why."""

    id: int
    kind: RequestKind
    task_id: str | None
    by: str
    at: float
    why: str
    data: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One decision or fact, told once, in the transaction that made it true."""

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
            raise ValueError(f"{self.kind} is no documented event; add it to core/event_kinds.py")
