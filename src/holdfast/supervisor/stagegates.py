"""The gate of a stage, in the task's workspace, between the proven end of its agent and the settlement of its run.

It may be run a second time, after a crash in between: nothing durable follows from it but the settlement itself.
"""

from __future__ import annotations

import re

from holdfast.core.model import Task, Workspace
from holdfast.core.results import GateResult
from holdfast.core.workflows import Stage
from holdfast.supervisor.context import Context
from holdfast.supervisor.furnish import commands_environment
from holdfast.text import one_line


async def ask_gate(context: Context, task: Task, stage: Stage, workspace: Workspace | None) -> GateResult:
    """Ended at once when its caller is cancelled."""
    if workspace is None or context.furnishing is None:
        how = "could not be run: there is no workspace"
        return GateResult(command=one_line(stage.gate, 200), passed=False, how=how)
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(task.spec.repo_id))
    env = commands_environment(context, task, repo, workspace) | {"HOLDFAST_STAGE": stage.name}
    return await context.furnishing.gate(workspace, gate_kind(task, stage), stage.gate, env, stage.gate_timeout)


def gate_kind(task: Task, stage: Stage) -> str:
    """For the name of its log: one for every time that it is asked."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", stage.name)[:40]
    return f"gate-{plain}-{task.progress.visit}-{task.progress.tries + 1}"
