"""Read models of one task: its row, runs, budgets, results and events.

Each model is a TypedDict: a plain dict at run time, with the field names of docs/reference/json.md. Modules import
this file for type checks only, so that `holdfast ps` does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from holdfast.api.fleet.models import AlertCounts, CrashRow
    from holdfast.api.work.models import CheckpointRow, SalvageRow, TaskWorkspace


# Parsed JSON whose fields other modules define: an event's data, an alert's details, a task's settings.
JsonObject = dict[str, Any]


# Functional form: `try` is a keyword.
StageRow = TypedDict(
    "StageRow",
    {
        "workflow": str,
        "name": str,
        "number": int,
        "of": int,
        "try": int,
        "turn": int,
        "awaits_approval": bool,
        "feedback": str,
        "names": list[str],
        "members": list[str],
    },
)


class GateRow(TypedDict):
    """The newest answer of a task's gate."""

    command: str
    passed: bool
    how: str


class TaskColumns(TypedDict):
    """Columns that `ps` and `show` have in common."""

    id: str
    state: str
    agent: str
    prompt: str
    branch: str | None
    resume_attempts: int
    pause_reason: str | None
    resume_after: float | None
    outcome: str | None
    reason: str | None
    failure_reason: str | None
    priority: int
    strategy: str
    not_before: float | None
    created_at: float
    updated_at: float
    ended_at: float | None
    base_commit: str | None
    session_id: str | None
    seq: int
    parent_id: str | None
    repo: str
    account: str | None
    worker: str | None


class TruthColumns(TypedDict):
    """The outcome of an ended task's work. None: unknown, or the task has not ended."""

    changed_files: int | None
    refused_calls: int | None  # tool calls that the agent's CLI did not permit
    refused_first: list[str]  # the first of them: "Bash: make test"


class TaskRow(TaskColumns, TruthColumns):
    """A task as `ps` lists it."""

    gate: GateRow | None
    runs: int
    tokens: int | None
    cost_usd: float | None
    labels: dict[str, str]
    stage: StageRow | None
    held: str | None
    alerts: AlertCounts


class TaskStateRow(TaskColumns):
    """A task's own row of the store. `settings`, `progress`, `gate` and `truth` are JSON text."""

    gate: str | None
    truth: str | None
    base_ref: str
    settings: str
    generation: int
    fence: int
    owner: str | None
    repo_id: str
    bound: str | None
    progress: str | None


class UsageRow(TypedDict, total=False):
    """Tokens by kind, money and turns, as an agent reported them."""

    input: int
    output: int
    cached: int
    reasoning: int
    turns: int | None
    model: str | None
    cost_usd: float | None
    tokens: int
    session_id: str | None
    is_whole: bool


class ClaimRow(TypedDict):
    """The result that an agent reported."""

    kind: str
    message: str
    at: float


class ProgressRow(TypedDict):
    """The newest progress that an agent reported."""

    message: str
    percent: float | None
    at: float


class RefusedCallsRow(TypedDict):
    """The tool calls of a run that its CLI did not permit."""

    count: int
    first: list[str]


class RunRow(TypedDict):
    id: str
    number: int
    pid: int | None
    state: str
    outcome: str | None
    reason: str | None
    stop_why: str | None
    started_at: float | None
    ended_at: float | None
    session_id: str | None
    cost_usd: float | None
    tokens: int | None
    error_tail: str | None
    timeout: float | None
    timeout_why: str | None
    claim: ClaimRow | None
    progress: ProgressRow | None
    account: str | None
    usage: UsageRow | None
    worker: str | None
    stage: str | None
    member: str | None
    agent: str | None
    refused: RefusedCallsRow | None  # None: its agent did not report it
    launch: NotRequired[LaunchRow | None]  # None: the run directory is not kept any more


class LaunchRow(TypedDict):
    """The registration of a run, written before its agent was started (R-TERM-02), as text without secrets."""

    command: list[str]
    cwd: str | None
    host: str | None
    role: str | None  # the member of a parallel stage, or the named worker
    stage: str | None
    model: str | None
    prompt_file: str | None  # None: the prompt is in the command, or the file was deleted after the run


class OpenRun(TypedDict):
    """A run of which only these facts matter: where its output is, and when it ended."""

    id: str
    number: int
    ended_at: NotRequired[float | None]


class TotalsRow(TypedDict):
    """The usage of a run, as far as its agent reported it."""

    session_id: str | None
    model: str | None
    input: int
    output: int
    cached: int
    reasoning: int
    cost_usd: float | None
    turns: int | None


# One event of an agent's output. Its fields depend on `event` (docs/reference/json.md, `logs`).
AgentEventRow = dict[str, Any]


class Need(TypedDict):
    id: str
    state: str


class UnmetNeed(Need):
    """A task that has to complete first, directly or through others."""

    pause_reason: str | None
    resume_after: float | None


class Child(TypedDict):
    id: str
    state: str
    outcome: str | None
    prompt: str


class Relative(TypedDict):
    """A task of the family. `what` names its relation."""

    id: str
    state: str
    prompt: str
    reason: str | None
    what: str


class SpendRow(TypedDict):
    budget: str
    wall: float
    boottime: float
    boot_id: str


class TaskBudget(TypedDict):
    """The money and tokens that a task itself may spend in all."""

    usd: float | None
    tokens: int | None


class BudgetRow(TypedDict):
    """The spent and the remaining part of one budget."""

    spent: float
    limit: float
    left: float
    window: NotRequired[float]
    oldest_leaves_at: NotRequired[float | None]
    in_all: NotRequired[int]
    unpriced_runs: NotRequired[int]


class SpentInAll(TypedDict):
    """The usage of all generations of a task together."""

    generations: int
    runs: int
    cost_usd: float | None
    tokens: int | None
    unpriced_runs: int
    uncounted_runs: int  # ended before they reported their tokens, while other runs of the task did report them


class ByHand(TypedDict):
    """The command with which a person continues a session. `warning`: why not to, or not yet."""

    session_id: str
    command: str
    warning: str | None


class TaskDetails(TaskColumns, TruthColumns):
    """A task as `show` prints it. `complete` adds the fields that are not required."""

    gate: GateRow | None
    base_ref: str
    generation: int
    fence: int
    owner: str | None
    repo_id: str
    labels: dict[str, str]
    stage: StageRow | None
    max_resumes: int
    timeout: float
    schedule: str | None
    fire_time: str | None
    time_zone: str | None
    grace: float
    orphan_grace: float
    health: dict[str, Any]
    limits: dict[str, Any]
    budget: TaskBudget
    runs: list[RunRow]
    messages: list[MessageRow]
    workspace: TaskWorkspace
    needs: list[Need]
    children: list[Child]
    waits_for: list[str]
    salvages: list[SalvageRow]
    crashes: list[CrashRow]
    checkpoints: list[CheckpointRow]
    spends: NotRequired[list[SpendRow]]
    budgets: NotRequired[dict[str, BudgetRow]]
    spent_in_all: NotRequired[SpentInAll]
    usage: NotRequired[UsageRow | None]
    by_hand: NotRequired[ByHand | None]


class MessageRow(TypedDict):
    """A person's message to a task. `run`: the number of the run whose agent it is given to; None: it waits."""

    number: int
    text: str
    by: str
    at: float
    run: int | None


class Completion(TypedDict):
    id: str
    state: str
    prompt: str


class PromptRow(TypedDict):
    """The prompt that an agent got in a run. `run` is None before the first run."""

    id: str
    run: int | None
    prompt: str


class StageGateRow(GateRow):
    output: str


class StageResultRow(TypedDict):
    """The result of one stage, or of one member of it."""

    name: str
    visit: int
    attempt: int
    member: str | None
    agent: str
    outcome: str
    reason: str
    ruling: str | None
    passed: bool
    text: str
    files: list[str]
    changed: int | None  # how many files differ from the task's base; None: unknown
    commit: str | None
    gate: StageGateRow | None
    started_at: float | None
    ended_at: float | None
    run: str | None


class MemberCounts(TypedDict):
    """The endings of the members of a parallel stage, for one visit of it."""

    name: str
    visit: int
    total: int
    outcomes: dict[str, int]


class StageDecisionRow(TypedDict):
    """A person's approval of a stage, or a request for changes."""

    at: float
    by: str
    stage: str  # the one that waited
    changes: str | None  # the person's words; null: approved
    to: str | None  # the stage that followed; null: none


class ResultsRow(TypedDict):
    task: str
    state: str
    workflow: str | None
    stages: list[StageResultRow]
    members: list[MemberCounts]
    decisions: list[StageDecisionRow]


class ReportRow(ResultsRow, TruthColumns):
    prompt: str
    gate: GateRow | None
    messages: list[MessageRow]
    reason: str | None
    repo: str
    agent: str
    labels: dict[str, str]
    base_ref: str
    base_commit: str | None
    branch: str | None
    created_at: float
    ended_at: float | None
    runs: int
    usage: UsageRow | None
    files: list[str]
    commit: str | None
