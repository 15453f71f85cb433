"""Read models of one task: its row, runs, budgets, results and events.

Each model is a TypedDict: a plain dict at run time, with the field names of docs/reference/json.md. Modules import
this file for type checks only, so that `holdfast ps` does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from holdfast.api.fleet.models import AlertCounts, CrashRow
    from holdfast.api.home.models import EventRow
    from holdfast.api.work.models import CheckpointRow, SalvageRow, TaskWorkspace


# Parsed JSON whose fields other modules define: an event's data, an alert's details, a task's settings.
JsonObject = dict[str, Any]


# Functional form: `try` is a keyword.
StageRow = TypedDict(
    "StageRow",
    {
        "workflow": str,
        "name": str,
        "number": int,  # from 1
        "of": int,  # how many stages the workflow has
        "try": int,
        "turn": int,
        "awaits_approval": bool,
        "feedback": str,  # the feedback that its agent got after a ruling for changes
        "names": list[str],  # every stage of the workflow
        "members": list[str],
    },
)


class GateRow(TypedDict):
    """The newest answer of a task's gate."""

    command: str
    passed: bool
    how: str  # how the command ended, in words


class RunningGateRow(TypedDict):
    """A gate that runs now."""

    command: str
    since: float


class TaskColumns(TypedDict):
    """Columns that `ps` and `show` have in common."""

    id: str
    state: str  # queued, running, paused, completed, failed or cancelled
    agent: str
    prompt: str
    branch: str | None  # the branch with the work
    resume_attempts: int  # counted resumes so far
    pause_reason: str | None  # a stable word
    resume_after: float | None  # when a paused task continues by itself
    outcome: str | None  # how the newest run ended, as a stable word
    reason: str | None  # why the task is in this state, in words
    failure_reason: str | None  # a stable word
    priority: int  # higher first
    strategy: str  # the kind of workspace
    not_before: float | None  # the task does not start before this moment
    created_at: float
    updated_at: float
    ended_at: float | None
    base_commit: str | None  # the commit that the work began from
    session_id: str | None  # of the agent's newest conversation
    seq: int  # rises with every task
    parent_id: str | None  # the task that this one is a subtask of
    repo: str
    account: str | None
    worker: str | None  # the named worker that took the task


class TruthColumns(TypedDict):
    """The outcome of an ended task's work. None: unknown, or the task has not ended."""

    changed_files: int | None  # how many files an ended task changed
    refused_calls: int | None  # tool calls that the agent's CLI did not permit
    refused_first: list[str]  # the first of them: "Bash: make test"


class TaskRow(TaskColumns, TruthColumns):
    """A task as `ps` lists it."""

    merged_into: str | None  # the branch that `holdfast merge` merged its work into; None: no merge is recorded
    gate: GateRow | None  # None: the task has no gate, or nothing was checked yet
    running_gate: RunningGateRow | None  # the gate that runs now
    runs: int  # how many
    tokens: int | None
    cost_usd: float | None
    labels: dict[str, str]
    stage: StageRow | None  # None: the task has no workflow
    held: str | None  # why a queued task does not start: the supervisor starts nothing new, or its account is closed
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
    """One start of an agent for a task."""

    id: str
    number: int  # 1 is the first run of the task
    pid: int | None
    state: str
    outcome: str | None  # how the run ended, as a stable word
    reason: str | None
    stop_why: str | None  # why Holdfast asked the run to end
    started_at: float | None
    ended_at: float | None
    session_id: str | None
    cost_usd: float | None
    tokens: int | None
    error_tail: str | None  # the end of its error output
    timeout: float | None  # its own, adapted to earlier runs; None: the task's
    timeout_why: str | None
    claim: ClaimRow | None  # the result that the agent reported
    progress: ProgressRow | None
    account: str | None
    usage: UsageRow | None
    worker: str | None
    stage: str | None
    member: str | None  # of a parallel stage
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


class ForgottenTaskRow(TypedDict):
    """A line of `ps --json --watch`: a task of the list that the store has forgotten."""

    id: str
    forgotten: Literal[True]


# One event of an agent's output. `LogRow` names its fields.
AgentEventRow = dict[str, Any]


class LogRow(TypedDict):
    """One event of an agent's output. `event` decides which of the optional fields are present."""

    event: str  # session, step, text, tool_*, usage, retry, limit, error, result, raw, gap, or total at the end
    run: int  # the number of the run
    stream: str  # out or err
    id: NotRequired[str]  # session, tool_started, tool_finished
    model: NotRequired[str | None]  # session, total
    text: NotRequired[str]  # text, result, raw: raw is a line that means nothing to Holdfast
    is_delta: NotRequired[bool]  # text: a piece, the next one follows on the same line
    is_thought: NotRequired[bool]  # text
    name: NotRequired[str]  # tool_started, tool_finished, tool_refused
    input: NotRequired[str | int]  # tool_started, tool_refused: as text; usage, total: tokens, with those from a cache
    deadline: NotRequired[float | None]  # tool_started: seconds after which the tool ends by itself
    ok: NotRequired[bool | None]  # tool_finished (None: unknown), result
    output: NotRequired[str | int]  # tool_finished: as text; usage, total: tokens, with those of reasoning
    cached: NotRequired[int]  # usage, total
    reasoning: NotRequired[int]  # usage, total
    cost_usd: NotRequired[float | None]  # usage, total
    is_total: NotRequired[bool]  # usage: replaces what was counted before. Read `total` instead of adding up
    settles: NotRequired[bool]  # usage: replaces what was counted since the last such report
    of: NotRequired[str]  # usage: a message that may be reported several times and counts once
    context_used: NotRequired[int | None]  # usage
    context_size: NotRequired[int | None]  # usage
    trouble: NotRequired[str]  # retry, error: a stable word
    attempt: NotRequired[int | None]  # retry
    most: NotRequired[int | None]  # retry
    delay: NotRequired[float | None]  # retry: seconds
    status: NotRequired[int | None]  # retry, error: of HTTP
    message: NotRequired[str]  # retry, error
    resets_at: NotRequired[float | None]  # limit, error: when the limit ends
    reset: NotRequired[str | float | None]  # retry: a hint at the end of the limit, as the agent wrote it
    rejected: NotRequired[bool]  # limit: False is only a warning
    scope: NotRequired[str]  # limit
    utilization: NotRequired[float | None]  # limit: 0 to 1
    is_fatal: NotRequired[bool]  # error: the run cannot succeed by itself any more
    outlasts_success: NotRequired[bool]  # error: a later report of success does not undo it
    turns: NotRequired[int | None]  # result, total
    session_id: NotRequired[str | None]  # total
    bytes: NotRequired[int]  # gap: how many bytes are not kept, or are in a line that is too long
    clipped: NotRequired[bool]  # a text of more than 65536 characters was cut


class Need(TypedDict):
    """A task that has to complete first."""

    id: str
    state: str


class UnmetNeed(Need):
    """A task that has to complete first, directly or through others."""

    pause_reason: str | None
    resume_after: float | None


class Child(TypedDict):
    """A subtask."""

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
    """One use of a retry budget."""

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
    window: NotRequired[float]  # crash: seconds
    oldest_leaves_at: NotRequired[float | None]  # crash: when one less counts
    in_all: NotRequired[int]  # lost: since the task was added
    unpriced_runs: NotRequired[int]  # of a money budget: runs whose cost is not known


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

    gate: GateRow | None  # None: the task has no gate, or nothing was checked yet
    running_gate: RunningGateRow | None  # the gate that runs now
    base_ref: str
    generation: int  # 1, and one more for every retry and message after an end
    fence: int
    owner: str | None
    repo_id: str
    labels: dict[str, str]
    stage: StageRow | None  # None: the task has no workflow
    max_resumes: int
    timeout: float  # of a run, in seconds
    schedule: str | None  # the schedule that added the task
    fire_time: str | None  # the occurrence of that schedule
    time_zone: str | None  # of its agent, where it was set
    grace: float
    orphan_grace: float
    health: dict[str, Any]  # the settings `health.*` as resolved when the task was added; null: switched off
    limits: dict[str, Any]  # the settings `limits.*`; null: no limit
    budget: TaskBudget
    runs: list[RunRow]
    messages: list[MessageRow]
    workspace: TaskWorkspace
    needs: list[Need]
    children: list[Child]
    waits_for: list[str]  # what it needs that did not complete yet
    salvages: list[SalvageRow]
    crashes: list[CrashRow]
    checkpoints: list[CheckpointRow]
    spends: NotRequired[list[SpendRow]]
    budgets: NotRequired[dict[str, BudgetRow]]  # runs, crash, retry, lost, outage, session, resume, and spending caps
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
    """A task that the completion of the shell offers."""

    id: str
    state: str
    prompt: str


class PromptRow(TypedDict):
    """The prompt that an agent got in a run. `run` is None before the first run."""

    id: str
    run: int | None
    prompt: str


class StageGateRow(GateRow):
    """The answer of a stage's gate."""

    output: str  # the end of what the command printed


class StageResultRow(TypedDict):
    """The result of one stage, or of one member of it."""

    name: str
    visit: int
    attempt: int
    member: str | None
    agent: str
    outcome: str
    reason: str
    ruling: str | None  # of a review: approve or changes
    passed: bool
    text: str  # the agent's last answer, at most 64 KiB of its end
    files: list[str]  # what it changed
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
    """The results of a task. A task without a workflow has one stage, `work`, when it has ended."""

    task: str
    state: str
    workflow: str | None
    stages: list[StageResultRow]  # in order, of the current generation
    members: list[MemberCounts]  # for each time that a parallel stage was run
    decisions: list[StageDecisionRow]


class ReportRow(ResultsRow, TruthColumns):
    """A task with its results, as `holdfast report` prints it."""

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


class AddedRow(TypedDict):
    """A task that was queued."""

    id: str
    state: str
    supervisor: bool  # true: a supervisor is running
    parent_id: str | None  # the task that this one is a subtask of


class ListedTask(TypedDict):
    """A task of a list that was queued now."""

    id: str | None  # None: --dry-run
    key: str
    where: str
    prompt: str


class KnownListTask(TypedDict):
    """A task of a list that was queued by an earlier `add`."""

    id: str
    key: str
    where: str
    state: str | None  # None: forgotten


class RepeatedTask(TypedDict):
    """A task that stands in its list twice."""

    key: str
    where: str


class ListMistake(TypedDict):
    """A mistake in a list of tasks."""

    where: str
    text: str


class AddedListRow(TypedDict):
    """The answer to `add --from` of a list. With a mistake nothing is queued, and the exit code is 2."""

    source: str
    format: str
    dry_run: bool
    queued: list[ListedTask]
    known: list[KnownListTask]
    repeated: list[RepeatedTask]
    skipped: int  # ticked boxes
    mistakes: list[ListMistake]
    supervisor: bool


class SentRow(TypedDict):
    """A message that was sent to a task."""

    id: str
    before: str  # the state of the task before
    message: int  # the number of the message


class PausedRow(TypedDict):
    """A task that was paused, or whose pause was requested."""

    id: str
    state: str
    pause_reason: str | None
    resume_after: float | None
    checkpoint: int | None  # the checkpoint that holds its tree


class CancelledRow(TypedDict):
    """A task that was cancelled, or whose cancellation was requested."""

    id: str
    state: str
    subtasks: list[str]  # unfinished subtasks, which are cancelled too


class QueuedAgainRow(TypedDict):
    """A task that was resumed or retried."""

    id: str
    state: str
    reason: str


class TaskResultRow(TypedDict):
    """The result of a command for one of several tasks."""

    id: str
    done: bool  # false: the message says why not
    state: str | None  # of the task now
    message: str


class ApprovedRow(TypedDict):
    """A stage that a person approved, or asked to change."""

    id: str
    state: str
    reason: str  # what follows


class WaitCauseRow(TypedDict):
    """One thing that a task waits for: a task, an account, a budget, a hold or a worker."""

    name: str
    state: str
    reason: str
    since: float | None
    until: float | None


class WaitRow(TypedDict):
    """One reason for which a task waits."""

    kind: str  # no_supervisor, dependencies, not_before, slots_full, limit_pause and other stable words
    name: str  # the agent, worker, issue, repository or pause reason
    text: str  # the recorded reason
    causes: list[WaitCauseRow]
    tasks: list[str]  # the tasks in the way
    count: int | None  # tasks ahead, agents at work, or counted resumes of a paused task
    limit: int | None  # agents at once, or resumes in all
    until: float | None
    command: str | None  # ends the wait
    needs_person: bool  # time alone does not end it
    fails_at_limit: bool  # after the next resume, the task fails at its next limit


class WhyRow(TruthColumns):
    """The explanation of a task's state."""

    id: str
    state: str
    why: list[str]
    gate: GateRow | None
    budgets: dict[str, BudgetRow]
    spent_in_all: SpentInAll
    events: list[EventRow]  # the last ones
    waits: list[WaitRow]  # the most important reason first


class RehearsedRow(TypedDict):
    """The end of a rehearsal with a scenario."""

    id: str
    state: str
    outcome: str | None
    left_behind: list[str]


class RehearsedAgentRow(TypedDict):
    """The end of a rehearsal with an installed agent CLI."""

    id: str
    state: str
    outcome: str
    seconds: float
    reason: str
    next: str  # what Holdfast does next
    requests: int  # how often the agent asked its model
    left_behind: list[str]


class ChangedRow(TypedDict):
    """A task that a person changed."""

    id: str
    changed: dict[str, list[Any]]  # key → the old and the new value, as people read them; empty: nothing was different


class RestingRow(TypedDict):
    """A task at rest: it ended, is paused, or waits for a person."""

    id: str
    state: str
    outcome: str | None
    reason: str | None
    failure_reason: str | None
    branch: str | None
