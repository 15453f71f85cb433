"""How many agents may run at once: tasks have a place each by their claim, members of parallel stages take free ones.

A group's own claim is its first place, so it always gets on. Further members go before tasks that have not begun: the
group's time runs. Nothing is taken while a claim is under way, whose task has no place yet: `--agents` is
never exceeded.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator


class Places:
    """Of one supervisor. Changed in the loop's thread only; claims read it in the writer's."""

    def __init__(self) -> None:
        self.room: Callable[[], float] = lambda: math.inf  # for anonymous agents, without those of groups
        self._taken = 0
        self._wanted = 0
        self._claims = 0
        self._bells: dict[object, Callable[[], None]] = {}

    @property
    def for_groups(self) -> int:
        """That a claim must not count on: taken, or waited for by a group that is under way."""
        return self._taken + self._wanted

    def take(self) -> bool:
        """A further place for a member."""
        if self._claims or self._taken >= self.room():
            return False
        self._taken += 1
        return True

    def take_anyway(self) -> None:
        """For a member that runs already: its supervisor is another one now."""
        self._taken += 1

    def give_back(self, count: int = 1) -> None:
        self._taken -= count
        if count:
            self.changed()

    def want(self, more: int) -> None:
        """How many more (or fewer) members wait for a place."""
        self._wanted += more

    @contextlib.contextmanager
    def claiming(self) -> Iterator[None]:
        self._claims += 1
        try:
            yield
        finally:
            self._claims -= 1
            if self._wanted:
                self.changed()

    def changed(self) -> None:
        """There may be room: whoever waits for it looks."""
        for ring in list(self._bells.values()):
            ring()

    @contextlib.contextmanager
    def watched(self, ring: Callable[[], None]) -> Iterator[None]:
        key = object()
        self._bells[key] = ring
        try:
            yield
        finally:
            del self._bells[key]
