"""What is told of a run's health: events with their evidence, and alerts where a person should look."""

from __future__ import annotations

from holdfast.core.health import Condition, Diagnosis
from holdfast.core.model import Event, Level
from holdfast.supervisor.context import Context, Patient

HEADLINES = {
    Condition.STUCK: "is stuck",
    Condition.LOOPING: "goes in circles",
    Condition.STARTUP_TIMEOUT: "does not come to life",
}
_MORE = {Condition.LOOPING: ("no file of its workspace changed since it last said something new",)}


async def tell(context: Context, patient: Patient, diagnosis: Diagnosis) -> None:
    """Once per episode."""
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
            "evidence": [*diagnosis.evidence, *_MORE.get(diagnosis.condition, ())],
            "on_stuck": patient.rules.on_stuck,
        },
    )
    await context.writer.write(lambda tx: tx.events.emit(event, context.clock()))


async def tell_recovery(context: Context, patient: Patient, was: str, diagnosis: Diagnosis) -> None:
    event = Event(
        kind="agent.recovered",
        component="health",
        task_id=patient.task_id,
        run_id=patient.run_id,
        message=f"The agent of run {patient.run_id} shows signs of life again.",
        reason=was,
        data={"condition": was, "evidence": list(diagnosis.evidence)},
    )
    await context.writer.write(lambda tx: tx.events.emit(event, context.clock()))


async def alert(context: Context, patient: Patient, diagnosis: Diagnosis) -> None:
    """Where it is not ended, somebody should look."""
    await context.writer.write(
        lambda tx: tx.events.raise_alert(
            f"stuck:{patient.run_id}",
            f"The agent of task {patient.task_id} {HEADLINES[diagnosis.condition]}: {diagnosis.reason}.",
            f"`holdfast why {patient.task_id}` has the evidence; `holdfast cancel {patient.task_id}` ends it.",
            context.clock(),
            task_id=patient.task_id,
            level=Level.WARNING,
        )
    )


async def alarm(context: Context, patient: Patient, pids: tuple[int, ...]) -> None:
    """It was to be gone by now (R-TERM-06). Its keeper goes on trying."""
    named = ", ".join(map(str, pids)) or "unknown"
    await context.writer.write(
        lambda tx: tx.events.raise_alert(
            f"unended:{patient.run_id}",
            f"Run {patient.run_id} of task {patient.task_id} is being ended and still lives, 2 s after its grace "
            f"(pids: {named}).",
            "Its keeper goes on killing; see what keeps these processes (another user's, or stuck in the kernel).",
            context.clock(),
            task_id=patient.task_id,
        )
    )
