"""The contract of a service of the supervisor. daemon.py loops over a list of services.

A service has one duty. The daemon calls `tick` whenever something may have changed, and at the latest after the seconds
that `next_wake` returned. A tick returns soon: long work runs in asyncio tasks, which the service lists in `tasks`. At
the end the daemon cancels those tasks and calls `close`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from holdfast.base.instant import Instant
from holdfast.store.port.transaction import Transaction

SOON = 0.01  # seconds; a moment that has passed is looked at again after this


class Service:
    """A duty of the supervisor. Each method has a default, so a service defines only what it needs."""

    async def tick(self) -> None:
        """Look at the store and the machine, and begin the work that is due."""

    async def next_wake(self) -> float:
        """Return the seconds until something is due by itself. Infinity: only a ring of the bell wakes the service."""
        return math.inf

    @property
    def busy(self) -> bool:
        """True while work is under way that an idle supervisor (`--idle-exit`) waits for."""
        return False

    def owed(self, tx: Transaction) -> int:
        """Count work in the store that keeps an idle supervisor running. Called in the transaction that signs the
        supervisor off."""
        return 0

    @property
    def tasks(self) -> Sequence[asyncio.Task[Any]]:
        """The asyncio tasks that run for this service now."""
        return ()

    def close(self) -> None:
        """Release what the service holds. Called once, after its tasks have ended."""


def seconds_until(moment: float | None, now: Instant) -> float:
    """Return the seconds until a wall time. Infinity: `moment` is None."""
    return math.inf if moment is None else max(SOON, moment - now.wall)
