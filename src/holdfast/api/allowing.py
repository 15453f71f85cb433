"""An operator's word on a budget of money or tokens: a paused task goes on only within one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.base import clock
from holdfast.base.errors import Conflict, UsageError
from holdfast.core.dispatch.spending_caps import Cap, labels_of
from holdfast.core.model import PauseReason, Task
from holdfast.store.port.dispatch import cap_of, purses_of

if TYPE_CHECKING:
    from holdfast.store.port.transaction import Transaction


def allow_or_refuse(tx: Transaction, task_id: str, given: Cap, by: str, *, force: bool) -> None:
    """Before a resume, in its transaction: another budget is recorded; without one left, nothing goes on.

    It would only be paused again, one resume poorer.
    """
    if given.usd is not None and not 0 < given.usd < math.inf:  # false for what is no number, too
        raise UsageError("A budget (--budget-usd) is an amount of dollars above 0. Nothing was changed.")
    if given:
        _refuse_untold(tx.tasks.get(task_id), given)
        tx.spending.allow(task_id, given, by, clock.now())
        _allow_family(tx, tx.tasks.get(task_id), given, by)
    task = tx.tasks.get(task_id)
    _refuse_spent(tx, task)
    if task.pause_reason is PauseReason.BUDGET and not force:
        _refuse_shared(tx, task)


def _refuse_untold(task: Task, given: Cap) -> None:
    from holdfast.agents.registry import AGENTS

    tells = AGENTS[task.spec.agent].capabilities
    for part, is_told, what in ((given.usd, tells.cost, "what it costs"), (given.tokens, tells.tokens, "its tokens")):
        if part is not None and not is_told:
            agent = task.spec.agent
            untold = f"The agent '{agent}' does not tell {what}"
            raise UsageError(f"{untold}: such a budget cannot hold. Nothing was changed.")


def _allow_family(tx: Transaction, task: Task, given: Cap, by: str) -> None:
    """What a subtask is given on top, the budget of the first task above it has to have."""
    root = tx.tasks.get(tx.spending.root_of(task))
    if root.id == task.id:
        return
    cap, used, mine = cap_of(root), tx.spending.of_task(root), tx.spending.of_task(task)
    usd = used.usd + given.usd - mine.usd if given.usd is not None and cap.usd is not None else None
    tokens = used.tokens + given.tokens - mine.tokens if given.tokens is not None and cap.tokens is not None else None
    more = Cap(
        usd=usd if usd is not None and usd > (cap.usd or 0.0) else None,
        tokens=tokens if tokens is not None and tokens > (cap.tokens or 0) else None,
    )
    if more:
        tx.spending.allow(root.id, more, by, clock.now(), is_root=True)


def _refuse_spent(tx: Transaction, task: Task) -> None:
    purse = next((purse for purse in purses_of(tx, task) if purse.spent), None)
    if purse is None:
        return
    spent = purse.cap.against(purse.used)
    which = "--budget-tokens N" if spent.endswith("tokens") and "$" not in spent else "--budget-usd N"
    raise Conflict(
        f"Task {task.id} has spent its budget ({purse.spent}); nothing was changed. Give it more, in all: "
        f"`holdfast resume {task.id} {which}`; or end it: `holdfast cancel {task.id}`."
    )


def _refuse_shared(tx: Transaction, task: Task) -> None:
    labels = labels_of(task.spec.labels)
    for found in tx.spending.spent():
        if found.label is None or found.label in labels:
            raise Conflict(
                f"Task {task.id} has to wait: {found.reason}; nothing was changed. "
                f"`holdfast why {task.id}` says when there is more of it; or raise it in your config."
            )
