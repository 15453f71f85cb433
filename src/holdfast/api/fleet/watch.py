"""The watch over a list of tasks for scripts: the list, and then each task that changed, as it changes.

The watch sleeps until the log of the store grows, so an idle fleet costs nothing. inotify reports that. A check every
few seconds finds changes that inotify missed: a file system without inotify, a store that was replaced.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.base.errors import Unavailable
from holdfast.processes.observe.observer import IN_MODIFY, Inotify

if TYPE_CHECKING:
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import JsonObject, TaskRow

_LOG = "holdfast.db-wal"
LOOK_EVERY = 2.0  # seconds between two looks at the version counter of the store, if nothing wakes us
FIRST_NAP = 0.01  # seconds between the first two looks after a write, which is visible only when it is on disk
BLIND_EVERY = 0.25  # the same without inotify
REST_FACTOR = 3.0  # the watch rests this many times as long as it read
LEAST_REST = 0.05  # seconds: several changes in a row are one reading


class StoreBell:
    """A waiter for the next write to the store. `reader`: a descriptor. The wait ends too when its other end closes."""

    def __init__(self, queries: Queries, reader: int) -> None:
        self._queries = queries
        self._version = queries.data_version()
        self._poll = select.poll()
        self._poll.register(reader, 0)  # POLLERR is always reported
        self._reader = reader
        self._inotify: Inotify | None = None
        with contextlib.suppress(OSError):
            self._inotify = Inotify()
            self._inotify.add(os.path.join(queries.home, _LOG), IN_MODIFY)
            self._poll.register(self._inotify.fd, select.POLLIN)

    def wait(self) -> bool:
        """Wait until the store has changed. False: the reader of our output is gone."""
        most = BLIND_EVERY if self._inotify is None else LOOK_EVERY
        nap = most
        while True:
            version = self._queries.data_version()
            if version != self._version:
                self._version = version
                return True
            for fd, mask in self._poll.poll(nap * 1000):
                if fd == self._reader and mask & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                    return False
                if self._inotify is not None and fd == self._inotify.fd:
                    self._inotify.read()
                    nap = FIRST_NAP / 2
            nap = min(most, 2 * nap)
            if not self._queries.is_current():
                raise Unavailable("The store was replaced or upgraded meanwhile. Start the command again.")


def watch_rows(
    queries: Queries, read: Callable[[], Sequence[TaskRow]], reader: int
) -> Iterator[list[TaskRow | JsonObject]]:
    """Yield the list, and then the tasks that changed. A task that leaves the list is yielded once more, as it is now.

    A task that is no longer in the store is yielded as its id with `forgotten`.
    """
    bell = StoreBell(queries, reader)
    seen: dict[str, JsonObject] = {}
    while True:
        began = time.monotonic()
        rows = {row["id"]: row for row in read()}
        changed: list[TaskRow | JsonObject] = [row for row in rows.values() if _own(row) != seen.get(row["id"])]
        gone = [task_id for task_id in seen if task_id not in rows]
        if gone:
            left = {row["id"]: row for row in queries.tasks(everything=False, ids=gone)}
            changed += [left.get(task_id, {"id": task_id, "forgotten": True}) for task_id in gone]
        seen = {task_id: _own(row) for task_id, row in rows.items()}
        yield changed
        time.sleep(max(LEAST_REST, REST_FACTOR * (time.monotonic() - began)))
        if not bell.wait():
            return


def _own(row: TaskRow) -> JsonObject:
    """Return the row with the task's own alerts only, without the alerts of the whole home."""
    return {**row, "alerts": row["alerts"].get("own")}
