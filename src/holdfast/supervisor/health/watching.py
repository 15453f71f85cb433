"""Who is told that a run began, is being stopped, or is over: its health, and the checkpoints of its tree."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.agents.port import sign_reader
from holdfast.core.dispatch.spending import Meter
from holdfast.core.model import Run, StopWhy, Task
from holdfast.core.runs.liveness import Identity
from holdfast.core.states import RunState
from holdfast.processes.port import LiveRun
from holdfast.supervisor.context import Context, Patient


def patient_of(
    context: Context,
    task: Task,
    run: Run,
    live: LiveRun,
    root: Identity | None,
    meter: Meter | None,
    stop: Callable[[StopWhy, str], Awaitable[None]],
    claimed: Callable[[], bool],
    place_of: str = "",
) -> Patient:
    """`root`: of its process tree, where that is not its keeper."""
    spec = task.spec
    return Patient(
        run_id=run.id,
        task_id=task.id,
        rules=spec.health,
        signs=sign_reader(context.agents[spec.agent]),
        timeout=spec.timeout if run.timeout is None else run.timeout,
        grace=spec.grace,
        keeper=root or live.keeper,
        agent=live.agent or live.keeper,
        adopted=run.state is not RunState.INTENDED,
        meter=meter,
        stop=stop,
        claimed=claimed,
        place_of=place_of,
    )


def told_to_stop(context: Context, run_id: str, grace: float, *, fast: bool) -> None:
    if context.checkpoints is not None:
        context.checkpoints.over(run_id)  # one that is under way must not hold the end up
        if fast:
            context.checkpoints.hasten(run_id)
    if context.health is not None:
        context.health.ending(run_id, grace)


def look_away(context: Context, run_id: str) -> None:
    if context.health is not None:
        context.health.over(run_id)
    if context.checkpoints is not None:
        context.checkpoints.over(run_id)
