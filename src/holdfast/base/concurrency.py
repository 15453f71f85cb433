"""Work in a thread that is over when its caller goes on.

A thread cannot be ended. `asyncio.to_thread` lets a cancelled caller go while the thread works on: a deletion that
nobody waited for removed the workspace that was made next at the same path.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache
from typing import Any, ParamSpec, TypeVar

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


MOST = 16


async def in_engines_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    return await in_thread_of(_pool(os.getpid()), work, *arguments, **named)


@cache
def _pool(_pid: int) -> ThreadPoolExecutor:
    """Of this process: threads do not survive a fork."""
    return ThreadPoolExecutor(MOST, thread_name_prefix="engine")


async def end_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until each has ended. A cancellation of the caller is heard, but after that."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    heard: asyncio.CancelledError | None = None
    while any(not task.done() for task in ending):
        try:
            await asyncio.wait(ending)
        except asyncio.CancelledError as again:
            heard = again
    for task in ending:
        if not task.cancelled():
            task.exception()  # seen: it was told when it happened
    if heard is not None:
        raise heard
