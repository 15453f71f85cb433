"""The durable intent of a run, with the time that it is given: one transaction, before anything is started."""

from __future__ import annotations

from holdfast.core.adaptive import MOST_RUNS, allot
from holdfast.core.model import Instant, Run, Task
from holdfast.store.port import Grip, Transaction


def intend(tx: Transaction, task: Task, grip: Grip, run_id: str, now: Instant, account: str | None = None) -> Run:
    """R-TERM-13: a task that asked for it gets a timeout from earlier runs of its kind (same repository and agent)."""
    spec = task.spec
    if spec.adaptive_floor is None:
        return tx.runs.intend(grip, run_id, now, account=account)
    durations = tx.runs.recent_durations(spec.repo_id, spec.agent, MOST_RUNS)
    return tx.runs.intend(grip, run_id, now, allot(durations, spec.adaptive_floor, spec.timeout), account)
