"""The fence: a write about a running task happens only for its present owner."""

from __future__ import annotations

from holdfast.errors import NotOwner
from holdfast.store.port import Grip
from holdfast.store.sqlite.cursor import Cursor


def require_owner(tasks: Cursor, grip: Grip) -> None:
    """Raise NotOwner unless `grip` still holds. Same transaction as the write, so nothing can come between."""
    if tasks.row("check_owner", id=grip.task_id, fence=grip.fence, owner=grip.owner) is None:
        raise refused(grip)


def refused(grip: Grip) -> NotOwner:
    return NotOwner(
        f"Task {grip.task_id} is no longer held by {grip.owner} under fence {grip.fence}; the write was refused."
    )
