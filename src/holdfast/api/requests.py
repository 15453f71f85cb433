"""Requests that a supervisor carries out: reading the answer, waiting for it, and describing it to the user."""

from __future__ import annotations

import time

from holdfast.api.outcome import no_supervisor
from holdfast.api.queries import Queries
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict, NotFound, Unavailable
from holdfast.core.model import RequestKind
from holdfast.core.tasks.requests import RequestAnswer, parse_answer

POLL_INTERVAL = 0.02  # seconds
STOP_PATIENCE = 30.0  # seconds until a supervisor has ended an agent; a pause adds the grace of the agent
_PARTICIPLES = {RequestKind.PAUSE: "paused", RequestKind.CANCEL: "cancelled"}


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The end of a request about a task. `is_done`: the request was carried out. `message`: a sentence for the user."""

    is_done: bool
    message: str


def recorded_only(task_id: str, kind: RequestKind) -> str:
    """Return the message for a request that was recorded while no supervisor is running."""
    return f"The request to {kind} {task_id} is recorded, and the task is marked running. {no_supervisor()}"


def read_result(queries: Queries, request: int) -> RequestAnswer | None:
    """Return the answer to the request, or None while there is no answer. Raise NotFound if the request was deleted."""
    rows = queries.view("request", id=request)
    if not rows:
        raise NotFound("The request was forgotten meanwhile.")
    text = rows[0]["answer"]
    return None if text is None else parse_answer(text)


def wait_for_result(queries: Queries, request: int, deadline: float, *, if_gone: str, if_late: str) -> RequestAnswer:
    """Wait for the answer to the request until `deadline` (`time.monotonic`).

    Raise Unavailable with `if_gone` when the supervisor ended without an answer, with `if_late` at the deadline.
    """
    while time.monotonic() < deadline:
        running = queries.supervisor()  # read before the answer: a supervisor may answer as its last act
        answer = read_result(queries, request)
        if answer is not None:
            return answer
        if running is None:
            raise Unavailable(if_gone)
        time.sleep(POLL_INTERVAL)
    raise Unavailable(if_late)


def wait_for_task_request(
    queries: Queries, request: int, kind: RequestKind, task_id: str, patience: float
) -> RequestOutcome:
    """Wait at most `patience` seconds until the request to pause or cancel the task is answered."""
    answer = wait_for_result(
        queries,
        request,
        time.monotonic() + patience,
        if_gone=f"The supervisor ended. The request to {kind} {task_id} stays recorded.",
        if_late=f"The supervisor has not {_PARTICIPLES[kind]} task {task_id} yet. The request stays recorded. "
        f"See `holdfast why {task_id}`.",
    )
    return describe_answer(kind, task_id, answer)


def finish_request(queries: Queries, request: int, kind: str, task_id: str) -> str:
    """Wait until the request to pause or cancel the task is carried out, and return its message.

    Raise Conflict if the request was refused, Unavailable if no supervisor is there to carry it out.
    """
    wanted = RequestKind(kind)
    if queries.supervisor() is None:
        raise Unavailable(recorded_only(task_id, wanted))
    patience = STOP_PATIENCE + (float(queries.task(task_id)["grace"]) if wanted is RequestKind.PAUSE else 0.0)
    outcome = wait_for_task_request(queries, request, wanted, task_id, patience)
    if not outcome.is_done:
        raise Conflict(outcome.message)
    return outcome.message


def find_outcome(queries: Queries, request: int, kind: RequestKind, task_id: str) -> RequestOutcome | None:
    """Return the outcome of the request to pause or cancel the task, or None while there is no answer."""
    try:
        queries.state(task_id)
        answer = read_result(queries, request)
    except NotFound:
        return RequestOutcome(False, f"Task {task_id} was forgotten meanwhile.")
    return None if answer is None else describe_answer(kind, task_id, answer)


def describe_answer(kind: RequestKind, task_id: str, answer: RequestAnswer) -> RequestOutcome:
    """Return the outcome that an answer means for a request to pause or cancel the task."""
    participle = _PARTICIPLES[kind]
    if answer.is_done(kind):
        return RequestOutcome(True, f"{participle.capitalize()} {task_id}.")
    return RequestOutcome(False, f"Task {task_id} was not {participle}: {answer.text}.")
