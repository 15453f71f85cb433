"""Winding up: our own tasks are over, all of them, before what they work with is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


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
