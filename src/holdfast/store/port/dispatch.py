"""What a store must do for money and tokens: what was used, by task, label and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.base.instant import Instant
from holdfast.core.dispatch.spending import Purse
from holdfast.core.dispatch.spending_caps import Allowance, Cap, Entry, Used
from holdfast.core.model import Task
from holdfast.core.runs.outcome import RunUsage

if TYPE_CHECKING:
    from holdfast.store.port.transaction import Transaction
from collections.abc import Collection

from holdfast.core.dispatch.accounts import ShutAccount
from holdfast.core.dispatch.holds import Hold, Scope
from holdfast.core.dispatch.mass_death import Death
from holdfast.core.dispatch.workers import CrashDecision, WorkerRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class SpentBudget:
    """A shared budget of which nothing is left at present."""

    key: str
    label: str | None
    reason: str
    until: float | None  # wall time at which it slides free; None: it does not
    at: float


def budget_alert(key: str) -> str:
    """The key of the alert that a shared budget is spent; it is closed when there is some again."""
    return f"budget:{key}"


class Spending(Protocol):
    """Money and tokens: what was used, by task, label and time. What is recorded stays; only windows slide."""

    def record(self, task: Task, run_id: str, told: RunUsage, session_id: str | None, now: Instant) -> bool:
        """What a run took, in the transaction of its end. `session_id`: its agent tells the sum of that session, so
        only what came on top counts. False: it was recorded before."""
        ...

    def crosses(self, run_id: str, keys: Sequence[str]) -> None:
        """With this run these shared budgets were used up."""
        ...

    def crossed(self, run_id: str) -> Sequence[str]: ...
    def of_task(self, task: Task) -> Used:
        """In its present generation: an operator's retry starts afresh. Of the first task of a family, with all of its
        subtasks."""
        ...

    def root_of(self, task: Task) -> str:
        """The first task of its family: itself, if it is nobody's subtask."""
        ...

    def of_session(self, task_id: str, session_id: str) -> RunUsage:
        """What it had told when its last run ended."""
        ...

    def lately(self, now: Instant) -> Sequence[Entry]:
        """Every run of the last 24 hours."""
        ...

    def total_of(self, label: str) -> Used: ...
    def spent(self) -> Sequence[SpentBudget]: ...
    def begin(self, allowance: Allowance, used: Used, until: float | None, now: Instant) -> None:
        """It is spent: one event and one alert per episode."""
        ...

    def end(self, key: str, why: str, now: Instant) -> None:
        """There is some again."""
        ...

    def allow(self, task_id: str, cap: Cap, by: str, now: Instant, *, is_root: bool = False) -> None:
        """An operator gives a paused task another budget. None in `cap`: that part stays as it is. `is_root`: for a
        subtask's sake, wherever the first task of its family stands."""
        ...


def cap_of(task: Task) -> Cap:
    return Cap(usd=task.spec.budget.usd, tokens=task.spec.budget.tokens)


def purses_of(tx: Transaction, task: Task) -> list[Purse]:
    """The budgets that bind it: its own, and, if it is a subtask, that of the first task above it, on which all of the
    family draw: otherwise an agent that splits its work up would have as many budgets as subtasks."""
    if task.spec.parent_id is None and not cap_of(task):
        return []
    task, root_id = tx.tasks.get(task.id), tx.spending.root_of(task)
    own = Purse(cap=cap_of(task), used=tx.spending.of_task(task), is_shared=root_id == task.id)
    found = [own] if own.cap else []
    if root_id != task.id:
        root = tx.tasks.get(root_id)
        whose = f" of task {root_id} and its subtasks"
        shared = Purse(cap=cap_of(root), used=tx.spending.of_task(root), whose=whose, is_shared=True)
        found += [shared] if shared.cap else []
    return found


MASS_DEATH_ALERT = "mass-death"


def provider_alert(provider: str) -> str:
    """The key of the alert that a provider stayed away for too long; it is closed when it answers."""
    return f"provider:{provider}"


class Holds(Protocol):
    """Dispatch that is held back until a probe says otherwise. core/dispatch/holds.py decides; this keeps it."""

    def all(self) -> Sequence[Hold]:
        """Each with where its probe stands now."""
        ...

    def keep(self, hold: Hold, now: Instant) -> None:
        """As it stands from now on. An event tells when it begins to hold back, or does so anew, or who goes first."""
        ...

    def release(
        self, scope: Scope, name: str, why: str, now: Instant, *, tell: bool = True, forget: bool = False
    ) -> bool:
        """Nothing is held back any more, and its alert is closed. False: nothing was. `tell` is false where something
        else holds it back now, and tells so. `forget`: not even a mass death is remembered; an operator vouches."""
        ...

    def free(self, task_id: str) -> None:
        """It is nobody's probe any more."""
        ...

    def crowd(self, account: str, since: Instant) -> int:
        """How many agents work under it (agent/name) that began after that moment."""
        ...

    def account_of(self, task_id: str) -> str | None:
        """The account of its newest run."""
        ...

    def pause_waiting(self, provider: str, reason: str, now: Instant) -> Sequence[str]:
        """Every task that waits for this provider and nothing else is an operator's now."""
        ...

    def paused_by_outage(self, provider: str) -> Sequence[str]:
        """Tasks that are paused because it stayed away."""
        ...

    def died(self, run_id: str, task_id: str, at: float, now: Instant) -> None:
        """An agent died, and nobody asked for it. Part of the transaction that records its end."""
        ...

    def death(self, run_id: str) -> tuple[Death, Instant] | None:
        """With the moment at which we knew."""
        ...

    def deaths_around(self, at: float, window: float) -> Sequence[Death]: ...
    def ran(self, agents: Collection[str], since: float) -> tuple[frozenset[str], frozenset[str]]:
        """The tasks whose agents live now; and those of which one ended since then, in whatever way."""
        ...

    def of_many(self, run_ids: Sequence[str], now: Instant) -> None:
        """These deaths are one trouble of the machine: what they had cost their tasks is given back."""
        ...


def account_alert(full_name: str) -> str:
    """The key of the alert that an account does not work; it is closed when a run under it completes."""
    return f"account:{full_name}"


class Accounts(Protocol):
    """Accounts that are not used for a while; they are shut by `tasks.settle`."""

    def shut(self, now: Instant) -> Sequence[ShutAccount]: ...
    def open_due(self, now: Instant) -> Sequence[str]:
        """Those whose time has come are open again; their full names."""
        ...

    def resume(self, agent: str, name: str, by: str, now: Instant) -> Sequence[str]:
        """An operator opens one. The tasks that were paused because of it and wait for a person."""
        ...

    def keeping_back(self, task: Task, now: Instant) -> ShutAccount | None:
        """The shut account because of which a paused task waits."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerCrash:
    """A run of a worker that ended in a crash, and what follows for the worker."""

    worker: str
    task_id: str
    run_id: str
    decision: CrashDecision
    why: str  # how the run ended
    recovered: str  # what became of its task
    error_tail: str = ""
    window: float = 0.0  # in which its crashes were counted


class Workers(Protocol):
    """Every move is a compare-and-set with its event."""

    def get(self, name: str) -> WorkerRecord | None: ...
    def all(self) -> Sequence[WorkerRecord]: ...
    def crashes(self, name: str) -> Sequence[Instant]:
        """Since an operator started it last, in the order in which they happened."""
        ...

    def enrol(self, names: Sequence[str], now: Instant) -> None:
        """The settings have exactly these: new ones are ready, those that came back too, the others are retired."""
        ...

    def start(self, name: str, by: str, now: Instant) -> WorkerRecord:
        """An operator's word: stopped or benched → ready, its crashes forgiven. Conflict when it is ready."""
        ...

    def restart(self, name: str, by: str, now: Instant) -> WorkerRecord:
        """The same, and no conflict when it is ready: then only its crashes are forgiven."""
        ...

    def stop(self, name: str, by: str, now: Instant, *, at_once: bool = False) -> WorkerRecord:
        """It takes no task any more, and those that were kept for it are free. `at_once`: its present one is ended."""
        ...

    def crashed(self, crash: WorkerCrash, now: Instant) -> None:
        """In the transaction that settles the run. A run that was told of before changes nothing."""
        ...

    def quiet(self, record: WorkerRecord, now: Instant) -> None:
        """A benched worker was quiet for a whole window: ready again."""
        ...

    def pardon(self, run_ids: Sequence[str], now: Instant) -> None:
        """These crashes were nobody's fault (a mass death): they count no more, and whom they stopped goes on."""
        ...
