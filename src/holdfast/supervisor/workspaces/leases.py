"""A workspace that somebody still uses is not removed; its removal waits for the last one, and says so once
(R-CLEAN-08)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from holdfast.base.concurrency import in_thread
from holdfast.core.model import Strategy, Task, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.supervisor.context import Context
from holdfast.workspaces.removal.in_use import sole_use

SOON, LATER = 1.0, 15.0  # seconds between two looks: at first, and in the end


@contextlib.asynccontextmanager
async def for_removal(context: Context, task: Task, workspace: Workspace) -> AsyncIterator[bool]:
    """Whether the workspace may go; while this lasts, nobody enters it. False: that waits, and it is noted."""
    if workspace.strategy is Strategy.NONE or workspace.state is WorkspaceState.INTENDED:
        yield True  # the user's own checkout, which stays; or nobody was ever let in
        return
    with sole_use(context.home, workspace.id) as alone:
        why = await _in_use(context, task, workspace, alone=alone)
        if why:
            await _wait(context, workspace, why)
        else:
            context.in_use.pop(workspace.id, None)
        yield not why


async def _in_use(context: Context, task: Task, workspace: Workspace, *, alone: bool) -> str:
    users = [] if alone else ["a `holdfast shell` (or `diff`)"]
    users += await in_thread(context.users.of, workspace.path)
    subtasks = await context.writer.write(lambda tx: tx.keeps.running_subtasks(task.id))
    users += [f"its subtask {subtask}" for subtask in subtasks]
    return ", ".join(users)


async def _wait(context: Context, workspace: Workspace, why: str) -> None:
    """What is done in it meanwhile is saved too, when it goes."""
    looks = context.in_use.get(workspace.id, 0)
    context.in_use[workspace.id] = looks + 1
    now = context.clock()
    retry_at = now.wall + min(LATER, SOON * 1.5**looks)
    await context.writer.write(lambda tx: tx.keeps.postpone(workspace, why, retry_at, now, tell=looks == 0))
