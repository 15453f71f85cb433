"""The restore of a checkpoint at the next start of a task.

An operator chose the checkpoint (`resume --checkpoint N`), or it is the last checkpoint of a workspace that was lost.
The choice is durable, and every step may be repeated until it is carried out.
"""

from __future__ import annotations

import os
from dataclasses import replace

from holdfast.base.errors import LaunchError, WorkspaceProblem, is_transient
from holdfast.core.model import Repo, Strategy, Task, Workspace
from holdfast.core.task_settings import SalvageRules
from holdfast.store.port.transaction import Ownership, Transaction
from holdfast.store.port.workspaces import CheckpointChoice
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.save import litter_patterns, save_work
from holdfast.workspaces.port import UnsavedWork

TRIES = 3  # tries while another process works in the workspace
BY_US = "the supervisor, because its workspace is gone"


async def read_chosen_checkpoint(context: Context, task: Task) -> CheckpointChoice | None:
    if task.fresh or task.spec.strategy is Strategy.NONE:
        return None
    return await context.writer.write(lambda tx: tx.checkpoints.chosen(task.id))


async def choose_last_checkpoint(context: Context, task: Task, workspace: Workspace) -> None:
    """Choose the last checkpoint of a workspace whose files are gone. A workspace that is only damaged is salvaged
    instead, because its files are newer than the checkpoint."""
    if _has_files(workspace.path) or task.spec.strategy is Strategy.NONE:
        return

    def choose(tx: Transaction) -> None:
        for last in tx.checkpoints.of_workspace(workspace)[-1:]:
            tx.checkpoints.choose(task.id, last.number, BY_US, context.clock(), automatic=True)

    await context.writer.write(choose)


def _has_files(path: str) -> bool:
    return os.path.isdir(path) and any(name != ".git" for name in os.listdir(path))


async def can_resume(context: Context, task_id: str) -> bool:
    """Return False if the task has to restore a checkpoint that cannot be read. In that case the task stays paused, and
    an event is emitted. Called before a resume is spent (R-RES-06)."""

    def find(tx: Transaction) -> tuple[Task, Repo, CheckpointChoice | None]:
        task = tx.tasks.get(task_id)
        return task, tx.workspaces.repo(task.spec.repo_id), tx.checkpoints.chosen(task_id)

    task, repo, chosen = await context.writer.write(find)
    if chosen is None or chosen.automatic:
        return True  # without the checkpoint, it starts from what was salvaged, or from its branch
    problem = await context.ports.strategy_of(task.spec).readable(repo, chosen.checkpoint.commit)
    if problem is None:
        return True
    number = chosen.checkpoint.number
    await context.writer.write(lambda tx: tx.checkpoints.withdraw_choice(task_id, number, problem, context.clock()))
    return False


async def restore_in_place(
    context: Context, task: Task, ownership: Ownership, repo: Repo, workspace: Workspace, chosen: CheckpointChoice
) -> None:
    """Restore a checkpoint in an existing workspace. The current content is saved first, with the tip of its branch."""
    number = chosen.checkpoint.number
    # For example a disk that was not mounted: the files are there again, and no operator asked for a restore.
    if chosen.automatic:
        why = "its workspace is there again"
        await context.writer.write(
            lambda tx: tx.checkpoints.record_not_restored(ownership, number, why, context.clock())
        )
        return
    await _refuse_unreadable(context, task, repo, chosen)
    is_saved, told = chosen.saved, ""
    for left in reversed(range(TRIES)):
        if not is_saved:
            await _save_current_content(context, task, repo, workspace, chosen)
            await context.writer.write(lambda tx: tx.checkpoints.record_saved_content(ownership))
        try:
            told = await _restore(context, task, repo, workspace, chosen)
            break
        except UnsavedWork as error:  # a process changed files since: they are saved too
            is_saved = False
            if not left:
                raise LaunchError(
                    f"Task {task.id} cannot go back to checkpoint {number}, because another process works in "
                    f"{workspace.path}: {error}. Continue with the current files: `holdfast retry {task.id}`."
                ) from error
    how = f"{told}; the previous content is in `holdfast salvage list {task.id}`"
    await context.writer.write(
        lambda tx: tx.checkpoints.record_restored(ownership, number, workspace.id, how, context.clock())
    )


async def restore_in_new_workspace(
    context: Context, task: Task, ownership: Ownership, repo: Repo, workspace: Workspace, chosen: CheckpointChoice
) -> str | None:
    """Restore a checkpoint in a workspace that was just made. Return a description of the restore for people. None: the
    restore was given up, and an event was emitted."""
    number, strategy = chosen.checkpoint.number, context.ports.strategy_of(task.spec)
    if not chosen.automatic:
        await _refuse_unreadable(context, task, repo, chosen)
        if not await strategy.keeps_branch_commits(repo, workspace, chosen.checkpoint.commit):
            await _save_current_content(context, task, repo, workspace, chosen)  # commits that only its branch has
        return await _restore(context, task, repo, workspace, chosen)
    problem = await strategy.readable(repo, chosen.checkpoint.commit)
    if problem is None and not await strategy.keeps_branch_commits(repo, workspace, chosen.checkpoint.commit):
        problem = (
            f"{workspace.branch} has commits that are newer; see what it holds with "
            f"`holdfast diff {task.id} --checkpoint {number}`"
        )
    if problem is None:
        return await _restore(context, task, repo, workspace, chosen)
    said = problem
    await context.writer.write(lambda tx: tx.checkpoints.record_not_restored(ownership, number, said, context.clock()))
    return None


async def _save_current_content(
    context: Context, task: Task, repo: Repo, workspace: Workspace, chosen: CheckpointChoice
) -> None:
    number = chosen.checkpoint.number
    why = f"set aside: the task goes back to checkpoint {number}"
    problem = await save_work(context, task.spec, repo, workspace, why, over=chosen.checkpoint.commit)
    if problem is not None:
        raise LaunchError(
            f"Task {task.id} cannot go back to checkpoint {number}: {problem}. Nothing was changed in "
            f"{workspace.path}. Continue with the current files: `holdfast retry {task.id}`."
        )


async def _refuse_unreadable(context: Context, task: Task, repo: Repo, chosen: CheckpointChoice) -> None:
    number = chosen.checkpoint.number
    problem = await context.ports.strategy_of(task.spec).readable(repo, chosen.checkpoint.commit)
    if problem is not None:
        raise LaunchError(
            f"Task {task.id} cannot go back to checkpoint {number}: {problem}. Nothing was changed. "
            f"Continue with the current files: `holdfast retry {task.id}`."
        )


async def _restore(context: Context, task: Task, repo: Repo, workspace: Workspace, chosen: CheckpointChoice) -> str:
    try:
        return await context.ports.strategy_of(task.spec).go_back(
            repo, workspace, chosen.checkpoint.commit, salvage_rules(context, task)
        )
    except UnsavedWork:
        raise
    except WorkspaceProblem as error:
        if is_transient(error):
            raise  # the machine failed, not the task: it is tried again
        raise LaunchError(f"Checkpoint {chosen.checkpoint.number} could not be restored: {error}") from error


def salvage_rules(context: Context, task: Task) -> SalvageRules:
    return replace(task.spec.salvage, litter=litter_patterns(context, task.spec))
