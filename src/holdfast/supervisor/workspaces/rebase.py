"""The rebase of a task's branch that a person asked for.

The base is brought into the workspace before the run. After it the branch is compared with the base.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.base.errors import HoldfastError
from holdfast.base.text import one_line
from holdfast.core.model import Repo, Task, Workspace
from holdfast.core.tasks.messages import is_rebase_request
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.workspaces.port import BaseComparison

MOST_NAMED = 5  # files with conflicts in a reason


async def bring_base(context: Context, task: Task) -> None:
    """Make the present commit of the base available in the workspace of a task that is asked to rebase."""
    found = await context.writer.write(lambda tx: _read_request(tx, task.id))
    if found is not None:
        repo, workspace, base = found
        await context.ports.strategy_of(task.spec).bring_base(repo, workspace, base)


async def compare_rebased(context: Context, task: Task) -> BaseComparison | None:
    """Compare the saved branch of a task that was asked to rebase with its base. None: not asked, or unknown."""
    found = await context.writer.write(lambda tx: _read_request(tx, task.id))
    if found is None:
        return None
    repo, workspace, base = found
    try:
        return await context.ports.strategy_of(task.spec).compare_with_base(repo, workspace, base)
    except (HoldfastError, OSError):
        return None  # the repository cannot be read: the settlement does not depend on it


def _read_request(tx: Transaction, task_id: str) -> tuple[Repo, Workspace, str] | None:
    """Return the repository, the workspace and the base, if the newest message of the task asks for a rebase."""
    messages, workspace = tx.messages.of_task(task_id), tx.workspaces.current(task_id)
    if not messages or not is_rebase_request(messages[-1].text) or workspace is None or workspace.branch is None:
        return None
    spec = tx.tasks.get(task_id).spec
    return tx.workspaces.repo(spec.repo_id), workspace, spec.base_ref


def describe_conflicts(base: str, names: Sequence[str]) -> str:
    """Return "its branch still conflicts with main: a.py, b.py"."""
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"its branch still conflicts with {base}: {', '.join(one_line(name, 80) for name in names[:MOST_NAMED])}{more}"
    )
