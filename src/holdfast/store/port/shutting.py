"""What a store must do for accounts that are not used for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.dispatch.accounts import ShutAccount
from holdfast.core.model import Instant, Task


def account_alert(full_name: str) -> str:
    """The key of the alert that an account does not work; it is closed when a run under it completes."""
    return f"account:{full_name}"


class Accounts(Protocol):
    """Accounts that are not used for a while; they are shut by `tasks.settle`."""

    def shut(self, now: Instant) -> Sequence[ShutAccount]: ...
    def open_due(self, now: Instant) -> Sequence[str]:
        """Those whose time has come are open again; their full names."""
        ...

    def resume(self, agent: str, name: str, by: str, now: Instant) -> Sequence[str]:
        """An operator opens one. The tasks that were paused because of it and wait for a person."""
        ...

    def keeping_back(self, task: Task, now: Instant) -> ShutAccount | None:
        """The shut account because of which a paused task waits."""
        ...
