"""The start-up sweep: compares the ledger with what is on disk, and says what it found.

What the ledger knows and has finished with is removed by the clean-up service. What it does not know is foreign:
reported, never touched.
"""

from __future__ import annotations

import os
import time

from holdfast.core.model import Event, Level
from holdfast.core.states import WorkspaceState
from holdfast.folders import listed
from holdfast.supervisor.context import Context

MANY, VERY_MANY = 10, 100


async def sweep(context: Context) -> None:
    began = time.monotonic()
    await context.writer.write(lambda tx: tx.workspaces.retry_at_once())
    known = await context.writer.write(lambda tx: tx.workspaces.open_ones())
    backlog = await context.writer.write(lambda tx: tx.workspaces.to_clean(context.clock()))
    paths = {workspace.path for workspace in known}
    foreign = [path for path in _directories(os.path.join(context.home, "workspaces")) if path not in paths]
    open_runs = await context.writer.write(lambda tx: tx.runs.open_ids())
    cgroups = context.processes.sweep(open_runs)
    preserved = sum(1 for workspace in known if workspace.state is WorkspaceState.PRESERVED)
    data = {
        "backlog_count": len(backlog),
        "foreign": foreign,
        "preserved": preserved,
        "cgroups_removed": cgroups,
        "duration_ms": round((time.monotonic() - began) * 1000, 1),
    }
    level, warning = Level.INFO, ""
    if len(backlog) > MANY:
        level, warning = Level.WARNING, " A crash storm is likely."
    if len(backlog) > VERY_MANY:
        warning += " They are removed in the background, which takes a while."
    message = (
        f"worktree sweep complete: {len(backlog)} to remove, {preserved} preserved, {len(foreign)} foreign.{warning}"
    )
    await context.writer.write(
        lambda tx: tx.events.emit(
            Event(kind="sweep.completed", level=level, component="sweep", message=message, data=data), context.clock()
        )
    )


def _directories(root: str) -> list[str]:
    """Workspace directories: two levels down, without our trash."""
    found: list[str] = []
    for repo in listed(root):
        if not repo.startswith("."):
            folder = os.path.join(root, repo)
            found.extend(
                os.path.join(folder, name) for name in listed(folder) if os.path.isdir(os.path.join(folder, name))
            )
    return found
