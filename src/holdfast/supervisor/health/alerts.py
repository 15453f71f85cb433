"""Events and alerts about a run's health: events carry their evidence, alerts ask a person to look."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.base.instant import Instant
from holdfast.core.health.diagnosis import Condition, Diagnosis
from holdfast.core.model import Event, Level
from holdfast.store.port.transaction import Transaction, stuck_alert, unended_alert
from holdfast.supervisor.context import Context
from holdfast.supervisor.ports import WatchedRun

HEADLINES = {
    Condition.STUCK: "is stuck",
    Condition.LOOPING: "goes in circles",
    Condition.STARTUP_TIMEOUT: "has shown no sign of life since its start",
    Condition.DOOMED: "cannot succeed any more, but continues",
}
NO_FILE_CHANGED = "no file of its workspace changed since its last new output"
NOT_ALL_FILES = "not all of its workspace could be checked; no change was seen in the rest"


async def report_diagnosis(
    context: Context, patient: WatchedRun, diagnosis: Diagnosis, more: Sequence[str] = ()
) -> None:
    """Emit the event of a diagnosis, once per episode. `more` is further evidence. If the run is not ended, raise an
    alert too."""
    event = Event(
        kind="agent.stuck",
        level=Level.WARNING,
        component="health",
        task_id=patient.task_id,
        run_id=patient.run_id,
        message=f"The agent of run {patient.run_id} {HEADLINES[diagnosis.condition]}: {diagnosis.reason}.",
        reason=str(diagnosis.condition),
        data={
            "condition": str(diagnosis.condition),
            "evidence": [*diagnosis.evidence, *more],
            "on_stuck": patient.rules.on_stuck,
        },
    )

    def write(tx: Transaction) -> None:
        now = context.clock()
        tx.events.emit(event, now)
        if patient.rules.on_stuck != "kill":
            _alert(tx, patient, diagnosis, now)

    await context.writer.write(write)


async def report_recovery(context: Context, patient: WatchedRun, was: str, diagnosis: Diagnosis) -> None:
    event = Event(
        kind="agent.recovered",
        component="health",
        task_id=patient.task_id,
        run_id=patient.run_id,
        message=f"The agent of run {patient.run_id} shows signs of life again.",
        reason=was,
        data={"condition": was, "evidence": list(diagnosis.evidence)},
    )

    def write(tx: Transaction) -> None:
        now = context.clock()
        tx.events.emit(event, now)
        tx.events.close_alert(stuck_alert(patient.run_id), "the agent's recovery", now)

    await context.writer.write(write)


def _alert(tx: Transaction, patient: WatchedRun, diagnosis: Diagnosis, now: Instant) -> None:
    tx.events.raise_alert(
        stuck_alert(patient.run_id),
        f"The agent of task {patient.task_id} {HEADLINES[diagnosis.condition]}: {diagnosis.reason}.",
        f"`holdfast why {patient.task_id}` shows the evidence; `holdfast cancel {patient.task_id}` ends it.",
        now,
        task_id=patient.task_id,
        level=Level.WARNING,
    )


async def alert_unended_run(context: Context, patient: WatchedRun, pids: tuple[int, ...]) -> None:
    """Raise an alert for a run that should have ended by now (R-TERM-06). Its keeper keeps trying to end it."""
    named = ", ".join(map(str, pids)) or "unknown"
    await context.writer.write(
        lambda tx: tx.events.raise_alert(
            unended_alert(patient.run_id),
            f"Run {patient.run_id} of task {patient.task_id} should have ended, but is still alive 2 s after its grace "
            f"(pids: {named}).",
            "Its keeper keeps trying to kill them. Find out what prevents that: another user, the kernel, or a "
            "container engine that does not answer.",
            context.clock(),
            task_id=patient.task_id,
        )
    )
