"""Thread work that always ends before its caller continues, and the cancellation of asyncio tasks.

A thread cannot be killed. `asyncio.to_thread` releases a cancelled caller while the thread works on. Once, a deletion
that was not waited for removed the workspace that was made next at the same path.

Container engines have their own threads. An engine that hangs blocks a thread for half a minute, which on shared
threads would block all other tasks.
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


async def run_in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return the result of `work(…)`. The work runs in a thread. If the caller is cancelled, even twice, this call ends
    only when the thread is done."""
    return await run_in_pool(None, work, *arguments, **named)


async def run_in_pool(pool: Executor | None, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return the result of `work(…)` from a thread of the given pool. A separate pool is for work that may wait long
    and must not block other work."""
    running = asyncio.get_running_loop().run_in_executor(pool, lambda: work(*arguments, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # retrieved, so that asyncio does not warn: the cancellation matters more
        raise


MOST = 16


async def run_in_engine_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    return await run_in_pool(_pool(os.getpid()), work, *arguments, **named)


@cache
def _pool(_pid: int) -> ThreadPoolExecutor:
    """Return the pool of this process. Threads do not survive a fork."""
    return ThreadPoolExecutor(MOST, thread_name_prefix="engine")


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until each has ended, before the resources that they use are closed. If the caller is
    cancelled meanwhile, the cancellation is raised after that."""
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
            task.exception()  # retrieved, so that asyncio does not warn: it was reported when it happened
    if heard is not None:
        raise heard
