"""The fence: only the present owner of a running task may write about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from holdfast.base.errors import Conflict, NotOwner
from holdfast.store.port.transaction import Ownership
from holdfast.store.sqlite.engine.statements import Statements


def require_owner(tasks: Statements, ownership: Ownership) -> None:
    """Raise NotOwner unless `ownership` is still valid. The caller writes in the same transaction, so the owner cannot
    change in between."""
    if tasks.row("check_owner", id=ownership.task_id, fence=ownership.fence, owner=ownership.owner) is None:
        raise not_owner(ownership)


@contextmanager
def conflict_on_duplicate(message: str) -> Iterator[None]:
    """Turn a violated constraint of the database into Conflict, so that callers do not see the driver's error."""
    try:
        yield
    except apsw.ConstraintError as error:
        raise Conflict(message) from error


def not_owner(ownership: Ownership) -> NotOwner:
    return NotOwner(
        f"Task {ownership.task_id} is no longer held by {ownership.owner} under fence {ownership.fence}; "
        "the write was refused."
    )
