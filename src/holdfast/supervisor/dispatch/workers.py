"""Named workers at the end of a run: facts for the settlement, and the record of a crash. Both are part of the
settlement's transaction."""

from __future__ import annotations

from holdfast.core.model import Task
from holdfast.core.runs.policy import PolicyAction
from holdfast.core.settle import SettleFacts, Settlement, WorkerFacts
from holdfast.store.port.dispatch import WorkerCrash
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context


def read_worker_facts(context: Context, tx: Transaction, task: Task) -> WorkerFacts | None:
    """Return the facts about the worker that had the task. None: no named worker had the task."""
    record = None if task.worker is None else tx.workers.get(task.worker)
    if task.worker is None or record is None:
        return None
    worker = context.settings.staff.get(task.worker)
    return WorkerFacts(
        record=record,
        crashes=tx.workers.crashes(task.worker),
        restarts=worker is not None and worker.restart,
        is_configured=worker is not None,
        keeps_tasks=not context.settings.staff.release_claims,
    )


def record_worker_crash(
    context: Context, tx: Transaction, run_id: str | None, facts: SettleFacts, settlement: Settlement
) -> None:
    """Record the crash of the worker's agent, and what happens to the task that the worker had."""
    task, crash, decision = facts.task, settlement.worker_crash, settlement.decision
    if crash is None or run_id is None or task.worker is None:
        return
    kept = (
        f"task {task.id} waits for this worker" if decision.keeps_worker else f"task {task.id} is free for any worker"
    )
    tx.workers.record_crash(
        WorkerCrash(
            worker=task.worker,
            task_id=task.id,
            run_id=run_id,
            decision=crash,
            why=facts.verdict.reason,
            recovered=kept
            if decision.action is PolicyAction.REQUEUE
            else f"task {task.id} has failed: {decision.reason}",
            error_tail=facts.verdict.error_tail,
            window=context.limits.crash_window,
        ),
        context.clock(),
    )
