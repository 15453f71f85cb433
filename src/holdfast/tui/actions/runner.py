"""The runner of actions: asks the user first where needed, runs the action in a thread, and shows its result.

If an action only recorded a request to the supervisor, the runner waits for the answer and shows that too. No key waits
for the store. Leaving `top` waits a few seconds for running actions, but not as long as a store can stay locked. Each
action is one transaction, so cutting an action off is safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import SuspendNotSupported

from holdfast.api.queries import Queries
from holdfast.base.errors import HoldfastError, Refused, Unavailable
from holdfast.tui.actions.handlers import ActionResult, Asked, task_of
from holdfast.tui.actions.marks import MarkedResult, ask_about_all, carry_out_all
from holdfast.tui.actions.table import Action
from holdfast.tui.feed import Feed, Watch
from holdfast.tui.widgets.dialogs import Question

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
        self._running: set[tuple[str, ...]] = set()  # by name and subjects

    def act(self, action: Action, rows: Sequence[Row], done: Callable[[], None] = lambda: None) -> None:
        """Start the action on the rows, unless the same action is running: a key that is pressed twice acts once.

        `done` is called when the action was carried out on at least one of the rows.
        """
        which = (action.name, *(str(row.get("id", row.get("name"))) for row in rows))
        if which not in self._running:
            self._running.add(which)
            if action.form is not None:
                self._app.hold_keys()
            self._app.run_worker(self._act(action, rows, which, done), group="actions", exit_on_error=True)

    async def _act(self, action: Action, rows: Sequence[Row], which: tuple[str, ...], done: Callable[[], None]) -> None:
        try:
            result = await self._carry_out(action, rows)
        except Exception as error:  # noqa: BLE001 - any error is shown, and the screen stays
            message, is_unchanged = _describe_error(error)
            self._app.refuse(action.label, message, is_unchanged=is_unchanged)
            return
        finally:
            self._running.discard(which)
            self._app.drop_held_keys()
        self._app.feed.look()
        if not result:
            return
        done()
        if isinstance(result, MarkedResult):
            for asked in result.asked:
                self._requests.wait_for(asked)
            self._app.show_message(result.summary(action.label))
            if result.refusals:
                words = "\n".join((f"{len(result.refusals)} of {len(rows)} were refused.", *result.refusals))
                self._app.refuse(action.label, words, is_unchanged=False)
            return
        if isinstance(result, Asked):
            self._requests.wait_for(result)
            result = result.message
        self._app.show_message(result)

    async def _carry_out(self, action: Action, rows: Sequence[Row]) -> ActionResult | MarkedResult:
        """Return the result of the action, or an empty message if the user left its question or its form."""
        home, row = self._app.home, rows[0]
        if action.form is not None:
            return await self._fill(action, rows)
        if len(rows) > 1:
            ask_all = partial(ask_about_all, action.label, action.question, home, rows)
            if await self._app.push_screen_wait(Question(await self._in_thread(action, ask_all))) is None:
                return ""
            return await self._in_thread(action, partial(carry_out_all, action.do, home, rows))
        if action.question is not None:
            question = await self._in_thread(action, partial(action.question, home, row))
            if question is not None and await self._app.push_screen_wait(Question(question)) is None:
                return ""
        if action.in_terminal:
            return self._in_terminal(action, row)
        return await self._in_thread(action, partial(action.do, home, row))

    async def _fill(self, action: Action, rows: Sequence[Row]) -> ActionResult | MarkedResult:
        """Show the form of the action, and act with its values. The form shows errors and stays open."""
        from holdfast.tui.widgets.form import Form  # the first frame does not wait for this import

        home = self._app.home
        assert action.form is not None
        spec = await self._in_thread(action, partial(action.form, home, rows))

        async def submit(values: dict[str, str]) -> ActionResult | MarkedResult:
            filled = [{**row, **values} for row in rows]
            if len(filled) > 1:
                return await self._in_thread(action, partial(carry_out_all, action.do, home, filled))
            return await self._in_thread(action, partial(action.do, home, filled[0]))

        form = Form(spec, submit, lambda error: _describe_error(error)[0])
        await self._app.push_screen_wait(form)
        return "" if form.submission is None else await form.submission

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
    """One thread for each action. They are not threads of Textual, because Textual waits without limit for its own
    threads when it ends."""

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
