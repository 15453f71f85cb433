"""The runner of actions: asks the user first where needed, runs the action in a thread, and shows its result.

If an action only recorded a request to the supervisor, the runner waits for the answer and shows that too.
No key waits for the store. Leaving `top` waits a few seconds for running actions, but less long than a locked store
could last. Each action is one transaction, so cutting an action off is safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import SuspendNotSupported

from holdfast.api.queries import Queries
from holdfast.base.errors import HoldfastError, Refused, Unavailable
from holdfast.tui.actions.handlers import ActionResult, Asked, task_of
from holdfast.tui.actions.table import Action
from holdfast.tui.feed import Feed, Watch
from holdfast.tui.widgets.dialogs import Asking, Question

if TYPE_CHECKING:
    from holdfast.api.requests import RequestOutcome
    from holdfast.tui.app import Top

Row = dict[str, Any]
T = TypeVar("T")
SLOW = 2.0  # seconds after which a message reports that an action is not done yet
FINISH = 5.0  # seconds that leaving waits


class ActionRunner:
    """The runner of the actions of one app."""

    def __init__(self, app: Top) -> None:
        self._app = app
        self.threads = ActionThreads()
        self._requests = PendingRequests(
            app.feed, app.show_message, lambda what, why: app.refuse(what, why, is_unchanged=False)
        )
        self._running: set[tuple[str, str]] = set()  # by name and subject

    def act(self, action: Action, subject: Row) -> None:
        """Start the action, unless the same one is running: a key that is pressed twice acts once."""
        which = (action.name, str(subject.get("id", subject.get("name"))))
        if which not in self._running:
            self._running.add(which)
            self._app.run_worker(self._act(action, subject, which), group="actions", exit_on_error=True)

    async def _act(self, action: Action, subject: Row, which: tuple[str, str]) -> None:
        try:
            result = await self._carry_out(action, subject)
        except Exception as error:  # noqa: BLE001 - any error is shown, and the screen stays
            message, is_unchanged = _describe_error(error)
            self._app.refuse(action.label, message, is_unchanged=is_unchanged)
            return
        finally:
            self._running.discard(which)
        self._app.feed.look()
        if isinstance(result, Asked):
            self._requests.wait_for(result)
            self._app.show_message(result.message)
        elif result:
            self._app.show_message(result)

    async def _carry_out(self, action: Action, subject: Row) -> ActionResult:
        """Return the message of the action, or an empty message if the user answered no."""
        home = self._app.home
        if action.question is not None:
            question = await self._in_thread(action, partial(action.question, home, subject))
            if question is not None and await self._app.push_screen_wait(Question(question)) is None:
                return ""
        if action.asks:
            answer = await self._app.push_screen_wait(Asking(action.asks))
            if answer is None:
                return ""
            subject = {**subject, "answer": answer}
        if action.in_terminal:
            return self._in_terminal(action, subject)
        return await self._in_thread(action, partial(action.do, home, subject))

    async def _in_thread(self, action: Action, do: Callable[[], T]) -> T:
        is_slow = f"{action.label}: not done yet. It continues in the background."
        return await self.threads.run(do, lambda: self._app.show_message(is_slow))

    def _in_terminal(self, action: Action, subject: Row) -> ActionResult:
        """Hand the terminal over to the action, and take the terminal back even if the action fails.

        Textual would not take the terminal back if the block raised. So the error is raised after the block.
        """
        result: ActionResult | Exception
        try:
            with self._app.suspend():
                try:
                    result = action.do(self._app.home, subject)
                except Exception as error:  # noqa: BLE001 - raised again when the app has the terminal back
                    result = error
        except SuspendNotSupported:
            raise Refused(
                f"This terminal cannot be handed over. In another one: `holdfast {action.name} {task_of(subject)}`."
            ) from None
        if isinstance(result, Exception):
            raise result
        return result


def _describe_error(error: Exception) -> tuple[str, bool]:
    """Return the message for the error, and True if nothing was changed."""
    if isinstance(error, HoldfastError):
        return str(error), not isinstance(error, Unavailable)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return (
            f"{where}{error.strerror or error}. Nothing that was acknowledged is lost. Fix the cause and try again.",
            False,
        )
    return f"a defect in Holdfast ({type(error).__name__}: {error}). `holdfast events` shows what was done.", False


class ActionThreads:
    """One thread for each action, not of Textual: at its end Textual waits for its own threads without limit."""

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()

    async def run(self, do: Callable[[], T], when_slow: Callable[[], None]) -> T:
        """Run `do` in a thread, and return or raise its result here. `when_slow` is called after a while."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        done.add_done_callback(_retrieve_exception)

        def settle(settler: Callable[[], None]) -> None:
            def in_loop() -> None:
                if not done.done():  # done already: the user left the app in the meantime
                    settler()

            with contextlib.suppress(RuntimeError):  # the loop of the app is closed already
                loop.call_soon_threadsafe(in_loop)

        def work() -> None:
            try:
                value = do()
            except BaseException as error:  # noqa: BLE001 - raised again in the app's thread
                failure = error
                settle(lambda: done.set_exception(failure))
            else:
                settle(lambda: done.set_result(value))

        thread = threading.Thread(target=work, name="action", daemon=True)
        self._threads = {one for one in self._threads if one.is_alive()} | {thread}
        thread.start()
        finished, _ = await asyncio.wait({done}, timeout=SLOW)
        if not finished:
            when_slow()
        return await done

    def finish(self, patience: float = FINISH) -> bool:
        """Wait at most `patience` seconds for the running actions. True if all of them have ended."""
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def _retrieve_exception(done: asyncio.Future[T]) -> None:
    """Mark the exception as seen. Otherwise asyncio would print it to the terminal after the app has ended."""
    if not done.cancelled():
        done.exception()


class PendingRequests:
    """Requests that the supervisor has not answered yet. The feed reads their answers."""

    def __init__(self, feed: Feed, show: Callable[[str], None], refuse: Callable[[str, str], None]) -> None:
        self._feed, self._show, self._refuse = feed, show, refuse
        self._asked: tuple[Asked, ...] = ()
        self._watch = Watch("answers", self._read, self._take)

    def wait_for(self, asked: Asked) -> None:
        self._asked = (*self._asked, asked)
        self._watch.again()
        self._feed.attach((self._watch,))

    def _read(self, queries: Queries) -> list[tuple[Asked, RequestOutcome]]:
        """Return the requests that have an outcome. Runs in the feed's thread."""
        from holdfast.api.requests import find_outcome  # the first frame does not wait for this import

        found = ((asked, find_outcome(queries, asked.number, asked.kind, asked.task)) for asked in self._asked)
        return [(asked, outcome) for asked, outcome in found if outcome is not None]

    def _take(self, outcomes: list[tuple[Asked, RequestOutcome]]) -> None:
        for asked, outcome in outcomes:
            if asked in self._asked:
                self._asked = tuple(other for other in self._asked if other is not asked)
                if outcome.is_done:
                    self._show(outcome.message)
                else:
                    self._refuse(asked.kind.capitalize(), outcome.message)
        if not self._asked:
            self._feed.detach((self._watch,))
