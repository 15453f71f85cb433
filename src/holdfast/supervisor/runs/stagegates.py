"""The gate of a stage, in the task's workspace, between the proven end of its agent and the settlement of its run.

It may be run a second time, after a crash in between: nothing durable follows from it but the settlement itself. But
that it begins is durable, and counted: a gate that kills its supervisor, or takes all memory, must not do so for ever.
"""

from __future__ import annotations

import re
from dataclasses import replace

from holdfast.base.text import one_line
from holdfast.core.model import Task, Workspace
from holdfast.core.workflows.result import GateResult
from holdfast.core.workflows.workflow import Stage
from holdfast.store.port.transaction import Grip, Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.setup import commands_environment

MOST_BEGINNINGS = 5  # as often as a run may be lost


async def ask_gate(context: Context, task: Task, grip: Grip, stage: Stage, workspace: Workspace | None) -> GateResult:
    """Ended at once when its caller is cancelled."""
    if workspace is None or context.furnishing is None:
        how = "could not be run: there is no workspace"
        return GateResult(command=one_line(stage.gate, 200), passed=False, how=how)
    begun = task.progress.asked
    if begun >= MOST_BEGINNINGS:
        how = f"was begun {begun} times and never came to its end: each time the supervisor died"
        return GateResult(command=one_line(stage.gate, 200), passed=False, how=how)
    await context.writer.write(lambda tx: _count(context, tx, grip, begun + 1))
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    env = commands_environment(context, task, repo, workspace) | {"HOLDFAST_STAGE": stage.name}
    return await context.furnishing.gate(workspace, gate_kind(task, stage), stage.gate, env, stage.gate_timeout)


def _count(context: Context, tx: Transaction, grip: Grip, begun: int) -> None:
    """Once per claim or adoption, however often it is tried again within one: that is the machine's trouble."""
    progress = tx.tasks.get(grip.task_id).progress
    if progress.asked != begun:
        tx.staging.keep(grip, replace(progress, asked=begun), context.clock())


def gate_kind(task: Task, stage: Stage) -> str:
    """For the name of its log: one for every time that it is asked."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", stage.name)[:40]
    return f"gate-{plain}-{task.progress.visit}-{task.progress.tries + 1}"
