"""R-CRASH-10: parts of the screens that need no screen to be wrong."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

from holdfast.base.errors import Refused
from holdfast.tui.actions.runner import ActionThreads
from holdfast.tui.app import Top
from holdfast.tui.widgets.list_screen import has_words


def test_a_filter_that_is_being_typed_hides_nothing() -> None:
    assert has_words("!", "anything")
    assert has_words("any !", "anything")
    assert not has_words("any !thing", "anything")


def test_an_input_field_may_be_mounted_before_its_screen_is_shown(tmp_path: Path) -> None:
    """R-CRASH-10: from Python 3.12 on every first screen does so, and `top` did not start there at all."""
    app = Top(str(tmp_path))
    assert not app.screen_stack
    app.clear_selection()


def test_an_action_that_fails_when_the_app_has_left_says_nothing_to_the_terminal() -> None:
    """R-CRASH-10: what asyncio has to say of it would be a traceback in somebody's shell."""
    complaints: list[object] = []
    may_fail = threading.Event()

    def fails() -> None:
        assert may_fail.wait(60)
        raise Refused("not now")

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        threads = ActionThreads()
        waiting = asyncio.ensure_future(threads.run(fails, lambda: None))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        may_fail.set()
        assert await asyncio.to_thread(threads.finish, 60)
        await asyncio.sleep(0)
        del waiting, threads
        gc.collect()

    asyncio.run(whole())
    assert complaints == []
