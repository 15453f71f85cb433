"""Start-up, before the first claim: take over what an earlier incarnation left. Repeating it is harmless."""

from __future__ import annotations

import contextlib

from holdfast.base.errors import NotOwner, Unavailable
from holdfast.core.model import Event, Task
from holdfast.supervisor.context import Context
from holdfast.supervisor.runs.attempts import Attempts


async def recover(context: Context, attempts: Attempts) -> None:
    """Adopt every running task of a host that is gone. The attempt then goes on from what it finds."""
    left = await context.writer.write(lambda tx: tx.tasks.running_elsewhere(context.host_id))
    for task in left:
        await _adopt(context, attempts, task)
    if left:
        await context.writer.write(
            lambda tx: tx.events.emit(
                Event(
                    kind="recovery.completed",
                    message=f"Took over {len(left)} task(s) of an earlier supervisor.",
                    data={"tasks": [task.id for task in left]},
                ),
                context.clock(),
            )
        )


async def _adopt(context: Context, attempts: Attempts, task: Task) -> None:
    try:
        adopted = await context.writer.write(lambda tx: tx.tasks.adopt(task, context.host_id, context.clock()))
    except NotOwner:
        return
    with contextlib.suppress(Unavailable):  # their file is being edited, say: its agent runs on all the same
        context.environment(adopted.spec.environment)  # its secrets are known to us now, as if we had started it
    attempts.start(adopted)
