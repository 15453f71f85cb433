"""Going back to a checkpoint at the next start: one that an operator named (`resume --checkpoint N`), or the last of a
workspace that was lost. The choice is durable, and every step may be repeated until it is carried out."""

from __future__ import annotations

import os
from dataclasses import replace

from holdfast.base.errors import LaunchError, WorkspaceProblem, is_passing
from holdfast.core.model import Repo, Strategy, Task, Workspace
from holdfast.core.task_settings import SalvageRules
from holdfast.store.port.transaction import Grip, Transaction
from holdfast.store.port.workspaces import GoingBack
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.save import litter_of, save_work
from holdfast.workspaces.port import Unsaved

TRIES = 3  # while somebody is at work where it is to go back
BY_US = "the supervisor, because its workspace is gone"


async def chosen_for(context: Context, task: Task) -> GoingBack | None:
    if task.fresh or task.spec.strategy is Strategy.NONE:
        return None
    return await context.writer.write(lambda tx: tx.checkpoints.chosen(task.id))


async def choose_last(context: Context, task: Task, workspace: Workspace) -> None:
    """Of a workspace whose files are gone. What is only damaged is salvaged as it is, which is newer."""
    if _has_files(workspace.path) or task.spec.strategy is Strategy.NONE:
        return

    def choose(tx: Transaction) -> None:
        last = tx.checkpoints.last(task.id)
        if last is not None and last.workspace_id == workspace.id:
            tx.checkpoints.choose(task.id, last.number, BY_US, context.clock(), automatic=True)

    await context.writer.write(choose)


def _has_files(path: str) -> bool:
    return os.path.isdir(path) and any(name != ".git" for name in os.listdir(path))


async def can_go_on(context: Context, task_id: str) -> bool:
    """R-RES-06: asked before a resume is spent on it. False: it was to go back to a checkpoint that cannot be read; it
    stays paused then, and an operator is told."""

    def find(tx: Transaction) -> tuple[Task, Repo, GoingBack | None]:
        task = tx.tasks.get(task_id)
        return task, tx.workspaces.repo(task.spec.repo_id), tx.checkpoints.chosen(task_id)

    task, repo, chosen = await context.writer.write(find)
    if chosen is None or chosen.automatic:
        return True  # without it, it starts from what was salvaged, or from its branch
    problem = await context.ports.strategy_of(task.spec).readable(repo, chosen.checkpoint.commit)
    if problem is None:
        return True
    number = chosen.checkpoint.number
    await context.writer.write(lambda tx: tx.checkpoints.stays_paused(task_id, number, problem, context.clock()))
    return False


async def go_back_in_place(
    context: Context, task: Task, grip: Grip, repo: Repo, workspace: Workspace, chosen: GoingBack
) -> None:
    """In a workspace that is there: what lies in it is saved first, with the tip of its branch."""
    number = chosen.checkpoint.number
    if chosen.automatic:  # a disk that was not mounted, say: nobody asked for anything but what is there again
        why = "its workspace is there again"
        await context.writer.write(lambda tx: tx.checkpoints.gave_up(grip, number, why, context.clock()))
        return
    await _refuse_unreadable(context, task, repo, chosen)
    is_saved, told = chosen.saved, ""
    for left in reversed(range(TRIES)):
        if not is_saved:
            await _set_aside(context, task, repo, workspace, chosen)
            await context.writer.write(lambda tx: tx.checkpoints.set_aside(grip))
        try:
            told = await _go_back(context, task, repo, workspace, chosen)
            break
        except Unsaved as error:  # somebody was in it since: that is saved too
            is_saved = False
            if not left:
                raise LaunchError(
                    f"Task {task.id} cannot go back to checkpoint {number}, because somebody is at work in "
                    f"{workspace.path}: {error}. Go on with what is there: `holdfast retry {task.id}`."
                ) from error
    how = f"{told}; what lay there before is in `holdfast salvage list {task.id}`"
    await context.writer.write(lambda tx: tx.checkpoints.went_back(grip, number, how, context.clock()))


async def go_back_anew(
    context: Context, task: Task, grip: Grip, repo: Repo, workspace: Workspace, chosen: GoingBack
) -> str | None:
    """In a workspace that was just made; in words, how. None: not to be done, and told."""
    number, strategy = chosen.checkpoint.number, context.ports.strategy_of(task.spec)
    if not chosen.automatic:
        await _refuse_unreadable(context, task, repo, chosen)
        if not await strategy.fits(repo, workspace, chosen.checkpoint.commit):
            await _set_aside(context, task, repo, workspace, chosen)  # what its branch holds beyond
        return await _go_back(context, task, repo, workspace, chosen)
    problem = await strategy.readable(repo, chosen.checkpoint.commit)
    if problem is None and not await strategy.fits(repo, workspace, chosen.checkpoint.commit):
        problem = (
            f"{workspace.branch} has commits that are newer; see what it holds with "
            f"`holdfast diff {task.id} --checkpoint {number}`"
        )
    if problem is None:
        return await _go_back(context, task, repo, workspace, chosen)
    said = problem
    await context.writer.write(lambda tx: tx.checkpoints.gave_up(grip, number, said, context.clock()))
    return None


async def _set_aside(context: Context, task: Task, repo: Repo, workspace: Workspace, chosen: GoingBack) -> None:
    number = chosen.checkpoint.number
    why = f"set aside: the task goes back to checkpoint {number}"
    problem = await save_work(context, task.spec, repo, workspace, why, over=chosen.checkpoint.commit)
    if problem is not None:
        raise LaunchError(
            f"Task {task.id} cannot go back to checkpoint {number}: {problem}. Nothing was changed in "
            f"{workspace.path}. Go on with what is there: `holdfast retry {task.id}`."
        )


async def _refuse_unreadable(context: Context, task: Task, repo: Repo, chosen: GoingBack) -> None:
    number = chosen.checkpoint.number
    problem = await context.ports.strategy_of(task.spec).readable(repo, chosen.checkpoint.commit)
    if problem is not None:
        raise LaunchError(
            f"Task {task.id} cannot go back to checkpoint {number}: {problem}. Nothing was changed. "
            f"Go on with what is there: `holdfast retry {task.id}`."
        )


async def _go_back(context: Context, task: Task, repo: Repo, workspace: Workspace, chosen: GoingBack) -> str:
    try:
        return await context.ports.strategy_of(task.spec).go_back(
            repo, workspace, chosen.checkpoint.commit, rules_for(context, task)
        )
    except Unsaved:
        raise
    except WorkspaceProblem as error:
        if is_passing(error):
            raise  # the machine's trouble, not the task's: it is tried again
        raise LaunchError(f"Checkpoint {chosen.checkpoint.number} could not be gone back to: {error}") from error


def rules_for(context: Context, task: Task) -> SalvageRules:
    return replace(task.spec.salvage, litter=litter_of(context, task.spec))
