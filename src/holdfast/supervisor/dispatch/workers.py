"""What the ending of a run means for the named worker that it was a run of; part of the transaction that settles it."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.dispatch.workers import CrashDecision, after_run
from holdfast.core.model import Task
from holdfast.core.runs.crashes import CRASHES
from holdfast.core.runs.outcome import Verdict
from holdfast.core.runs.policy import Action, Decision
from holdfast.store.port.dispatch import WorkerCrash
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context


def for_worker(
    context: Context, tx: Transaction, task: Task, verdict: Verdict, decision: Decision
) -> CrashDecision | None:
    """What a run's ending means for the worker that it was a run of. None: it was nobody's, or nothing to speak of."""
    if task.worker is None or verdict.outcome not in CRASHES:
        return None
    record, worker = tx.workers.get(task.worker), context.settings.staff.get(task.worker)
    if record is None:
        return None
    return after_run(
        verdict.outcome,
        record,
        tx.workers.crashes(task.worker),
        worker is not None and worker.restart,
        context.limits,
        context.clock(),
        is_paid=bool(decision.spends),  # a mass death spends nothing, of the task or of the worker
    )


def keeps_worker(context: Context, task: Task, decision: Decision, crash: CrashDecision | None) -> Decision:
    """With `crash.release_claims = false` a task waits for the worker that crashed with it, unless that one is no
    worker any more."""
    if crash is None or not crash.counts or context.settings.staff.release_claims:
        return decision
    is_waited_for = decision.action is Action.REQUEUE and context.settings.staff.get(task.worker) is not None
    return replace(decision, keeps_worker=is_waited_for)


def tell_worker(
    context: Context,
    tx: Transaction,
    task: Task,
    run_id: str | None,
    verdict: Verdict,
    decision: Decision,
    crash: CrashDecision | None,
) -> None:
    """In the transaction that settles the run."""
    if crash is None or run_id is None or task.worker is None:
        return
    kept = (
        f"task {task.id} waits for this worker" if decision.keeps_worker else f"task {task.id} is free for any worker"
    )
    tx.workers.crashed(
        WorkerCrash(
            worker=task.worker,
            task_id=task.id,
            run_id=run_id,
            decision=crash,
            why=verdict.reason,
            recovered=kept if decision.action is Action.REQUEUE else f"task {task.id} has failed: {decision.reason}",
            error_tail=verdict.error_tail,
            window=context.limits.crash_window,
        ),
        context.clock(),
    )
