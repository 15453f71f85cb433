"""What keeps the screens true: a thread that reads the store again when it changed, and hands over what it read.

The screens never read by themselves: a busy store, a slow disk or ten thousand tasks must not hold a key up. The feed
polls the store's version counter (a few microseconds), reads only for what is on screen, and never spends more than a
quarter of its time reading, so that a thousand events a second are a few readings.

Nothing ends it: a store that is busy, gone, replaced or upgraded is trouble in words, and asked again; one screen's
trouble is not another's.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.queries import Queries
from holdfast.base.errors import HoldfastError, NewerStore, Unavailable

LOOK_EVERY = 0.1  # seconds between two glances at the version counter
LOOK_SELDOM = 0.25  # likewise, when the store has not changed for a while
WHILE = 2.0  # seconds
REST = 3.0  # times as long as it read, the feed rests
MOST_REST = 2.0  # seconds; a machine that stands still for a while must not make us stand still for three
MOST_REST_APART = 30.0
TRY_AGAIN = 1.0  # seconds until what could not be read is asked again
OF_THE_STORE = ""  # the key of the trouble that all screens have
NOTHING_NEW = object()  # what a `read` returns that found what it had found before: nothing is delivered


@dataclass(eq=False)
class Watch:
    """Something on screen: `read` runs in the feed's thread, `deliver` in the app's, with what was read.

    `fail` gets the words when it could not be read for a reason of its own (its task is gone, say); without it they
    stand in the header. A store that cannot be read at all is the feed's trouble, not the watch's."""

    name: str
    read: Callable[[Queries], Any]
    deliver: Callable[[Any], None]
    every: float = math.inf  # also without a change in the store, after so many seconds: for what no event tells
    on_change: bool = True
    apart: bool = False  # slow (git, sizes of trees): in a thread of its own, so that nothing waits for it
    gap: float = 0.0  # seconds between two readings at least, however much changes
    fail: Callable[[str], None] | None = None
    read_at: float = field(default=-math.inf, init=False)
    version: int = field(default=-1, init=False)  # of the store, when it was read
    in_hand: bool = field(default=False, init=False)  # being read, or not yet delivered: not read again meanwhile
    not_before: float = field(default=-math.inf, init=False)

    def is_due(self, version: int, now: float) -> bool:
        if self.in_hand or now < self.not_before:
            return False
        return (
            self.read_at == -math.inf
            or (self.on_change and version != self.version)
            or now >= self.read_at + self.every
        )

    def again(self) -> None:
        """Read it anew at the next glance, whatever the store says: what it reads depends on the screen too."""
        self.read_at = self.not_before = -math.inf

    def go_on(self) -> None:
        """There is more: read it at the next glance, after the rest that is due. An agent that floods its log keeps
        nobody busy."""
        self.read_at = -math.inf


@dataclass(frozen=True)
class Trouble:
    """Something cannot be read at the moment; what is on screen is as old as that."""

    words: str
    since: float
    is_of_all: bool = True  # False: only of something on the present screen; the rest is read


@dataclass(frozen=True)
class Failure:
    """Handed over in a value's place."""

    words: str


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
        self._troubles: dict[str, Trouble] = {}
        self._told: Trouble | None = None
        self._telling = threading.Lock()  # actions have troubles too
        self._began = math.inf  # when the present glance at the store began
        self._version, self._changed_at = -1, -math.inf
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._bell.set()
        self._thread.join(timeout=2)

    def attach(self, watches: Iterable[Watch]) -> None:
        new = tuple(watch for watch in watches if watch not in self._watches)
        for watch in new:
            watch.version = -1  # it may be of another connection, which counts anew
        self._watches = (*self._watches, *new)
        self.look()

    def detach(self, watches: Iterable[Watch]) -> None:
        gone = tuple(watches)
        self._watches = tuple(watch for watch in self._watches if watch not in gone)
        for watch in gone:
            self._say_of(watch, None)

    def has(self, watch: Watch) -> bool:
        return watch in self._watches

    def look(self) -> None:
        """Now, not at the next glance."""
        self._bell.set()

    def waits_for(self) -> float:
        """Seconds that the store has let the present reading wait; a locked store says nothing by itself."""
        return max(0.0, time.monotonic() - self._began)

    # -- in the feed's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        queries: Queries | None = None
        while not self._ends.is_set():
            self._began, worked = time.monotonic(), time.thread_time()
            try:
                queries = self._opened(queries)
                self._round(queries)
                self._say(OF_THE_STORE, None)
            except Exception as error:  # noqa: BLE001 - whatever it is, the screen says it and it is tried again
                if queries is not None:
                    queries.close()
                queries = None
                self._say(OF_THE_STORE, _words(error))
            self._began = math.inf
            rest = min(
                MOST_REST, (time.thread_time() - worked) * REST
            )  # not by the clock: waiting costs nobody anything
            self._bell.wait(TRY_AGAIN if queries is None else max(self._look_every(), rest))
            self._bell.clear()
        if queries is not None:
            queries.close()

    def _look_every(self) -> float:
        """A wake-up costs more than the glance itself: where nothing happens there are fewer."""
        return LOOK_EVERY if time.monotonic() - self._changed_at < WHILE else LOOK_SELDOM

    def _opened(self, queries: Queries | None) -> Queries:
        if queries is not None and queries.is_current():
            return queries
        if queries is not None:
            queries.close()
        queries = Queries(self._home)
        for watch in self._watches:
            watch.version = -1  # another connection counts anew
        return queries

    def _round(self, queries: Queries) -> None:
        version, now = queries.data_version(), time.monotonic()
        if version != self._version:
            self._version, self._changed_at = version, now
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
        """Hands over what was read, or why not. Raises only what is the store's trouble."""
        began, worked = time.monotonic(), time.thread_time()
        value: Any
        try:
            value = watch.read(queries)
        except Unavailable:
            watch.in_hand, watch.read_at = False, -math.inf
            raise
        except HoldfastError as error:
            value = Failure(str(error))
        except OSError as error:
            value = Failure(f"The {watch.name} cannot be read: {error.strerror or error} ({error.filename or '-'}).")
        except Exception as error:  # noqa: BLE001 - a mistake of ours in one reading must not end all the others
            value = Failure(f"Reading the {watch.name} failed, by a mistake in Holdfast: {_named(error)}")
        ended = time.monotonic()
        failed = isinstance(value, Failure)
        if failed:
            watch.read_at = -math.inf
        spent = ended - began if watch.apart else time.thread_time() - worked  # apart, others do the work: git, a disk
        rest = min(MOST_REST_APART if watch.apart else MOST_REST, REST * spent)
        watch.not_before = ended + max(watch.gap, TRY_AGAIN if failed else 0.0, rest)
        self._say_of(watch, value.words if failed and watch.fail is None else None)
        if value is NOTHING_NEW:
            watch.in_hand = False
        else:
            self._hand_over(watch, value)

    def _errand(self, watch: Watch) -> None:
        queries: Queries | None = None
        try:
            queries = Queries(self._home)
            self._read(watch, queries)
        except Exception as error:  # noqa: BLE001 - likewise
            watch.in_hand, watch.not_before = False, time.monotonic() + TRY_AGAIN
            self._say_of(watch, _words(error))
        finally:
            if queries is not None:
                queries.close()

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _say_of(self, watch: Watch, words: str | None) -> None:
        """A reading may end when its screen is left already: nobody would ever take back what it says then."""
        self._say(watch.name, words, watch)

    def _say(self, key: str, words: str | None, watch: Watch | None = None) -> None:
        with self._telling:
            if watch is not None and watch not in self._watches:
                words = None
            known = self._troubles.get(key)
            if words is None:
                self._troubles.pop(key, None)
            elif known is None or known.words != words:
                self._troubles[key] = Trouble(words, known.since if known else time.time(), key == OF_THE_STORE)
            worst = self._troubles[min(self._troubles)] if self._troubles else None  # the store's comes first
            if worst != self._told:
                self._told = worst
                self._tell(worst)


def _words(error: Exception) -> str:
    if isinstance(error, NewerStore):
        return f"{error} If that was done: leave with q and start `holdfast top` again."
    return str(error) if isinstance(error, HoldfastError) else f"The store cannot be read: {_named(error)}"


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
