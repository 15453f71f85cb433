"""Actions in threads of their own: no key waits for them. Who leaves the screen gives them a moment, but does not wait
as long as a locked store does: every command may be cut off at any point, and then has happened or has not."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.api.queries import Queries
from holdfast.tui.actions.handlers import Asked
from holdfast.tui.feed import Feed, Watch

if TYPE_CHECKING:
    from holdfast.api.requests import RequestOutcome

T = TypeVar("T")
SLOW = 2.0  # seconds after which somebody who waits for it is told
FINISH = 5.0  # seconds that leaving waits


class Errands:
    """Textual's own threads are waited for at the end, however long that takes."""

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()

    async def run(self, do: Callable[[], T], when_slow: Callable[[], None]) -> T:
        """In the app's thread: what `do` returned, or what it raised. `when_slow` is called if that takes a while."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        done.add_done_callback(_look)

        def settle(settler: Callable[[], None]) -> None:
            def in_loop() -> None:
                if not done.done():  # the app left meanwhile
                    settler()

            with contextlib.suppress(RuntimeError):  # its loop is closed already
                loop.call_soon_threadsafe(in_loop)

        def work() -> None:
            try:
                value = do()
            except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
                failure = error
                settle(lambda: done.set_exception(failure))
            else:
                settle(lambda: done.set_result(value))

        thread = threading.Thread(target=work, name="errand", daemon=True)
        self._threads = {one for one in self._threads if one.is_alive()} | {thread}
        thread.start()
        finished, _ = await asyncio.wait({done}, timeout=SLOW)
        if not finished:
            when_slow()
        return await done

    def finish(self, patience: float = FINISH) -> bool:
        """Whether all of them are over, at most so many seconds later."""
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def _look(done: asyncio.Future[T]) -> None:
    """Nobody waits for it when the app left meanwhile: then asyncio would complain to the terminal."""
    if not done.cancelled():
        done.exception()


Answer = tuple[Asked, "RequestOutcome"]


class Answers:
    def __init__(self, feed: Feed, done: Callable[[str], None], refused: Callable[[str, str], None]) -> None:
        self._feed, self._done, self._refused = feed, done, refused
        self._asked: tuple[Asked, ...] = ()
        self._watch = Watch("answers", self._read, self._seen)

    def wait_for(self, asked: Asked) -> None:
        self._asked = (*self._asked, asked)
        self._watch.again()
        self._feed.attach((self._watch,))

    def _read(self, queries: Queries) -> list[Answer]:
        """In the feed's thread."""
        from holdfast.api.requests import find_outcome  # the first picture does not wait for this import

        found = ((asked, find_outcome(queries, asked.number, asked.kind, asked.task)) for asked in self._asked)
        return [(asked, outcome) for asked, outcome in found if outcome is not None]

    def _seen(self, answers: list[Answer]) -> None:
        for asked, outcome in answers:
            if asked in self._asked:
                self._asked = tuple(other for other in self._asked if other is not asked)
                if outcome.is_done:
                    self._done(outcome.message)
                else:
                    self._refused(asked.kind.capitalize(), outcome.message)
        if not self._asked:
            self._feed.detach((self._watch,))
