"""Checkpoints of a task: a list of them, and a check that one can be restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.queries import Queries
from holdfast.base.errors import NotFound, Refused

if TYPE_CHECKING:
    from holdfast.api.tasks.models import TaskDetails
    from holdfast.api.work.models import CheckpointRow


def find_checkpoint(queries: Queries, task_id: str, number: int) -> CheckpointRow:
    """Return one checkpoint of a task. Raises NotFound."""
    rows = queries.checkpoints(task_id)
    for row in rows:
        if row["number"] == number:
            return row
    kept = f"kept are {', '.join(str(row['number']) for row in rows)}" if rows else "none is kept"
    raise NotFound(f"Task {task_id} has no checkpoint {number}: {kept} (`holdfast show {task_id}`).")


def refuse_unreadable(queries: Queries, task_id: str, number: int) -> None:
    """Raise NotFound if the checkpoint does not exist, and Refused if the checkpoint cannot be read. The check comes
    before anything is spent (R-RES-06)."""
    import asyncio

    from holdfast.api.work.git_runner import run_here
    from holdfast.core.model import Repo
    from holdfast.workspaces.git.git import Git
    from holdfast.workspaces.snapshots.checkpoint_restore import unreadable

    row = find_checkpoint(queries, task_id, number)
    found = next(one for one in queries.repos() if one["id"] == row["repo_id"])
    repo = Repo(id=found["id"], path=found["path"], common_dir=found["common_dir"])
    problem = asyncio.run(unreadable(Git(run_here), queries.home, repo, row["commit"]))
    if problem is not None:
        raise Refused(
            f"Checkpoint {number} of task {task_id} cannot be restored: {problem}. Nothing was changed. Choose "
            f"another one (`holdfast show {task_id}`), or continue with the current files: `holdfast resume {task_id}`."
        )


def checkpoint_lines(task: TaskDetails) -> list[str]:
    """Return one line for each checkpoint, or why the task has none."""
    from holdfast.api.format import moment

    if task["workspace"]["strategy"] == "none":
        return ["no checkpoints: its agent works in your own checkout"] if task["runs"] else []
    return [
        f"checkpoint {row['number']}  {moment(row['at'])}  {row['why']}  {row['files']} file(s)"
        f"{', in part' if row['partial'] else ''}  {row['commit'][:12]}"
        for row in task["checkpoints"]
    ]
