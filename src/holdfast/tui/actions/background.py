"""Actions in threads of their own: no key waits for them. Who leaves the screen gives them a moment, but does not wait
as long as a locked store does: every command may be cut off at any point, and then has happened or has not."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import TypeVar

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
