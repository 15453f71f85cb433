"""The drivers of the watches over tasks and events: one is synchronous, one asynchronous.

A watch is a generator that yields None when its driver should sleep for `POLL_INTERVAL`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

from holdfast.api.queries import POLL_INTERVAL
from holdfast.client.errors import public_errors

T = TypeVar("T")


def drive(steps: Iterator[T | None]) -> Iterator[T]:
    """Yield what the watch finds, and sleep between its steps."""
    with public_errors():
        for found in steps:
            if found is None:
                time.sleep(POLL_INTERVAL)
            else:
                yield found


async def drive_async(steps: Iterator[T | None]) -> AsyncIterator[T]:
    """Yield what the watch finds, and leave the event loop to others between its steps."""
    with public_errors():
        for found in steps:
            if found is None:
                await asyncio.sleep(POLL_INTERVAL)
            else:
                yield found
