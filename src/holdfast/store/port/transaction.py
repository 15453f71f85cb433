"""The contract of a store. `tests/contracts/store_contract.py` is the same contract as code. Every adapter passes it.

A transaction has one facet per noun. Every write that a supervisor makes about a running task carries the task's fence
and the supervisor's own host id. When no row matches, `NotOwner` is raised and nothing is written. Events are part of
the transaction: a change and its event commit together or not at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

from holdfast.base.instant import Instant
from holdfast.core.dispatch.terms import ANY_TERMS, NO_OPERATOR_BLOCKS, ClaimTerms, OperatorBlocks
from holdfast.core.model import Event, Level, Repo, Request, RequestKind, Run, StopWhy, Task, TaskSpec, Workspace
from holdfast.core.runs.intervals import AdaptiveTimeout
from holdfast.core.runs.outcome import Verdict
from holdfast.core.runs.policy import Decision
from holdfast.core.runs.preserve import Disposition
from holdfast.core.runs.retry_budgets import ResumeDecision, Spend
from holdfast.core.states import TaskState, WorkspaceState
from holdfast.core.tasks.requests import RequestAnswer, StopCause
from holdfast.store.port.values import NO_WORKFLOW_ROLE as NO_WORKFLOW_ROLE
from holdfast.store.port.values import AgentReports as AgentReports
from holdfast.store.port.values import Host as Host
from holdfast.store.port.values import Ownership as Ownership
from holdfast.store.port.values import RunRole as RunRole
from holdfast.store.port.values import Salvaged as Salvaged
from holdfast.store.port.values import stuck_alert as stuck_alert
from holdfast.store.port.values import unended_alert as unended_alert

if TYPE_CHECKING:  # a command that adds one task needs few of these facets, and has to start fast
    from holdfast.core.tasks.changes import TaskChange
    from holdfast.store.port.dispatch import AccountStates, Holds, UsageRows, Workers
    from holdfast.store.port.history import Crashes, Deliveries, OldRecords
    from holdfast.store.port.messages import Messages
    from holdfast.store.port.schedules import Schedules
    from holdfast.store.port.tasks import Results, StageProgress, TaskListKeys
    from holdfast.store.port.trackers import IssueLinks
    from holdfast.store.port.workspaces import CheckpointRows, PreservedWorkspaces, Salvages


class PausedTasks(Protocol):
    """The part of `Tasks` about paused tasks. A running task is paused by `Tasks.settle`.

    `auto` false: a task is due only if an operator paused it for a limited time.
    """

    def pause_waiting(self, task_id: str, by: str, why: str, until: float | None, now: Instant) -> None:
        """Pause a queued task, or turn a pause because of a limit into an operator's pause. `until`: when the task
        resumes by itself."""
        ...

    def resume(
        self, task_id: str, by: str, now: Instant, *, operator: bool = True, force: bool = False
    ) -> ResumeDecision:
        """Resume a paused task by one compare-and-set (R-RES-02). `operator` false: no operator asked, because the
        pause is over. If the resumes of the task are used up, a resume without an operator fails the task, and an
        operator's resume changes nothing. `force`: resume although the resumes are used up, or the account is parked or
        stopped."""
        ...

    def tasks_due_to_resume(self, now: Instant, *, auto: bool = True) -> Sequence[str]:
        """Return the ids of paused tasks whose pause is over."""
        ...

    def next_due_time(self, now: Instant, *, auto: bool = True) -> float | None:
        """Return the wall time at which the next wait of a task or the next parking of an account ends, or None."""
        ...


Row = dict[str, object]
T = TypeVar("T")


class Tasks(PausedTasks, Protocol):
    """Tasks: adding, claiming, settling, cancelling and retrying them."""

    def add(self, spec: TaskSpec, now: Instant, by: str = "") -> Task:
        """Record a new task. `by` is the user, schedule or tracker that queued it."""
        ...

    def get(self, task_id: str) -> Task: ...
    def claim(self, host_id: str, now: Instant, terms: ClaimTerms = ANY_TERMS) -> Task | None:
        """Claim the next task that may start on these terms, or return None."""
        ...

    def adopt(self, task: Task, host_id: str, now: Instant) -> Task:
        """Take a running task over from a supervisor that is gone: this raises the fence."""
        ...

    def set_base(
        self,
        ownership: Ownership,
        base_commit: str | None,
        branch: str | None,
        now: Instant,
        base_ref: str | None = None,
    ) -> None:
        """Record the base commit and the branch. `base_ref`: where the commit was found, if not at the ref that was
        asked for."""
        ...

    def settle(
        self,
        ownership: Ownership,
        run_id: str | None,
        verdict: Verdict,
        decision: Decision,
        disposition: Disposition | None,
        now: Instant,
    ) -> TaskState:
        """End the attempt. One transaction records the spends, settles the run, moves the task, cancels its
        dependents and decides what happens to its workspace."""
        ...

    def settle_member(
        self, ownership: Ownership, run_id: str, verdict: Verdict, decision: Decision, now: Instant
    ) -> None:
        """Settle the run of one member of a parallel stage, with its effects on its account and on the record of
        crashes. The task continues and spends no retry budget."""
        ...

    def clear_branch(self, task_id: str, now: Instant) -> None:
        """Clear the branch in the task's row: the branch had no commit of its own and was deleted, so no message may
        point people to it."""
        ...

    def cancel_waiting(self, task_id: str, by: str, why: str, now: Instant, *, subtasks: bool = True) -> None:
        """Cancel a waiting task and the tasks that need it. With `subtasks`, also cancel its subtasks. Subtasks that
        are running are asked to end."""
        ...

    def retry(self, task_id: str, by: str, fresh: bool, now: Instant) -> None: ...
    def update(self, task_id: str, change: TaskChange, by: str, now: Instant) -> Task:
        """Change a task that does not run, by one compare-and-set. Return the task before. Raise Conflict, with the
        command to type instead, if the task runs."""
        ...

    def drop_session(self, ownership: Ownership, account: str, now: Instant) -> None:
        """Let the next run begin a new session in the same workspace, because the account of the task's session is no
        longer in the settings."""
        ...

    def has_claimable_task(self, now: Instant, terms: ClaimTerms = ANY_TERMS) -> bool:
        """True if `claim` would find a task."""
        ...

    def running_elsewhere(self, host_id: str) -> Sequence[Task]: ...
    def running_here(self, host_id: str) -> Sequence[Task]: ...
    def unfinished_count(self, lasting: OperatorBlocks = NO_OPERATOR_BLOCKS) -> int:
        """Count the tasks that run or will continue without an operator. Tasks that only an operator can let start are
        left out."""
        ...

    def ledger(self, task: Task) -> Sequence[Spend]:
        """Return what the task has spent of its retry budgets in its current generation."""
        ...


class Runs(Protocol):
    """Runs of agents. Every write about a run is checked against the fence of its task."""

    def intend(
        self,
        ownership: Ownership,
        run_id: str,
        now: Instant,
        allotted: AdaptiveTimeout | None = None,
        account: str | None = None,
        role: RunRole = NO_WORKFLOW_ROLE,
    ) -> Run:
        """Record a run before its process starts. `allotted`: a timeout for this run, instead of the task's.
        `account`: the login that the agent of this run uses."""
        ...

    def recent_durations(self, repo_id: str, agent: str, limit: int) -> Sequence[float]:
        """Return how many seconds the latest completed runs of completed tasks took, newest first."""
        ...

    def open_run(self, task_id: str, member: str = "") -> Run | None: ...
    def open_runs(self, task_id: str) -> Sequence[Run]:
        """Return all runs that are not settled: the task's own, or those of the members of a parallel stage."""
        ...

    def has_member_run(self, task_id: str, stage: str, member: str, since: int) -> bool:
        """True if this member of the stage has had a run after number `since`, and after the last fresh start."""
        ...

    def open_run_ids(self) -> list[str]:
        """Return the ids of all runs that are not settled yet."""
        ...

    def record_start(self, ownership: Ownership, run_id: str, pid: int, now: Instant, note: str = "") -> None:
        """Record that the process runs. `note`: what could not be set up for the run, for example its cgroup."""
        ...

    def record_stop_request(
        self, ownership: Ownership, run_id: str, why: StopWhy, now: Instant, reason: str = ""
    ) -> None:
        """Record why the run is stopped, before the signal is sent. `reason` is the evidence, for people."""
        ...

    def reported(self, ownership: Ownership, run_id: str, news: AgentReports, now: Instant) -> Run:
        """Record an agent's reports with their events, and the offset up to which the channel was read. The first
        claimed result counts."""
        ...

    def ended(self, ownership: Ownership, run_id: str, verdict: Verdict, now: Instant, at: float | None = None) -> None:
        """Record the end of a run. `at`: when the agent's main process ended, if the keeper recorded that. A
        supervisor may learn of the end hours later."""
        ...

    def account_of_run(self, run_id: str) -> tuple[str, str] | None:
        """Return the agent and the account of a run, or None if the run has no account."""
        ...

    def verdict(self, run_id: str) -> Verdict: ...


class Workspaces(Protocol):
    """The ledger of repositories, workspaces and salvages."""

    def register_repo(self, path: str, common_dir: str, now: Instant) -> Repo: ...
    def move_repo(self, old: str, path: str, common_dir: str) -> Repo: ...
    def repo(self, repo_id: str) -> Repo: ...
    def repos(self) -> Sequence[Repo]: ...
    def intend(self, ownership: Ownership, workspace: Workspace, now: Instant) -> None: ...
    def get(self, workspace_id: str) -> Workspace: ...
    def current(self, task_id: str, member: str = "") -> Workspace | None: ...
    def all_current(self, task_id: str) -> Sequence[Workspace]:
        """Return the task's own workspace and those of the members of a parallel stage."""
        ...

    def branches_of(self, task_id: str, member: str) -> Sequence[str | None]:
        """Return the branches of all workspaces that the task or the member has had, oldest first."""
        ...

    def not_gone(self) -> Sequence[Workspace]: ...
    def to_clean(self, now: Instant) -> Sequence[Workspace]: ...
    def next_retry_time(self, now: Instant) -> float | None: ...
    def make_cleanups_due(self) -> None:
        """Make failed clean-ups due at once, for example when a supervisor starts."""
        ...

    def take_in(self, workspace: Workspace, reason: str, now: Instant) -> Workspace:
        """Record a tree that was found on disk but not in the ledger, as `ready`. It gets a new id if the ledger has
        used its id before."""
        ...

    def move(
        self,
        workspace: Workspace,
        state: WorkspaceState,
        reason: str,
        now: Instant,
        details: Mapping[str, object] | None = None,
    ) -> Workspace:
        """Move a workspace to another state. `details` (how, how long it took) are added to the event."""
        ...

    def ready(self, ownership: Ownership, workspace: Workspace, reason: str, now: Instant) -> Workspace: ...
    def record_container(self, ownership: Ownership, workspace: Workspace, container: str) -> None:
        """Record the container that the newest run in this workspace was given."""
        ...

    def dispose(self, workspace: Workspace, disposition: str, reason: str, now: Instant) -> None: ...
    def record_cleanup_failure(self, workspace: Workspace, why: str, retry_at: float, now: Instant) -> int: ...
    def record_salvage(self, workspace: Workspace, salvaged: Salvaged, now: Instant) -> None: ...
    def last_salvage(self, task_id: str) -> Salvaged | None: ...


class Hosts(Protocol):
    """Leases of supervisors, and what keeps a supervisor from starting new runs."""

    def open(self, host: Host, ttl: float, now: Instant) -> Sequence[str]:
        """Register this host and mark all others as lost. Return the lost ones. The caller holds the home's lock."""
        ...

    def beat(self, host_id: str, ttl: float, now: Instant) -> None: ...
    def require_active(self, host_id: str) -> None:
        """Raise LeaseLost if this host was marked as lost or has signed off."""
        ...

    def close(self, host_id: str, now: Instant, cause: StopCause = StopCause.DOWN) -> None: ...
    def hold(self, host_id: str, reason: str, data: Mapping[str, object], now: Instant, *, tell: bool) -> None:
        """Record why this host starts no new runs. `tell` false: emit no event, because only the reason of a hold
        changed."""
        ...

    def release(self, host_id: str, why: str, now: Instant) -> None: ...


class RequestRows(Protocol):
    """Requests of operators to the supervisor, and the answers."""

    def ask(
        self,
        kind: RequestKind,
        task_id: str | None,
        by: str,
        why: str,
        data: Mapping[str, object],
        now: Instant,
    ) -> int: ...
    def pending(self) -> Sequence[Request]: ...
    def answer(self, request_id: int, answer: RequestAnswer, now: Instant) -> None:
        """Record the answer to a request. The first answer stands."""
        ...


class Events(Protocol):
    """Events and alerts."""

    def emit(self, event: Event, now: Instant) -> None: ...
    def raise_alert(
        self,
        key: str,
        message: str,
        remedy: str,
        now: Instant,
        task_id: str | None = None,
        level: Level = Level.CRITICAL,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Raise an alert. One alert is open per key: raising it again only increases its count. A key that starts with
        `crash:` is about crashes."""
        ...

    def ack_alert(self, alert_id: int, by: str, now: Instant, why: str = "") -> None: ...
    def open_alerts(self) -> Sequence[tuple[int, Level]]: ...
    def close_alert(self, key: str, by: str, now: Instant) -> None:
        """Close the alert with this key, because its cause is over. Do nothing if no such alert is open."""
        ...


class Transaction(Protocol):
    """All facets over one snapshot. They commit together."""

    def savepoint(self) -> AbstractContextManager[object]:
        """Return a context manager. If its block raises, the changes of the block are undone, and the rest of the
        transaction stays."""
        ...

    @property
    def tasks(self) -> Tasks: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def workspaces(self) -> Workspaces: ...
    @property
    def preserved(self) -> PreservedWorkspaces: ...
    @property
    def salvages(self) -> Salvages: ...
    @property
    def hosts(self) -> Hosts: ...
    @property
    def requests(self) -> RequestRows: ...
    @property
    def events(self) -> Events: ...
    @property
    def history(self) -> OldRecords: ...
    @property
    def accounts(self) -> AccountStates: ...
    @property
    def checkpoints(self) -> CheckpointRows: ...
    @property
    def holds(self) -> Holds: ...
    @property
    def crashes(self) -> Crashes: ...
    @property
    def deliveries(self) -> Deliveries: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def issue_links(self) -> IssueLinks: ...
    @property
    def spending(self) -> UsageRows: ...
    @property
    def stages(self) -> StageProgress: ...
    @property
    def results(self) -> Results: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def task_lists(self) -> TaskListKeys: ...
    @property
    def schedules(self) -> Schedules: ...


Operation = Callable[[Transaction], T]


class Store(Protocol):
    """The store for short-lived processes: one transaction at a time, durable when `write` returns."""

    def write(self, operation: Operation[T], operation_id: str | None = None) -> T: ...
    def was_done(self, operation_id: str) -> bool: ...
    def view(self, name: str, **parameters: object) -> list[Row]: ...
    def data_version(self) -> int: ...
    def integrity_problems(self) -> list[str]: ...
    def backup(self, reason: str) -> str: ...
    def close(self) -> None: ...


class Writer(Protocol):
    """The store's writer for the supervisor: many callers, one thread, group commit. An awaited write is durable.

    An operation may run a second time: if another operation of its batch is refused, the transaction is rolled back and
    the rest is run again. So an operation must have no effect outside the transaction.
    """

    def write(self, operation: Operation[T], operation_id: str | None = None) -> Awaitable[T]: ...
    def close(self) -> None: ...
