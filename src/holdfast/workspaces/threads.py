"""Work in a thread that is over when its caller goes on.

A thread cannot be ended. `asyncio.to_thread` lets a cancelled caller go while the thread works on: a deletion that
nobody waited for removed the workspace that was made next at the same path.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of `work(…)`. Cancelled, even twice, we return only when the thread is done."""
    running = asyncio.get_running_loop().run_in_executor(None, lambda: work(*arguments, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # seen: the cancellation matters more
        raise
