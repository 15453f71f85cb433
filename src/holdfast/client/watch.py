"""The watch over tasks and events: one generator for each, which a synchronous and an asynchronous driver step.

A generator yields None when its driver should sleep for `POLL_INTERVAL`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TypeVar

from holdfast.api.fleet.accounts import resumes_within_seconds
from holdfast.api.home.daemon import ensure_supervisor, refuse_another_start
from holdfast.api.queries import POLL_INTERVAL, Queries
from holdfast.api.tasks.why.read import build_person_test
from holdfast.client.errors import WaitTimeout, public_errors
from holdfast.client.models import ENDED

T = TypeVar("T")
LOOK_EVERY = 1.0  # seconds; a dead supervisor and a pause that ends by itself change no row


def watch_tasks(
    home: str, ids: Sequence[str], *, first: bool, timeout: float | None, start: bool
) -> Iterator[list[str] | None]:
    """Yield the ids of tasks at rest, once: when all tasks rest, or with `first` as soon as one rests.

    A task rests if it ended, if it is paused for more than seconds, or if it waits for a person.
    """
    queries = Queries(home)
    deadline = None if timeout is None else time.monotonic() + timeout
    waits_for_person = build_person_test(queries)
    version, looked, starts, since = -1, 0.0, 0, queries.last_seq()
    while True:
        now, seen = time.monotonic(), queries.data_version()
        if seen != version or now - looked >= LOOK_EVERY:
            starts = starts if seen == version else 0
            version, looked = seen, now
            resting = [task_id for task_id in ids if _rests(queries, task_id, waits_for_person)]
            if len(resting) == len(ids) or (first and resting):
                yield resting
                return
            if start and queries.supervisor() is None:
                starts += 1
                refuse_another_start(queries, ids[0], starts, since)
                ensure_supervisor(queries)
        if deadline is not None and now >= deadline:
            raise WaitTimeout(f"{len(ids) - len(resting)} of {len(ids)} task(s) are not at rest after {timeout:g} s.")
        yield None


def _rests(queries: Queries, task_id: str, waits_for_person: Callable[[str], bool]) -> bool:
    row = queries.state(task_id)
    if row["state"] == "queued":
        return waits_for_person(task_id)
    return row["state"] in ENDED or (row["state"] == "paused" and not resumes_within_seconds(queries, row))


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
