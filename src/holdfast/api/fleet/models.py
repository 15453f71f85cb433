"""Read models of the fleet: its tasks in a list, supervisor, machine, alerts, crashes, holds, accounts, workers.

Each model is a TypedDict: a plain dict at run time, with the field names of docs/reference/json.md. Modules import
this file for type checks only, so that `holdfast ps` does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import ScheduleRow
    from holdfast.api.tasks.models import JsonObject, ProgressRow, RunningGateRow, StageRow


class AlertCounts(TypedDict):
    """Open alerts: of the task (`own`), of the home (`open`), and the worst level."""

    own: NotRequired[int]
    open: int
    worst: str | None


class FleetRow(TypedDict):
    """A task as a list of thousands shows it. Its prompt and reason are cut."""

    id: str
    seq: int
    state: str
    agent: str
    prompt: str
    branch: str | None
    reason: str | None
    outcome: str | None
    failure_reason: str | None
    pause_reason: str | None
    resume_after: float | None
    resume_attempts: int
    max_resumes: int | None  # None: it is not paused
    not_before: float | None
    priority: int
    strategy: str
    parent_id: str | None
    created_at: float
    updated_at: float
    ended_at: float | None
    worker: str | None
    account: str | None
    repo_id: str
    labels: dict[str, str]
    provider: str | None
    workflow: str | None
    repo: str
    runs: int
    open_runs: list[str]
    last_run: tuple[str, float | None, str | None, ProgressRow | None] | None
    needs: dict[str, str]
    issue: str | None
    tokens: int | None
    cost_usd: float | None
    begun: bool
    workspace: str | None  # intended, ready or preserved; None: it has none
    stage: StageRow | None
    running_gate: RunningGateRow | None  # the gate that runs now
    changed_files: int | None
    refused_calls: int | None
    refused_first: list[str]
    merged_into: str | None


class SupervisorRow(TypedDict):
    """A living supervisor's row of the store."""

    id: str
    boot_id: str
    pid: int
    start_ticks: int
    version: str
    agents: int
    lease_until: float
    started_at: float
    held: str | None


class SupervisorStatus(TypedDict):
    """`state`: none, up or silent. Without a supervisor there are only `state`, `held` and `other_version`."""

    state: str
    held: str | None
    other_version: str | None
    silent: NotRequired[float]
    pid: NotRequired[int]
    agents: NotRequired[int]
    since: NotRequired[float]
    version: NotRequired[str]


class MachineRow(TypedDict):
    """The machine, as far as it limits the fleet."""

    disk_free: int | None
    disk_floor: int
    disk_low: bool
    load: float | None
    memory: int | None
    stall: float | None
    cgroups: bool


class VitalsRow(TypedDict):
    supervisor: SupervisorStatus
    counts: dict[str, int]
    alerts: AlertCounts
    accounts: list[ClosedAccountRow]
    holds: list[HoldRow]
    machine: MachineRow


class AlertRow(TypedDict):
    """A trouble that needs a person."""

    id: int
    key: str
    at: float
    level: str  # debug, info, warning or critical
    task: str | None
    message: str
    remedy: str  # what to type
    count: int  # how often it was raised in this episode
    details: JsonObject
    acked_at: float | None
    acked_by: str | None
    acked_why: str | None


class AlertLine(TypedDict):
    """An alert, or a crash that was recovered, as the screen of alerts lists it."""

    id: int | str
    key: str
    at: float
    level: str
    task: str | None
    message: str
    remedy: str
    count: int
    details: JsonObject
    acked_at: float | None
    acked_by: str | None
    acked_why: str | None


class CriticalMark(TypedDict):
    """A mark that is equal as long as the same critical alerts are open."""

    n: int
    ids: float
    moments: float


class DeathRow(TypedDict):
    """An agent that died without a stop request. `decided`: `message` holds the decision about its task."""

    seq: int
    at: float
    kind: str
    task: str
    run: str
    message: str
    reason: str | None
    decided: bool


class CrashRow(TypedDict):
    """An agent that died unexpectedly."""

    id: int
    at: float
    recorded_at: float
    worker: str | None
    task: str
    run: str
    agent: str | None
    outcome: str
    reason: str
    error_text: str
    workspace: str | None
    branch: str | None
    claim_released: bool
    restarted: bool
    decision: str
    recent: int
    issue: str | None  # of the outside tracker; None: the task has none


class DeliveryTest(TypedDict):
    """The answer of one alert target to a test delivery."""

    target: str
    ok: bool
    told: str


class UndeliveredRow(TypedDict):
    """A delivery that waits or was given up."""

    alert: int
    key: str
    transition: str
    level: str
    at: float
    target: str
    state: str
    attempts: int
    told: str | None


class HoldRow(TypedDict):
    """A hold of a provider, an account or the fleet. `until` is None if only an operator ends the hold."""

    hold: str
    scope: str
    name: str
    reason: str
    since: float
    until: float | None
    is_due: bool
    rounds: int
    failures: int
    probe: str | None


class AccountRow(TypedDict):
    """One login of an agent."""

    account: str  # AGENT/NAME
    agent: str
    name: str
    state: str  # open, parked or stopped
    until: float | None
    reason: str | None
    outcome: str | None
    at: float | None
    task: str | None
    configured: bool
    auto: bool


class ClosedAccountRow(TypedDict):
    """An account that is parked, or stopped (`until` is None)."""

    account: str
    until: float | None
    reason: str
    at: float


class SpentBudgetRow(TypedDict):
    """A shared budget that is spent. `until` is None if time alone does not end that."""

    key: str
    label: str | None
    reason: str
    until: float | None
    at: float


class WorkerStateRow(TypedDict):
    """A worker's row of the store."""

    name: str
    state: str
    reason: str
    since: float
    at_once: int
    task: str | None


class WorkerRow(TypedDict):
    """A named worker."""

    name: str
    state: str
    task: str | None
    agent: str | None
    account: str | None
    labels: dict[str, str]
    restart: bool | None
    recent_crashes: int
    crash_limit: int
    crash_window: float
    goes_on_at: float | None
    reason: str
    since: float | None
    configured: bool
    supervisor: NotRequired[bool]  # after start, stop and restart: True if a supervisor is running


class WorkerLine(WorkerRow):
    rests: str | None  # why a ready worker does not take a task


class AcknowledgedRow(TypedDict):
    """The alerts that a person acknowledged."""

    acknowledged: list[int]


class AccountResumedRow(TypedDict):
    """An account that is open again."""

    account: str
    resumed: list[str]  # tasks that waited for a person


class ReleasedRow(TypedDict):
    """Holds that a person released."""

    released: list[str]
    resumed: list[str]  # tasks that continue


class SnapshotTask(TypedDict):
    """A task as `top` lists it. Its prompt and reason are cut."""

    id: str
    seq: int
    state: str
    agent: str
    prompt: str
    branch: str | None
    reason: str | None
    outcome: str | None
    failure_reason: str | None
    pause_reason: str | None
    resume_after: float | None
    resume_attempts: int
    max_resumes: int | None
    not_before: float | None
    priority: int
    strategy: str
    parent_id: str | None
    created_at: float
    updated_at: float
    ended_at: float | None
    worker: str | None
    account: str | None
    labels: dict[str, str]
    workflow: str | None
    repo: str
    runs: int  # how many
    open_runs: list[str]
    needs: list[str]  # tasks that it still waits for
    issue: str | None  # that it waits for
    tokens: int | None
    cost_usd: float | None
    stage: StageRow | None
    running_gate: RunningGateRow | None  # the gate that runs now
    changed_files: int | None  # how many files an ended task changed; null: unknown
    refused_calls: int | None  # tool calls that the agent's CLI did not permit; null: unknown
    refused_first: list[str]  # the first of these calls
    merged_into: str | None  # the branch that `holdfast merge` merged it into
    why: str  # what the screen says
    last_sign: float | None  # when its agent last printed or reported something; None: it does not run


class SnapshotRow(TypedDict):
    """The fleet at one moment, as `top --once` prints it."""

    at: float
    supervisor: SupervisorStatus
    counts: dict[str, int]
    accounts: list[ClosedAccountRow]
    holds: list[HoldRow]
    machine: MachineRow
    alerts: list[AlertRow]  # open ones
    workers: list[WorkerRow]
    schedules: list[ScheduleRow]
    tasks: list[SnapshotTask]
    left_out: int  # older tasks that are not listed
