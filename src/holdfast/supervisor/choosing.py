"""Which account a run gets."""

from __future__ import annotations

from holdfast.core.model import Task
from holdfast.supervisor.context import Context


def choose(context: Context, task: Task) -> str | None:
    """None: its agent needs no login."""
    named = task.spec.agent_options.get("account")
    if isinstance(named, str) and named:
        return named
    return next(iter(context.accounts.choosable(task.spec.agent)), None)
