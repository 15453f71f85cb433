"""The feed: a thread that reads the store again when the store has changed, and passes the result to the screens.

The screens never read the store themselves: a busy store, a slow disk or ten thousand tasks must not delay a key.
The feed polls the store's version counter, which takes a few microseconds. It reads only what is on screen. It spends
at most a quarter of its time reading, so a thousand events a second cause only a few readings.

No error ends the feed. If the store is busy, gone, replaced or upgraded, the feed shows a message and tries again.
A problem of one screen does not affect another screen.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

from holdfast.api.queries import Queries
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import HoldfastError, NewerStore, Unavailable

LOOK_EVERY = 0.1  # seconds between two polls of the version counter
LOOK_SELDOM = 0.25  # seconds between two polls when the store has not changed for WHILE
QUIET_AFTER = 2.0  # seconds
REST_FACTOR = 3.0  # the feed rests this many times as long as it read
MOST_REST = 2.0  # seconds; a machine that was frozen for a while must not make the feed rest three times as long
MOST_REST_APART = 30.0  # seconds; the same limit for watches with a thread of their own
TRY_AGAIN = 1.0  # seconds until a failed reading is repeated
STORE_KEY = ""  # the key of the problem that concerns all screens
NOTHING_NEW = object()  # returned by a `read` whose result is the same as before: nothing is delivered


@dataclass(eq=False)
class Watch:
    """One thing on screen that is read from the store.

    `read` runs in the feed's thread. `deliver` runs in the app's thread and gets the result of `read`.
    `fail` gets the message when the reading failed for a reason of this watch, for example because its task is gone.
    Without `fail` the header shows that message. A store that cannot be read at all is a problem of the feed.
    """

    name: str
    read: Callable[[Queries], Any]
    deliver: Callable[[Any], None]
    every: float = math.inf  # seconds; read also without a change in the store, for facts that no event reports
    on_change: bool = True
    apart: bool = False  # slow (git, sizes of trees): read in a thread of its own, so that nothing waits for it
    gap: float = 0.0  # least seconds between two readings, however much changes
    fail: Callable[[str], None] | None = None
    read_at: float = field(default=-math.inf, init=False)
    version: int = field(default=-1, init=False)  # version of the store at the last reading
    in_hand: bool = field(default=False, init=False)  # being read or not yet delivered: not read again until then
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
        """Read again at the next poll, even if the store has not changed: the result depends on the screen too."""
        self.read_at = self.not_before = -math.inf

    def go_on(self) -> None:
        """Read the next part at the first poll after this watch's pause.

        The pause follows every reading, so that an agent that floods its log does not keep the feed busy.
        """
        self.read_at = -math.inf


@dataclass(frozen=True)
class Trouble:
    """A problem with reading. The screen shows data from before `since`."""

    words: str
    since: float
    is_of_all: bool = True  # False: one part of the present screen cannot be read, the rest can


@dataclass(frozen=True)
class Failure:
    """The message of a failed reading, handed over in place of a value."""

    words: str


class Feed:
    """The thread that reads for all watches.

    `hand_over` is called in the feed's thread with a watch and its value.
    `tell` is called in the feed's thread with the present problem, or with None when the problem is over.
    Both only pass their arguments on to the app's thread.
    """

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
        self._telling = threading.Lock()  # several threads report problems
        self._began = math.inf  # when the present round of reading began
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
            watch.version = -1  # its version may come from another connection, and each connection counts for itself
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
        """Poll the store now instead of at the next interval."""
        self._bell.set()

    def waits_for(self) -> float:
        """Return for how many seconds the present reading has waited. A locked store raises no error by itself."""
        return max(0.0, time.monotonic() - self._began)

    # -- in the feed's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        queries: Queries | None = None
        while not self._ends.is_set():
            self._began, worked = time.monotonic(), time.thread_time()
            try:
                queries = self._opened(queries)
                self._round(queries)
                self._say(STORE_KEY, None)
            except Exception as error:  # noqa: BLE001 - the screen shows any error, and the feed tries again
                if queries is not None:
                    queries.close()
                queries = None
                self._say(STORE_KEY, _describe_error(error))
            self._began = math.inf
            rest = min(
                MOST_REST, (time.thread_time() - worked) * REST_FACTOR
            )  # CPU time, not wall time: waiting uses no CPU
            self._bell.wait(TRY_AGAIN if queries is None else max(self._look_every(), rest))
            self._bell.clear()
        if queries is not None:
            queries.close()

    def _look_every(self) -> float:
        """Return the poll interval. It is longer when nothing happens: a wake-up costs more than the poll itself."""
        return LOOK_EVERY if time.monotonic() - self._changed_at < QUIET_AFTER else LOOK_SELDOM

    def _opened(self, queries: Queries | None) -> Queries:
        if queries is not None and queries.is_current():
            return queries
        if queries is not None:
            queries.close()
        queries = Queries(self._home)
        for watch in self._watches:
            watch.version = -1  # each connection counts its versions for itself
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
        """Hand over the value that was read, or a Failure. Raise only errors that concern the whole store."""
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
        except Exception as error:  # noqa: BLE001 - a defect of Holdfast in one reading must not end the others
            value = Failure(f"Reading the {watch.name} failed because of a defect in Holdfast: {_name_error(error)}")
        ended = time.monotonic()
        failed = isinstance(value, Failure)
        if failed:
            watch.read_at = -math.inf
        # In a thread apart, git or the disk does the work, so the CPU time of this thread would be too short.
        spent = ended - began if watch.apart else time.thread_time() - worked
        rest = min(MOST_REST_APART if watch.apart else MOST_REST, REST_FACTOR * spent)
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
        except Exception as error:  # noqa: BLE001 - the screen shows any error, and the feed tries again
            watch.in_hand, watch.not_before = False, time.monotonic() + TRY_AGAIN
            self._say_of(watch, _describe_error(error))
        finally:
            if queries is not None:
                queries.close()

    # -- problems ------------------------------------------------------------------------------------------------------

    def _say_of(self, watch: Watch, words: str | None) -> None:
        """Record the problem of a watch, or None when the problem is over.

        A detached watch is ignored: a reading may end after its screen was left, and nothing would clear the problem.
        """
        self._say(watch.name, words, watch)

    def _say(self, key: str, words: str | None, watch: Watch | None = None) -> None:
        with self._telling:
            if watch is not None and watch not in self._watches:
                words = None
            known = self._troubles.get(key)
            if words is None:
                self._troubles.pop(key, None)
            elif known is None or known.words != words:
                self._troubles[key] = Trouble(words, known.since if known else time.time(), key == STORE_KEY)
            worst = self._troubles[min(self._troubles)] if self._troubles else None  # the store's problem comes first
            if worst != self._told:
                self._told = worst
                self._tell(worst)


def _describe_error(error: Exception) -> str:
    if isinstance(error, NewerStore):
        return f"{error} If you have upgraded: leave with q and start `holdfast top` again."
    return str(error) if isinstance(error, HoldfastError) else f"The store cannot be read: {_name_error(error)}"


def _name_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
