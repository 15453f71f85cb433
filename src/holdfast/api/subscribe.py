"""Following events as they are committed: by polling the database's version counter, never by watching its files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from holdfast.api.queries import Queries

LOOK_EVERY = 0.05


def follow(queries: Queries, *, after: int, task_id: str | None = None) -> Iterator[list[dict[str, Any]]]:
    """Batches of new events, in order, for ever; an empty batch each time nothing happened for a moment."""
    version = -1
    while True:
        seen = queries.data_version()
        if seen != version:
            version = seen
            events = queries.events(after=after, task_id=task_id)
            if events:
                after = int(events[-1]["seq"])
                version = -1 if len(events) == 1000 else version
                yield events
                continue
        yield []
        time.sleep(LOOK_EVERY)
