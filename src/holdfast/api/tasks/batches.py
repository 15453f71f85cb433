"""Changes of many tasks: a few transactions, and one result for each task.

A batch is one transaction. If one task of a batch refuses the change, the others are still changed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from holdfast.api.commands import Commands
from holdfast.api.outcome import no_supervisor
from holdfast.api.queries import Queries
from holdfast.api.requests import describe_answer, recorded_only
from holdfast.base.errors import Conflict, HoldfastError, NotFound, Refused, Unavailable, UsageError
from holdfast.core.model import RequestKind
from holdfast.core.tasks.requests import parse_answer
from holdfast.store.port.transaction import Transaction

T = TypeVar("T")
MOST = 200  # tasks in one transaction: others can write in between
POLL_INTERVAL = 0.05  # seconds
REFUSALS = (Conflict, NotFound, Refused, UsageError)  # of one task. Every other error ends the command
_WORST = (0, 75, 4, 3, 2, 1, 69)  # exit codes, the worst last


class TaskResult(NamedTuple):
    """The result for one task: a sentence, and the exit code that the task alone would have given."""

    id: str
    message: str
    code: int = 0


def worst_code(results: Sequence[TaskResult]) -> int:
    return max((result.code for result in results), key=_WORST.index, default=0)


def refused(task_id: str, error: HoldfastError) -> TaskResult:
    return TaskResult(task_id, str(error), error.exit_code)


def change_batches(
    home: str, ids: Sequence[str], operation: Callable[[Transaction, str], T]
) -> Iterator[list[tuple[str, T | HoldfastError]]]:
    """Carry out `operation` for each task, in batches. Yield the results of each batch when they are on disk."""
    commands = Commands(home, create=False)
    for start in range(0, len(ids), MOST):
        batch = ids[start : start + MOST]
        yield commands.write(partial(_change_batch, batch, operation))


def _change_batch(
    ids: Sequence[str], operation: Callable[[Transaction, str], T], tx: Transaction
) -> list[tuple[str, T | HoldfastError]]:
    return [(task_id, _attempt(tx, task_id, operation)) for task_id in ids]


def _attempt(tx: Transaction, task_id: str, operation: Callable[[Transaction, str], T]) -> T | HoldfastError:
    """Return the result of the operation for one task. A refused operation leaves no change."""
    try:
        with tx.savepoint():
            return operation(tx, task_id)
    except REFUSALS as error:
        return error


def wait_for_requests(
    queries: Queries, requests: Mapping[str, int], kind: RequestKind, patience: float
) -> Iterator[TaskResult]:
    """Yield the result of each request (task → its number) when the supervisor has answered it."""
    open_requests, deadline = dict(requests), time.monotonic() + patience
    while open_requests:
        running = queries.supervisor()  # read before the answers: a supervisor may answer as its last act
        answers = queries.view("answers", ids=json.dumps(list(open_requests.values())))
        told = {int(row["id"]): str(row["answer"]) for row in answers}
        for task_id, number in list(open_requests.items()):
            if number in told:
                del open_requests[task_id]
                outcome = describe_answer(kind, task_id, parse_answer(told[number]))
                yield TaskResult(task_id, outcome.message, 0 if outcome.is_done else Conflict.exit_code)
        if running is None or time.monotonic() > deadline:
            break
        time.sleep(POLL_INTERVAL)
    for task_id in open_requests:
        late = f"The request to {kind} {task_id} stays recorded: the supervisor has not carried it out yet. See "
        message = recorded_only(task_id, kind) if running is None else f"{late}`holdfast why {task_id}`."
        yield TaskResult(task_id, message, Unavailable.exit_code)


def takes_effect_later(queries: Queries) -> str:
    """Return the note for tasks that are queued while no supervisor is running. Empty: a supervisor runs."""
    return "" if queries.supervisor() is not None else no_supervisor()
