"""What keeps the screens true: a thread that reads the store again when it changed, and hands over what it read.

The screens never read by themselves: a busy store, a slow disk or ten thousand tasks must not hold a key up. The feed
polls the store's version counter (a few microseconds), reads only for what is on screen, and never spends more than a
quarter of its time reading, so that a thousand events a second are a few readings.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.queries import Queries
from holdfast.errors import HoldfastError

LOOK_EVERY = 0.1  # seconds between two glances at the version counter
REST = 3.0  # times as long as it read, the feed rests
TRY_AGAIN = 1.0  # seconds until a store that could not be read is asked again
NOTHING_NEW = object()  # what a `read` returns that found what it had found before: nothing is delivered


@dataclass(eq=False)
class Watch:
    """Something on screen: `read` runs in the feed's thread, `deliver` in the app's, with what was read."""

    name: str
    read: Callable[[Queries], Any]
    deliver: Callable[[Any], None]
    every: float = math.inf  # also without a change in the store, after so many seconds: for what no event tells
    on_change: bool = True
    apart: bool = False  # slow (git, sizes of trees): in a thread of its own, so that nothing waits for it
    read_at: float = field(default=-math.inf, init=False)
    version: int = field(default=-1, init=False)  # of the store, when it was read
    in_hand: bool = field(default=False, init=False)  # being read, or not yet delivered: not read again meanwhile

    def is_due(self, version: int, now: float) -> bool:
        if self.in_hand:
            return False
        return (
            self.read_at == -math.inf
            or (self.on_change and version != self.version)
            or now >= self.read_at + self.every
        )

    def again(self) -> None:
        """Read it anew at the next glance, whatever the store says: what it reads depends on the screen too."""
        self.read_at = -math.inf


@dataclass(frozen=True)
class Trouble:
    """The store cannot be read at the moment; what is on screen is as old as that."""

    words: str
    since: float


class Feed:
    """`hand_over` is called in the feed's thread with a watch and what it read; `tell` with trouble, or None when it is
    over. Both only pass it on to the app's thread."""

    def __init__(
        self,
        home: str,
        hand_over: Callable[[Watch, Any], None],
        tell: Callable[[Trouble | None], None],
    ) -> None:
        self._home, self._hand_over, self._tell = home, hand_over, tell
        self._watches: tuple[Watch, ...] = ()
        self._ends = threading.Event()
        self._bell = threading.Event()
        self._trouble: Trouble | None = None
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._bell.set()
        self._thread.join(timeout=2)

    def attach(self, watches: Iterable[Watch]) -> None:
        self._watches = (*self._watches, *(watch for watch in watches if watch not in self._watches))
        self.look()

    def detach(self, watches: Iterable[Watch]) -> None:
        gone = tuple(watches)
        self._watches = tuple(watch for watch in self._watches if watch not in gone)

    def has(self, watch: Watch) -> bool:
        return watch in self._watches

    def look(self) -> None:
        """Now, not at the next glance."""
        self._bell.set()

    def _run(self) -> None:
        queries: Queries | None = None
        while not self._ends.is_set():
            began = time.monotonic()
            try:
                if queries is None:
                    queries = Queries(self._home)
                self._round(queries)
                self._say(None)
            except HoldfastError as error:
                queries = None
                self._say(str(error))
            self._bell.wait(TRY_AGAIN if queries is None else max(LOOK_EVERY, (time.monotonic() - began) * REST))
            self._bell.clear()

    def _round(self, queries: Queries) -> None:
        version, now = queries.data_version(), time.monotonic()
        for watch in self._watches:
            if self._ends.is_set():
                return
            if not watch.is_due(version, now):
                continue
            watch.in_hand, watch.version, watch.read_at = True, version, now
            if watch.apart:
                threading.Thread(target=self._errand, args=(watch,), name=watch.name, daemon=True).start()
            else:
                self._read(watch, queries)

    def _read(self, watch: Watch, queries: Queries) -> None:
        try:
            value = watch.read(queries)
        except BaseException:
            watch.in_hand, watch.read_at = False, -math.inf
            raise
        if value is NOTHING_NEW:
            watch.in_hand = False
        else:
            self._hand_over(watch, value)

    def _errand(self, watch: Watch) -> None:
        try:
            self._read(watch, Queries(self._home))
        except HoldfastError as error:
            watch.read_at = time.monotonic()  # when it is due again, or the store changed
            self._say(str(error))

    def _say(self, words: str | None) -> None:
        if words is None and self._trouble is not None:
            self._trouble = None
            self._tell(None)
        elif words is not None and (self._trouble is None or self._trouble.words != words):
            self._trouble = Trouble(words, self._trouble.since if self._trouble else time.time())
            self._tell(self._trouble)
