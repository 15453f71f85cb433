"""The fence: only the present owner of a running task may write about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from holdfast.base.errors import Conflict, NotOwner
from holdfast.store.port.transaction import Ownership
from holdfast.store.sqlite.engine.statements import Statements


def require_owner(tasks: Statements, grip: Ownership) -> None:
    """Raise NotOwner unless the ownership `grip` is still valid. The write is in the same transaction, so nothing
    can happen in between."""
    if tasks.row("check_owner", id=grip.task_id, fence=grip.fence, owner=grip.owner) is None:
        raise not_owner(grip)


@contextmanager
def conflict_on_duplicate(message: str) -> Iterator[None]:
    """Turn a violated constraint of the database into Conflict, so that callers do not see the driver's error."""
    try:
        yield
    except apsw.ConstraintError as error:
        raise Conflict(message) from error


def not_owner(grip: Ownership) -> NotOwner:
    return NotOwner(
        f"Task {grip.task_id} is no longer held by {grip.owner} under fence {grip.fence}; the write was refused."
    )
