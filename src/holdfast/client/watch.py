"""Drivers for a client. They step watches over tasks and events, synchronously or not, and act on several tasks.

A watch is a generator that yields None when its driver should sleep for `POLL_INTERVAL`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TypeVar

from holdfast.api.queries import POLL_INTERVAL
from holdfast.base.errors import HoldfastError, UsageError
from holdfast.client.errors import PartlyDone, make_public, public_errors
from holdfast.client.models import Ids

T = TypeVar("T")


def drive(steps: Iterator[T | None]) -> Iterator[T]:
    """Yield the values of the watch, and sleep whenever it yields None."""
    with public_errors():
        for found in steps:
            if found is None:
                time.sleep(POLL_INTERVAL)
            else:
                yield found


async def drive_async(steps: Iterator[T | None]) -> AsyncIterator[T]:
    """Yield the values of the watch. Whenever it yields None, sleep without blocking the event loop."""
    with public_errors():
        for found in steps:
            if found is None:
                await asyncio.sleep(POLL_INTERVAL)
            else:
                yield found


def list_ids(asked: str | Ids) -> list[str]:
    """Return the ids that a caller gave: one, or several. Raise UsageError if one is not a text."""
    found: list[object] = [*asked] if isinstance(asked, list | tuple) else [asked]
    wrong = next((one for one in found if not isinstance(one, str)), None)
    if wrong is not None:
        raise UsageError(f"An id is a text such as `task.id`, not a {type(wrong).__name__}.")
    return [one for one in found if isinstance(one, str)]


def for_each(asked: str | Ids, ids: Sequence[str], begin: Callable[[str], Callable[[], T]]) -> T | list[T]:
    """Act on one task, or on each of several: begin all of them, then finish each.

    `asked`: what the caller gave. For one id, return its result or raise its error. For a list, return all
    results, or raise PartlyDone once all others are done.
    """
    if isinstance(asked, str):
        return begin(ids[0])()
    begun: dict[str, Callable[[], T]] = {}
    refused: dict[str, HoldfastError] = {}
    done: list[T] = []
    for task_id in ids:
        try:
            begun[task_id] = begin(task_id)
        except HoldfastError as error:
            refused[task_id] = make_public(error)
    for task_id, finish in begun.items():
        try:
            done.append(finish())
        except HoldfastError as error:
            refused[task_id] = make_public(error)
    if refused:
        raise PartlyDone(done, refused)
    return done
