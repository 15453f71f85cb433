"""What a store must do. `tests/contracts/store_contract.py` is the same promise as code; every adapter passes it.

A transaction has one facet per noun. Every write that a supervisor makes about a running task carries the task's
fence and its own incarnation; when no row matches, the answer is `NotOwner` and nothing is written.
Events are part of the transaction: a change and its event commit together or not at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from holdfast.base.instant import Instant
from holdfast.core.dispatch.terms import ANY, NO_OPERATORS, ForOperators, Terms
from holdfast.core.model import Event, Level, Repo, Request, RequestKind, Run, StopWhy, Task, TaskSpec, Workspace
from holdfast.core.runs.intervals import Allotted
from holdfast.core.runs.outcome import Verdict
from holdfast.core.runs.policy import Decision
from holdfast.core.runs.preserve import Disposition
from holdfast.core.runs.resume import ResumeDecision
from holdfast.core.runs.retry_budgets import Spend
from holdfast.core.states import TaskState, WorkspaceState
from holdfast.core.tasks.requests import RequestAnswer
from holdfast.store.port.values import ALONE as ALONE
from holdfast.store.port.values import AgentNews as AgentNews
from holdfast.store.port.values import Grip as Grip
from holdfast.store.port.values import Host as Host
from holdfast.store.port.values import Role as Role
from holdfast.store.port.values import Salvaged as Salvaged
from holdfast.store.port.values import stuck_alert as stuck_alert
from holdfast.store.port.values import unended_alert as unended_alert

if TYPE_CHECKING:  # whoever adds one task needs few of them, and has to start fast
    from holdfast.store.port.dispatch import Accounts, Holds, Spending, Workers
    from holdfast.store.port.history import Crashes, History, Notices
    from holdfast.store.port.schedules import Schedules
    from holdfast.store.port.tasks import Intake, Results, Staging
    from holdfast.store.port.trackers import Links
    from holdfast.store.port.workspaces import Checkpoints, Keeps, Salvages


class Pausing(Protocol):
    """A running task is paused by `Tasks.settle`. `auto` false: only what an operator paused for a time is ever due."""

    def pause_waiting(self, task_id: str, by: str, why: str, until: float | None, now: Instant) -> None:
        """Pause a queued task, or make the pause of a limit the operator's. `until`: when it goes on by itself."""
        ...

    def resume(
        self, task_id: str, by: str, now: Instant, *, operator: bool = True, force: bool = False
    ) -> ResumeDecision:
        """R-RES-02: one compare-and-set, whoever asks. `operator` false: nobody's word, only its time has come.
        `force`: beyond the limit, and past a shut account."""
        ...

    def due_to_resume(self, now: Instant, *, auto: bool = True) -> Sequence[str]: ...
    def next_due(self, now: Instant, *, auto: bool = True) -> float | None: ...


Row = dict[str, object]
T = TypeVar("T")


class Tasks(Pausing, Protocol):
    def add(self, spec: TaskSpec, now: Instant) -> Task: ...
    def get(self, task_id: str) -> Task: ...
    def claim(self, host_id: str, now: Instant, terms: Terms = ANY) -> Task | None:
        """The next task that may start on these terms."""
        ...

    def adopt(self, task: Task, host_id: str, now: Instant) -> Task: ...
    def set_base(
        self, grip: Grip, base_commit: str | None, branch: str | None, now: Instant, base_ref: str | None = None
    ) -> None:
        """`base_ref`: where that commit was found, if it is not what was asked for."""
        ...

    def settle(
        self,
        grip: Grip,
        run_id: str | None,
        verdict: Verdict,
        decision: Decision,
        disposition: Disposition | None,
        now: Instant,
    ) -> TaskState:
        """End the attempt: spends, run settled, task moved, dependents cancelled, workspace's fate: at once."""
        ...

    def settle_member(self, grip: Grip, run_id: str, verdict: Verdict, decision: Decision, now: Instant) -> None:
        """Of a parallel stage: its run is settled, with what its end means for its account and for the record of
        crashes. The task goes on, and pays nothing."""
        ...

    def forget_branch(self, task_id: str, now: Instant) -> None:
        """Its branch had no commit of its own and was deleted: nobody is to be sent there."""
        ...

    def cancel_waiting(self, task_id: str, by: str, why: str, now: Instant, *, subtasks: bool = True) -> None:
        """With what waits for it, and with its subtasks, unless they are to go on: those that run are asked to end."""
        ...

    def retry(self, task_id: str, by: str, fresh: bool, now: Instant) -> None: ...
    def leave_session(self, grip: Grip, account: str, now: Instant) -> None:
        """Its session was of an account that is gone: the next run begins anew, in the same workspace."""
        ...

    def something_waits(self, now: Instant, terms: Terms = ANY) -> bool:
        """Whether `claim` would find a task."""
        ...

    def running_elsewhere(self, host_id: str) -> Sequence[Task]: ...
    def running_here(self, host_id: str) -> Sequence[Task]: ...
    def unfinished_count(self, lasting: ForOperators = NO_OPERATORS) -> int:
        """What runs, or will go on by itself: not who waits for what only an operator can mend."""
        ...

    def ledger(self, task: Task) -> Sequence[Spend]: ...


class Runs(Protocol):
    def intend(
        self,
        grip: Grip,
        run_id: str,
        now: Instant,
        allotted: Allotted | None = None,
        account: str | None = None,
        role: Role = ALONE,
    ) -> Run:
        """`allotted` is a timeout of its own; without it the task's holds. `account` is the login of its agent."""
        ...

    def recent_durations(self, repo_id: str, agent: str, limit: int) -> Sequence[float]:
        """Seconds that the latest completed runs of completed tasks took, newest first."""
        ...

    def open_run(self, task_id: str, member: str = "") -> Run | None: ...
    def open_runs(self, task_id: str) -> Sequence[Run]:
        """All that are not settled: the task's own, or those of the members of a parallel stage."""
        ...

    def has_had(self, task_id: str, stage: str, member: str, since: int) -> bool:
        """Whether this member of the stage has had a run after that number, and since the last fresh start."""
        ...

    def open_ids(self) -> list[str]:
        """Every run that is not settled yet."""
        ...

    def started(self, grip: Grip, run_id: str, pid: int, now: Instant, note: str = "") -> None:
        """`note`: what could not be done for it (a cgroup that could not be made, say)."""
        ...

    def stopping(self, grip: Grip, run_id: str, why: StopWhy, now: Instant, reason: str = "") -> None:
        """Durable before the signal. `reason` is the evidence, for people."""
        ...

    def reported(self, grip: Grip, run_id: str, news: AgentNews, now: Instant) -> Run:
        """Take an agent's reports in, with their events, and how far they were read. The first claim stands."""
        ...

    def ended(self, grip: Grip, run_id: str, verdict: Verdict, now: Instant, at: float | None = None) -> None:
        """`at`: when its leader ended, if its keeper knew; a supervisor may learn of it hours later."""
        ...

    def under(self, run_id: str) -> tuple[str, str] | None:
        """Its agent and the account that it runs under, if it has one."""
        ...

    def verdict(self, run_id: str) -> Verdict: ...


class Workspaces(Protocol):
    def register_repo(self, path: str, common_dir: str, now: Instant) -> Repo: ...
    def move_repo(self, old: str, path: str, common_dir: str) -> Repo: ...
    def repo(self, repo_id: str) -> Repo: ...
    def repos(self) -> Sequence[Repo]: ...
    def intend(self, grip: Grip, workspace: Workspace, now: Instant) -> None: ...
    def get(self, workspace_id: str) -> Workspace: ...
    def current(self, task_id: str, member: str = "") -> Workspace | None: ...
    def all_current(self, task_id: str) -> Sequence[Workspace]:
        """The task's own, and those of the members of a parallel stage."""
        ...

    def branches_of(self, task_id: str, member: str) -> Sequence[str | None]:
        """Of all workspaces that it has had, the oldest first."""
        ...

    def open_ones(self) -> Sequence[Workspace]: ...
    def to_clean(self, now: Instant) -> Sequence[Workspace]: ...
    def next_retry(self, now: Instant) -> float | None: ...
    def retry_at_once(self) -> None:
        """A fresh start: clean-ups that failed before do not wait for their time."""
        ...

    def take_in(self, workspace: Workspace, reason: str, now: Instant) -> Workspace:
        """A tree that the ledger had lost: `ready` again. Its id is fresh if the ledger has used it up."""
        ...

    def move(
        self,
        workspace: Workspace,
        state: WorkspaceState,
        reason: str,
        now: Instant,
        details: Mapping[str, object] | None = None,
    ) -> Workspace:
        """`details` (how, how long it took) go into the event."""
        ...

    def ready(self, grip: Grip, workspace: Workspace, reason: str, now: Instant) -> Workspace: ...
    def enclosed(self, grip: Grip, workspace: Workspace, container: str) -> None:
        """The container that its newest run was given."""
        ...

    def dispose(self, workspace: Workspace, disposition: str, reason: str, now: Instant) -> None: ...
    def cleanup_failed(self, workspace: Workspace, why: str, retry_at: float, now: Instant) -> int: ...
    def record_salvage(self, workspace: Workspace, salvaged: Salvaged, now: Instant) -> None: ...
    def last_salvage(self, task_id: str) -> Salvaged | None: ...


class Hosts(Protocol):
    def open(self, host: Host, ttl: float, now: Instant) -> Sequence[str]:
        """Register this incarnation and mark all others lost (the caller holds the home's lock); returns the lost."""
        ...

    def beat(self, host_id: str, ttl: float, now: Instant) -> None: ...
    def require(self, host_id: str) -> None:
        """LeaseLost when this incarnation was declared lost, or has signed off."""
        ...

    def close(self, host_id: str, now: Instant) -> None: ...
    def hold(self, host_id: str, reason: str, data: Mapping[str, object], now: Instant, *, tell: bool) -> None:
        """This host starts nothing new, and why. `tell` is false when only the reason of an episode changed."""
        ...

    def release(self, host_id: str, why: str, now: Instant) -> None: ...


class Requests(Protocol):
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
        """One open alert per key: a second one only counts. A key that begins with `crash:` is about crashes."""
        ...

    def ack_alert(self, alert_id: int, by: str, now: Instant, why: str = "") -> None: ...
    def open_alerts(self) -> Sequence[tuple[int, Level]]: ...
    def close_alert(self, key: str, by: str, now: Instant) -> None:
        """Its cause is over: nobody has to look any more. Nothing happens where none is open."""
        ...


class Transaction(Protocol):
    """All facets over one snapshot; commits as a whole."""

    @property
    def tasks(self) -> Tasks: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def workspaces(self) -> Workspaces: ...
    @property
    def keeps(self) -> Keeps: ...
    @property
    def salvages(self) -> Salvages: ...
    @property
    def hosts(self) -> Hosts: ...
    @property
    def requests(self) -> Requests: ...
    @property
    def events(self) -> Events: ...
    @property
    def history(self) -> History: ...
    @property
    def accounts(self) -> Accounts: ...
    @property
    def checkpoints(self) -> Checkpoints: ...
    @property
    def holds(self) -> Holds: ...
    @property
    def crashes(self) -> Crashes: ...
    @property
    def notices(self) -> Notices: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def links(self) -> Links: ...
    @property
    def spending(self) -> Spending: ...
    @property
    def staging(self) -> Staging: ...
    @property
    def results(self) -> Results: ...
    @property
    def intake(self) -> Intake: ...
    @property
    def schedules(self) -> Schedules: ...


Operation = Callable[[Transaction], T]


class Store(Protocol):
    """For short-lived processes: one transaction at a time, durable when `write` returns."""

    def write(self, operation: Operation[T], operation_id: str | None = None) -> T: ...
    def was_done(self, operation_id: str) -> bool: ...
    def view(self, name: str, **parameters: object) -> list[Row]: ...
    def data_version(self) -> int: ...
    def integrity_problems(self) -> list[str]: ...
    def backup(self, reason: str) -> str: ...
    def close(self) -> None: ...


class Writer(Protocol):
    """For the supervisor: many callers, one thread, group commit. An awaited write is durable.

    An operation may run a second time (nothing is left of the first) when another of its batch was refused: it changes
    nothing but the transaction.
    """

    def write(self, operation: Operation[T], operation_id: str | None = None) -> Awaitable[T]: ...
    def close(self) -> None: ...
