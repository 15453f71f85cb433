"""Furnishing a new workspace, and its teardown, as the task's settings say. Once per workspace that is made.

A crash in between leaves it `intended`: the next attempt makes it anew and begins the set-up from the start, so that no
agent works in one that was furnished by half, and commands need not be repeatable. Teardown commands do: a crash
between them and the rename repeats them.
"""

from __future__ import annotations

import os
import time

from holdfast.base.errors import LaunchError, Unavailable, WorkspaceProblem, is_passing
from holdfast.base.text import as_text
from holdfast.core.model import Event, Level, Repo, Strategy, Task, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.supervisor.context import Context

TOLD = 200  # names in an event


async def furnish(context: Context, task: Task, repo: Repo, workspace: Workspace) -> None:
    """Copy what the checkout has and git does not carry, then run the set-up. A failure is a launch error."""
    rules = task.spec.workspace
    if context.ports.furnishing is None or workspace.strategy is Strategy.NONE or not (rules.copy or rules.setup):
        return
    began = time.monotonic()
    data: dict[str, object] = {"workspace": workspace.id, "commands": len(rules.setup)}
    words = []
    if rules.copy:
        try:
            came = await context.ports.furnishing.copy(repo, workspace, rules.copy)
        except WorkspaceProblem as error:
            if is_passing(error):
                raise
            raise LaunchError(f"Files of `workspace.copy` could not be copied: {error}") from error
        left = {as_text(name): as_text(why) for name, why in came.left.items()}
        data.update(copied=[as_text(name) for name in came.copied[:TOLD]], left=dict(list(left.items())[:TOLD]))
        words.append(f"{len(came.copied)} file(s) copied")
        if left:
            words.append("not copied: " + ", ".join(f"{name} ({why})" for name, why in list(left.items())[:5]))
    if rules.setup:
        env = commands_environment(context, task, repo, workspace)
        failed = await context.ports.furnishing.set_up(workspace, rules.setup, env, rules.setup_timeout)
        if failed is not None:
            shown = f"The end of its output: {failed.tail} — the whole" if failed.tail else "Its"
            raise LaunchError(
                f"The set-up command `{failed.command}` {failed.how}. {shown} output: {failed.log}. "
                f"Mend it, then `holdfast retry {task.id}`."
            )
        words.append(f"{len(rules.setup)} command(s) run")
    data["duration_ms"] = round((time.monotonic() - began) * 1000, 1)
    event = Event(
        kind="workspace.furnished",
        component="workspaces",
        task_id=task.id,
        message=f"The workspace of task {task.id} is set up: {'; '.join(words)}.",
        data=data,
    )
    await context.writer.write(lambda tx: tx.events.emit(event, context.clock()))


async def tear_down(context: Context, task: Task, repo: Repo, workspace: Workspace) -> None:
    """Before it is put away; its work is saved. Whatever fails is a warning on the task, and changes nothing."""
    rules = task.spec.workspace
    if context.ports.furnishing is None or not rules.teardown or workspace.strategy is Strategy.NONE:
        return
    if workspace.state not in (WorkspaceState.READY, WorkspaceState.PRESERVED):
        return  # it was never set up
    try:
        env = commands_environment(context, task, repo, workspace)
        failed = await context.ports.furnishing.tear_down(workspace, rules.teardown, env, rules.setup_timeout)
    except (WorkspaceProblem, Unavailable, OSError) as error:
        why = f"The teardown of task {task.id} could not be run: {error}."
    else:
        if failed is None:
            return
        why = f"The teardown command `{failed.command}` of task {task.id} {failed.how}; its output: {failed.log}."
    event = Event(
        kind="workspace.teardown-failed",
        level=Level.WARNING,
        component="workspace-cleanup",
        task_id=task.id,
        message=f"{why} The workspace is put away all the same.",
        reason=why,
        data={"workspace": workspace.id},
    )
    await context.writer.write(lambda tx: tx.events.emit(event, context.clock()))


def commands_environment(context: Context, task: Task, repo: Repo, workspace: Workspace) -> dict[str, str]:
    """What the task's agents see, and where they will work."""
    return context.ports.environment(task.spec.environment) | {
        "HOLDFAST_TASK_ID": task.id,
        "HOLDFAST_WORKSPACE_PATH": workspace.path,
        "HOLDFAST_CHECKOUT": os.path.realpath(repo.path),
        "PWD": workspace.path,
    }
