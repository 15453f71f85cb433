"""Answers to requests: the stored text and back."""

from __future__ import annotations

import pytest

from holdfast.core.model import RequestKind
from holdfast.core.states import TaskState
from holdfast.core.tasks.requests import RequestAnswer, RequestResult, parse_answer

STORED = {
    "the task is queued": RequestAnswer(RequestResult.QUEUED),
    "the task is running": RequestAnswer(RequestResult.RUNNING),
    "the task is paused": RequestAnswer(RequestResult.PAUSED),
    "the task is completed": RequestAnswer(RequestResult.COMPLETED),
    "the task is failed": RequestAnswer(RequestResult.FAILED),
    "the task is cancelled": RequestAnswer(RequestResult.CANCELLED),
    "cancelled on the operator's word": RequestAnswer(RequestResult.ASSUMED_DEAD),
    "refused: a keeper of it still lives; end that first": RequestAnswer(RequestResult.KEEPER_LIVES),
    "refused: it is frozen; see `holdfast why`": RequestAnswer(RequestResult.FROZEN),
    "refused: the time for which it was to be paused is over": RequestAnswer(RequestResult.PAUSE_IS_OVER),
    "resumed by ann": RequestAnswer(RequestResult.RESUMED, "ann"),
    "retried by uid 7": RequestAnswer(RequestResult.RETRIED, "uid 7"),
    "approved by ann (again)": RequestAnswer(RequestResult.APPROVED, "ann (again)"),
    "stopped (graceful)": RequestAnswer(RequestResult.STOPPED, "graceful"),
    "the supervisor was gone already": RequestAnswer(RequestResult.SUPERVISOR_GONE),
    "refused: it is stopping": RequestAnswer(RequestResult.STOPPING),
    'taken over {"agents": [4, 8]}': RequestAnswer(RequestResult.TAKEN_OVER, '{"agents": [4, 8]}'),
    '{"removed": 2}': RequestAnswer(RequestResult.SWEPT, '{"removed": 2}'),
    "a sentence of a later version": RequestAnswer(RequestResult.OTHER, "a sentence of a later version"),
    "stopped": RequestAnswer(RequestResult.OTHER, "stopped"),
    "swept": RequestAnswer(RequestResult.OTHER, "swept"),
    "": RequestAnswer(RequestResult.OTHER),
}


@pytest.mark.parametrize(("text", "answer"), STORED.items())
def test_a_stored_text_is_an_answer_and_back(text: str, answer: RequestAnswer) -> None:
    """Stored texts are a format: supervisors and commands of other versions read and write them."""
    assert parse_answer(text) == answer
    assert answer.text == text


def test_every_result_is_in_the_table() -> None:
    assert {answer.result for answer in STORED.values()} == set(RequestResult)


@pytest.mark.parametrize("state", TaskState)
def test_every_state_of_a_task_has_an_answer(state: TaskState) -> None:
    assert RequestAnswer.from_state(state).text == f"the task is {state}"


@pytest.mark.parametrize(
    ("kind", "done"),
    [
        (RequestKind.PAUSE, {RequestResult.PAUSED}),
        (RequestKind.CANCEL, {RequestResult.CANCELLED, RequestResult.ASSUMED_DEAD}),
        (RequestKind.DOWN, {RequestResult.STOPPED, RequestResult.SUPERVISOR_GONE}),
        (RequestKind.SWEEP, {RequestResult.SWEPT}),
        (RequestKind.TAKE_OVER, {RequestResult.TAKEN_OVER}),
    ],
)
def test_which_results_mean_that_a_request_was_carried_out(kind: RequestKind, done: set[RequestResult]) -> None:
    assert {result for result in RequestResult if RequestAnswer(result).is_done(kind)} == done
