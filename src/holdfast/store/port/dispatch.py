"""The store's contract for dispatch: spending, holds, accounts and workers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.base.dataclass import dataclass
from holdfast.core.dispatch.spending_caps import SpendingCap
from holdfast.core.model import Task

if TYPE_CHECKING:  # `add` imports this module, and needs none of these
    from holdfast.base.instant import Instant
    from holdfast.core.dispatch.accounts import ClosedAccount
    from holdfast.core.dispatch.holds import Hold, Scope
    from holdfast.core.dispatch.mass_death import Death
    from holdfast.core.dispatch.spending import BindingCap
    from holdfast.core.dispatch.spending_caps import SharedCap, UsageEntry, UsedSpending
    from holdfast.core.dispatch.workers import CrashDecision, WorkerRecord
    from holdfast.core.runs.outcome import RunUsage
    from holdfast.store.port.transaction import Transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class SpentBudget:
    """A shared spending cap of which nothing is left at present."""

    key: str
    label: str | None
    reason: str
    until: float | None  # wall time at which the sliding window frees some again. None: the cap has no window
    at: float


def budget_alert(key: str) -> str:
    """Return the key of the alert that a shared spending cap is reached. The alert is closed when some of the
    cap is left again."""
    return f"budget:{key}"


class UsageRows(Protocol):
    """Used money and tokens, by task, label and time. The records do not change: a cap for a period counts the records
    of that period."""

    def record(self, task: Task, run_id: str, told: RunUsage, session_id: str | None, now: Instant) -> bool:
        """Record what a run used, in the transaction of its end. `session_id`: the agent reports the sum of that
        session, so only the increase is counted. False if the run was recorded before."""
        ...

    def record_crossed_caps(self, run_id: str, keys: Sequence[str]) -> None:
        """Record that these shared spending caps were reached with this run."""
        ...

    def crossed(self, run_id: str) -> Sequence[str]: ...
    def of_task(self, task: Task) -> UsedSpending:
        """Return what the task used in its current generation: an operator's retry starts from zero. For the first
        task of a family, this includes all its subtasks."""
        ...

    def of_runs_after(self, task: Task, number: int) -> UsedSpending:
        """Return the usage of those runs of the task's present generation whose number is higher than `number`."""
        ...

    def root_of(self, task: Task) -> str:
        """Return the first task of the task's family: the task itself, if it is not a subtask."""
        ...

    def of_session(self, task_id: str, session_id: str) -> RunUsage:
        """Return the usage that the agent's session had reported when its last run ended."""
        ...

    def last_day(self, now: Instant) -> Sequence[UsageEntry]:
        """Return the usage of every run of the last 24 hours."""
        ...

    def total_of(self, label: str) -> UsedSpending: ...
    def spent(self) -> Sequence[SpentBudget]: ...
    def begin(self, allowance: SharedCap, used: UsedSpending, until: float | None, now: Instant) -> None:
        """Record that a shared spending cap is reached, with one event and one alert per episode."""
        ...

    def end(self, key: str, why: str, now: Instant) -> None:
        """Record that some of a shared spending cap is left again."""
        ...

    def change_cap(self, task_id: str, cap: SpendingCap, by: str, now: Instant, *, is_root: bool = False) -> None:
        """Change the spending cap of a paused task, for an operator. A part of `cap` that is None stays as it is.
        `is_root`: the task is the first of a subtask's family, and may be in any state."""
        ...


def cap_of(task: Task) -> SpendingCap:
    return SpendingCap(usd=task.spec.budget.usd, tokens=task.spec.budget.tokens)


def allowances_of(tx: Transaction, task: Task) -> list[BindingCap]:
    """Return the spending caps that bind a task: its own, and for a subtask also that of the first task of its
    family. The whole family shares that cap. Otherwise an agent that splits its work would have one cap per subtask."""
    if task.spec.parent_id is None and not cap_of(task):
        return []
    from holdfast.core.dispatch.spending import BindingCap

    task, root_id = tx.tasks.get(task.id), tx.spending.root_of(task)
    own = BindingCap(cap=cap_of(task), used=tx.spending.of_task(task), is_shared=root_id == task.id)
    found = [own] if own.cap else []
    if root_id != task.id:
        root = tx.tasks.get(root_id)
        whose = f" of task {root_id} and its subtasks"
        shared = BindingCap(cap=cap_of(root), used=tx.spending.of_task(root), whose=whose, is_shared=True)
        found += [shared] if shared.cap else []
    return found


def allowance_of_stage(tx: Transaction, task: Task) -> BindingCap | None:
    """Return the spending cap of the present visit of the task's stage. None: the stage has no cap, or the workflow is
    over."""
    if not any(stage.budget for stage in task.spec.stages):
        return None
    from holdfast.core.dispatch.spending import BindingCap

    task = tx.tasks.get(task.id)
    progress, stages = task.progress, task.spec.stages
    if progress.stage >= len(stages) or not (stage := stages[progress.stage]).budget:
        return None
    used = tx.spending.of_runs_after(task, max(progress.since, progress.paid))
    return BindingCap(cap=stage.budget, used=used, whose=f" of stage '{stage.name}'")


MASS_DEATH_ALERT = "mass-death"


def provider_alert(provider: str) -> str:
    """Return the key of the alert that a provider has been down for too long. The alert is closed when the provider
    answers."""
    return f"provider:{provider}"


class Holds(Protocol):
    """Holds: dispatch is held back until a probe succeeds, for a provider, for an account, or for all after a mass
    death.

    core/dispatch/holds.py decides. This facet records the decisions.
    """

    def all(self) -> Sequence[Hold]:
        """Return all holds, each with the current state of its probe."""
        ...

    def keep(self, hold: Hold, now: Instant) -> None:
        """Record the hold as it is from now on. An event is emitted when the hold begins to hold dispatch back, does so
        again, or has a new probe."""
        ...

    def release(
        self, scope: Scope, name: str, why: str, now: Instant, *, tell: bool = True, forget: bool = False
    ) -> bool:
        """Release a hold and close its alert. False if there was no hold. `tell` false: emit no event, because another
        hold applies and has emitted one. `forget`: an operator releases the hold, so that its row is deleted even after
        a mass death."""
        ...

    def free(self, task_id: str) -> None:
        """Remove the task as a probe of any hold."""
        ...

    def count_agents_since(self, account: str, since: Instant) -> int:
        """Return how many of the agents that work under the account (agent/name) began after `since`."""
        ...

    def account_of(self, task_id: str) -> str | None:
        """Return the account of the task's newest run."""
        ...

    def pause_waiting(self, provider: str, reason: str, now: Instant) -> Sequence[str]:
        """Pause every task that waits only for this provider, until an operator resumes it. Return their ids."""
        ...

    def paused_by_outage(self, provider: str) -> Sequence[str]:
        """Return the ids of the tasks that are paused because this provider was down for too long."""
        ...

    def record_death(self, run_id: str, task_id: str, at: float, now: Instant) -> None:
        """Record that an agent died without a stop request, in the transaction that records its end."""
        ...

    def death(self, run_id: str) -> tuple[Death, Instant] | None:
        """Return the recorded death of a run, with the moment at which it was recorded."""
        ...

    def deaths_around(self, at: float, window: float) -> Sequence[Death]: ...
    def ran(self, agents: Collection[str], since: float) -> tuple[frozenset[str], frozenset[str]]:
        """Return two sets of task ids: tasks whose agents live now, and tasks of which one of `agents` ended after
        `since`, in any way."""
        ...

    def mark_mass_death(self, run_ids: Sequence[str], now: Instant) -> None:
        """Mark these deaths as part of a mass death, and give their tasks back the retry budgets that these deaths
        spent."""
        ...


def account_alert(full_name: str) -> str:
    """Return the key of the alert that an account does not work. The alert is closed when a run under the account
    completes."""
    return f"account:{full_name}"


def limit_alert(full_name: str) -> str:
    """Return the key of the alert that an account waits for a limit without a known end. The alert is closed when a
    model answers under the account, or when the end is known."""
    return f"limit:{full_name}"


class AccountStates(Protocol):
    """Accounts that are parked or stopped. `tasks.settle` parks or stops them."""

    def unavailable(self) -> Sequence[ClosedAccount]:
        """Return the accounts that are parked or stopped.

        A parked account whose time is over is included until `open_due` opens it and begins the hold for the probe.
        """
        ...

    def open_due(self, now: Instant) -> Sequence[str]:
        """Open the parked accounts whose time is over. Return their full names."""
        ...

    def resume(self, agent: str, name: str, by: str, now: Instant) -> Sequence[str]:
        """Open a parked or stopped account for an operator. Return the tasks that were paused because of it and wait
        for a person."""
        ...

    def account_blocking(self, task: Task, now: Instant) -> ClosedAccount | None:
        """Return the account whose parking or stop keeps a paused task waiting, or None."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerCrash:
    """A run of a worker that ended in a crash, and what follows for the worker."""

    worker: str
    task_id: str
    run_id: str
    decision: CrashDecision
    why: str  # how the run ended
    recovered: str  # what became of the task
    error_tail: str = ""
    window: float = 0.0  # seconds in which the worker's crashes were counted


class Workers(Protocol):
    """Named long-lived workers: their states, their crashes, and the tasks that wait for one.

    Every change of a worker's state is a compare-and-set, and emits an event.
    """

    def get(self, name: str) -> WorkerRecord | None: ...
    def all(self) -> Sequence[WorkerRecord]: ...
    def crashes(self, name: str) -> Sequence[Instant]:
        """Return the crashes since an operator last started the worker, oldest first."""
        ...

    def enrol(self, names: Sequence[str], now: Instant) -> None:
        """Record that the settings have exactly these workers. New and returning ones become ready, the others are
        retired."""
        ...

    def start(self, name: str, by: str, now: Instant) -> WorkerRecord:
        """Start a stopped or benched worker for an operator and forgive its crashes. Raise Conflict if it is ready."""
        ...

    def restart(self, name: str, by: str, now: Instant) -> WorkerRecord:
        """Start a worker like `start`. If it is ready, only forgive its crashes instead of raising Conflict."""
        ...

    def stop(self, name: str, by: str, now: Instant, *, at_once: bool = False) -> WorkerRecord:
        """Stop a worker: it claims no more tasks, and tasks that were kept for it are released. `at_once`: its
        current task is ended."""
        ...

    def record_crash(self, crash: WorkerCrash, now: Instant) -> None:
        """Record a crash, in the transaction that settles the run. Do nothing if the crash of this run was recorded
        before."""
        ...

    def unbench(self, record: WorkerRecord, now: Instant) -> None:
        """Make a benched worker ready again after a whole crash window without a crash."""
        ...

    def forgive_crashes(self, run_ids: Sequence[str], now: Instant) -> None:
        """Forgive crashes that were part of a mass death. They no longer count, and workers that they stopped are
        ready again."""
        ...
