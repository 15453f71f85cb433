"""The durable intent of a run, with its account and the time that it is given: one transaction, before anything is
started."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.model import Run, Task
from holdfast.core.runs.intervals import MOST_RUNS, Allotted, allot
from holdfast.core.workflows.workflow import name_of
from holdfast.store.port.transaction import ALONE, Grip, Role, Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.accounts import account_for
from holdfast.supervisor.dispatch.probes import take_account
from holdfast.supervisor.dispatch.spending import refuse_spent


def intend(
    context: Context, tx: Transaction, task: Task, grip: Grip, run_id: str, role: Role = ALONE
) -> tuple[Task, Run]:
    """The task comes back without its session when that was of an account that is gone."""
    now = context.clock()
    refuse_spent(tx, task)
    choice = account_for(context, tx, task)
    if choice.left is not None:
        tx.tasks.leave_session(grip, choice.left, now)
        task = replace(task, session_id=None, account=None)
    take_account(context, tx, task, choice.account, has_others=bool(role.member))
    if task.spec.stages and role.stage is None:
        role = replace(role, stage=name_of(task.spec.stages, task.progress))
    return task, tx.runs.intend(grip, run_id, now, _allotted(tx, task), choice.account, role)


def _allotted(tx: Transaction, task: Task) -> Allotted | None:
    """R-TERM-13: a task that asked for it gets a timeout from earlier runs of its kind (same repository and agent)."""
    spec = task.spec
    if spec.adaptive_floor is None:
        return None
    durations = tx.runs.recent_durations(spec.repo_id, spec.agent, MOST_RUNS)
    return allot(durations, spec.adaptive_floor, spec.timeout)
