"""The slots: how many agents may run at once. A task gets a slot with its claim, and members of parallel stages take
free slots.

The claim of a parallel stage is its first slot, so the stage always makes progress. Further members come before tasks
that have not begun, because the time of their stage runs. No member takes a slot while a claim is under way, because
the claimed task has no slot yet. So `--agents` is never exceeded.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator


class Slots:
    """The slots of one supervisor. They change only in the event loop's thread. Claims read them in the writer's
    thread."""

    def __init__(self) -> None:
        self.room: Callable[[], float] = lambda: math.inf  # slots that tasks leave free, members not counted
        self._taken = 0
        self._wanted = 0
        self._claims = 0
        self._bells: dict[object, Callable[[], None]] = {}

    @property
    def reserved_for_members(self) -> int:
        """The number of slots that a claim must not use: members have taken them, or a stage that is under way waits
        for them."""
        return self._taken + self._wanted

    def take(self) -> bool:
        """Take one more slot for a member of a parallel stage. Return False if none is free."""
        if self._claims or self._taken >= self.room():
            return False
        self._taken += 1
        return True

    def take_adopted(self) -> None:
        """Take a slot for a member that already runs: it was adopted from an earlier supervisor."""
        self._taken += 1

    def give_back(self, count: int = 1) -> None:
        self._taken -= count
        if count:
            self.changed()

    def change_wanted(self, more: int) -> None:
        """Change the number of members that wait for a slot."""
        self._wanted += more

    @contextlib.contextmanager
    def block_during_claim(self) -> Iterator[None]:
        self._claims += 1
        try:
            yield
        finally:
            self._claims -= 1
            if self._wanted:
                self.changed()

    def changed(self) -> None:
        """Wake everything that waits for a slot, because one may be free."""
        for ring in list(self._bells.values()):
            ring()

    @contextlib.contextmanager
    def notify_on_change(self, ring: Callable[[], None]) -> Iterator[None]:
        key = object()
        self._bells[key] = ring
        try:
            yield
        finally:
            del self._bells[key]
