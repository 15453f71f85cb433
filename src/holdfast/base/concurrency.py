"""Work in a thread that is over when its caller goes on.

A thread cannot be ended. `asyncio.to_thread` lets a cancelled caller go while the thread works on: a deletion that
nobody waited for removed the workspace that was made next at the same path.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of `work(…)`. Cancelled, even twice, we return only when the thread is done."""
    return await in_thread_of(None, work, *arguments, **named)


async def in_thread_of(pool: Executor | None, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Likewise, in a thread of a pool of its own: for what may wait long for others, and must not hold up the rest."""
    running = asyncio.get_running_loop().run_in_executor(pool, lambda: work(*arguments, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # seen: the cancellation matters more
        raise
