"""The watch over tasks until they are at rest: a generator that its caller steps.

The generator yields None when its caller should sleep for `queries.POLL_INTERVAL`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence

from holdfast.api.fleet.accounts import resumes_within_seconds
from holdfast.api.home.daemon import ensure_supervisor, refuse_another_start
from holdfast.api.queries import Queries
from holdfast.api.tasks.why.read import build_person_test
from holdfast.base.errors import NotFound, WaitTimeout

LOOK_EVERY = 1.0  # seconds; a dead supervisor and a pause that ends by itself change no row
ENDED = ("completed", "failed", "cancelled")


def watch_tasks(
    home: str, ids: Sequence[str], *, first: bool, timeout: float | None, start: bool
) -> Iterator[list[str] | None]:
    """Yield the ids of tasks at rest, once: when all tasks rest, or with `first` as soon as one rests.

    A task rests if it ended, if it is paused for more than seconds, or if it waits for a person. `start`: start a
    supervisor where none is running and a task does not rest. Raise WaitTimeout after `timeout` seconds.
    """
    queries = Queries(home)
    deadline = None if timeout is None else time.monotonic() + timeout
    waits_for_person = build_person_test(queries)
    version, looked, starts, since = -1, 0.0, 0, queries.last_seq()
    resting: list[str] = []
    while True:
        now, seen = time.monotonic(), queries.data_version()
        if seen != version or now - looked >= LOOK_EVERY:
            starts = starts if seen == version else 0
            version, looked = seen, now
            resting = _find_resting(queries, ids, waits_for_person)
            if len(resting) == len(ids) or (first and resting):
                yield resting
                return
            if start and queries.supervisor() is None:
                starts += 1
                refuse_another_start(queries, ids[0], starts, since)
                ensure_supervisor(queries)
        if deadline is not None and now >= deadline:
            raise WaitTimeout(
                f"{len(ids) - len(resting)} of {len(ids)} task(s) are not at rest after {timeout:g} s. They continue: "
                f"`holdfast why {next(task_id for task_id in ids if task_id not in resting)}`."
            )
        yield None


def _find_resting(queries: Queries, ids: Sequence[str], waits_for_person: Callable[[str], bool]) -> list[str]:
    states = {str(row["id"]): str(row["state"]) for row in queries.view("states_of", ids=json.dumps(list(ids)))}
    if gone := [task_id for task_id in ids if task_id not in states]:
        raise NotFound(f"Task {gone[0]} was forgotten meanwhile. `holdfast ps --all` lists every task.")
    return [task_id for task_id in ids if _rests(queries, task_id, states[task_id], waits_for_person)]


def _rests(queries: Queries, task_id: str, state: str, waits_for_person: Callable[[str], bool]) -> bool:
    if state == "queued":
        return waits_for_person(task_id)
    return state in ENDED or (state == "paused" and not resumes_within_seconds(queries, queries.state(task_id)))
