"""Threads that wait for container engines. They are few, and an engine that hangs holds each of them for half a minute:
on the threads of everybody else, all other tasks would stand still."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

from holdfast.base.concurrency import in_thread_of

P = ParamSpec("P")
T = TypeVar("T")
MOST = 16


async def in_engines_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    return await in_thread_of(_pool(os.getpid()), work, *arguments, **named)


@cache
def _pool(_pid: int) -> ThreadPoolExecutor:
    """Of this process: threads do not survive a fork."""
    return ThreadPoolExecutor(MOST, thread_name_prefix="engine")
