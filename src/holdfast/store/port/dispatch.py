"""What a store must do for money and tokens: what was used, by task, label and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.core.dispatch.spending import Purse
from holdfast.core.dispatch.spending_caps import Allowance, Cap, Entry, Used
from holdfast.core.model import Instant, Task
from holdfast.core.runs.outcome import RunUsage

if TYPE_CHECKING:
    from holdfast.store.port.transaction import Transaction


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
