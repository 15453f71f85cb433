"""Saves work before its workspace is removed, for running tasks that end and for waiting ones."""

from __future__ import annotations

from dataclasses import replace

from holdfast.base.ids import new_id
from holdfast.core.model import Repo, TaskSpec, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.store.port.transaction import Salvaged
from holdfast.supervisor.context import Context


def litter_patterns(context: Context, spec: TaskSpec) -> tuple[str, ...]:
    """Return the patterns of unwanted files that the agents of all stages leave. One agent does not remove the files of
    another."""
    names = [spec.agent]
    for stage in spec.stages:
        names += [stage.agent, *(member.agent for member in stage.members)]
    known = (context.ports.agents.get(name) for name in dict.fromkeys(names))
    return tuple(pattern for agent in known if agent is not None for pattern in agent.litter)


async def deliver_work(context: Context, spec: TaskSpec, repo: Repo, workspace: Workspace) -> str | None:
    """Bring the task's commits into the user's repository. Return None if they are there, otherwise the reason."""
    try:
        await context.ports.strategy_of(spec).deliver(repo, workspace)
    except Exception as error:  # noqa: BLE001 - whatever failed, the consequence is the same: do not remove it
        return f"its commits could not be brought into the repository: {error}"
    return None


async def save_work(
    context: Context, spec: TaskSpec, repo: Repo, workspace: Workspace, reason: str, *, over: str | None = None
) -> str | None:
    """Salvage what no branch holds. Return None if the workspace may be removed, otherwise why it must be preserved.

    `over`: a checkpoint that will replace the content. Then the branch is saved too.
    """
    if workspace.state is WorkspaceState.INTENDED and over is None:
        return None  # never finished, so no agent has worked in it
    try:
        rules = replace(spec.salvage, litter=litter_patterns(context, spec))
        saved = await context.ports.strategy_of(spec).salvage(repo, workspace, reason, rules, over=over)
    except Exception as error:  # noqa: BLE001 - whatever failed, the consequence is the same: do not remove it
        return f"its work could not be saved: {error}"
    if saved is not None:
        salvaged = Salvaged(
            id=new_id(),
            ref=saved.ref,
            commit=saved.commit,
            base=saved.base,
            files=saved.files,
            reason=reason,
            partial=saved.partial,
            details=saved.details,
        )
        await context.writer.write(lambda tx: tx.workspaces.record_salvage(workspace, salvaged, context.clock()))
        if saved.partial:
            return f"its work could only be saved in part: {saved.describe_missing}"
    return None
