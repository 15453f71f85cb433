"""The set-up of a new workspace and its teardown, by the task's settings. The set-up happens once for each workspace
that is made.

A crash during the set-up leaves the workspace in state `intended`. Then the next attempt makes it again and begins the
set-up from the start. So no agent works in a workspace that is set up by half, and set-up commands need not be
repeatable. Teardown commands must be repeatable: a crash between them and the rename repeats them.

An agent may write what the user's commands run (a Makefile, a package's scripts). So no command runs on this machine in
a tree that came from a container agent: `command_runner` is the one place that decides where commands run.
"""

from __future__ import annotations

import os
import time

from holdfast.base.errors import LaunchError, Unavailable, WorkspaceProblem, is_transient
from holdfast.base.text import make_text
from holdfast.core.model import Event, Level, Repo, Strategy, Task, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.workspaces.port import CommandRunner

MOST_NAMES_IN_EVENT = 200  # names in an event


async def set_up_workspace(context: Context, task: Task, repo: Repo, workspace: Workspace) -> None:
    """Copy files of the checkout that git does not carry into the workspace, then run the set-up commands. Raise
    LaunchError on a failure."""
    rules = task.spec.workspace
    if context.ports.workspace_setup is None or workspace.strategy is Strategy.NONE or not (rules.copy or rules.setup):
        return
    began = time.monotonic()
    data: dict[str, object] = {"workspace": workspace.id, "commands": len(rules.setup)}
    words = []
    if rules.copy:
        try:
            came = await context.ports.workspace_setup.copy(repo, workspace, rules.copy)
        except WorkspaceProblem as error:
            if is_transient(error):
                raise
            raise LaunchError(f"Files of `workspace.copy` could not be copied: {error}") from error
        left = {make_text(name): make_text(why) for name, why in came.left.items()}
        data.update(
            copied=[make_text(name) for name in came.copied[:MOST_NAMES_IN_EVENT]],
            left=dict(list(left.items())[:MOST_NAMES_IN_EVENT]),
        )
        words.append(f"{len(came.copied)} file(s) copied")
        if left:
            words.append("not copied: " + ", ".join(f"{name} ({why})" for name, why in list(left.items())[:5]))
    if rules.setup:
        env = commands_environment(context, task, repo, workspace)
        runner = await command_runner(context, task, workspace)
        failed = await context.ports.workspace_setup.set_up(workspace, rules.setup, env, rules.setup_timeout, runner)
        if failed is not None:
            shown = f"The end of its output: {failed.tail} — the whole" if failed.tail else "Its"
            raise LaunchError(
                f"The set-up command `{failed.command}` {failed.how}. {shown} output: {failed.log}. "
                f"Fix it, then `holdfast retry {task.id}`."
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


async def tear_down_workspace(context: Context, task: Task, repo: Repo, workspace: Workspace) -> None:
    """Run the teardown commands before the workspace is removed. The work is saved already. A failure is only a warning
    on the task."""
    rules = task.spec.workspace
    if context.ports.workspace_setup is None or not rules.teardown or workspace.strategy is Strategy.NONE:
        return
    if workspace.state not in (WorkspaceState.READY, WorkspaceState.PRESERVED):
        return  # it was never set up
    try:
        env = commands_environment(context, task, repo, workspace)
        runner = await command_runner(context, task, workspace)
        failed = await context.ports.workspace_setup.tear_down(
            workspace, rules.teardown, env, rules.setup_timeout, runner
        )
    except (WorkspaceProblem, Unavailable, LaunchError, OSError) as error:
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
        message=f"{why} The workspace is removed all the same.",
        reason=why,
        data={"workspace": workspace.id},
    )
    await context.writer.write(lambda tx: tx.events.emit(event, context.clock()))


async def command_runner(context: Context, task: Task, workspace: Workspace) -> CommandRunner | None:
    """Return the runner of the user's commands in the workspace. None: they run on this machine itself.

    Commands of a container task run in a container like the agent's. Raise LaunchError if the workspace is on this
    machine and its base is the branch of a container task.
    """
    if workspace.strategy is Strategy.CONTAINER:
        assert context.ports.agent_containers is not None
        return context.ports.agent_containers.command_runner(task.spec, workspace)
    origin = await context.writer.write(lambda tx: _find_container_ancestor(tx, task))
    if origin is not None:
        raise LaunchError(
            f"Task {task.id} starts from the work of task {origin.id}, which ran in a container. Commands of this "
            "workspace would run on this machine in that tree. Nothing was run. Either read and take over that work "
            f"(`holdfast diff {origin.id}`, `holdfast merge {origin.id}`) and add the task again without --parent, or "
            "add it again with --workspace container."
        )
    return None


def _find_container_ancestor(tx: Transaction, task: Task) -> Task | None:
    """Return the nearest container task whose branch is, directly or through other tasks, the base of the task."""
    while task.spec.base_from_parent and task.spec.parent_id is not None:
        parent = tx.tasks.get(task.spec.parent_id)
        if parent.spec.repo_id != task.spec.repo_id:
            return None
        if parent.spec.strategy is Strategy.CONTAINER:
            return parent
        task = parent
    return None


def commands_environment(context: Context, task: Task, repo: Repo, workspace: Workspace) -> dict[str, str]:
    """Return the environment of the task's agents, with the paths of the workspace and the checkout."""
    return context.ports.environment(task.spec.environment) | {
        "HOLDFAST_HOME": context.home,  # with the task's id it marks the command: it is not a person's
        "HOLDFAST_TASK_ID": task.id,
        "HOLDFAST_WORKSPACE_PATH": workspace.path,
        "HOLDFAST_CHECKOUT": os.path.realpath(repo.path),
        "PWD": workspace.path,
    }
