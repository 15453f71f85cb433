"""Waiting for the result of a request, and its words."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.api.queries import Queries
from holdfast.api.requests import RequestOutcome, describe_answer, find_outcome, read_result, wait_for_result
from holdfast.base import clock
from holdfast.base.errors import NotFound, Unavailable
from holdfast.core.model import RequestKind
from holdfast.core.tasks.requests import RequestAnswer, RequestResult
from holdfast.store.open import open_store

STOPPED = RequestAnswer(RequestResult.STOPPED, "now")


class Asker:
    """A home with one request to stop. `running` is what the queries see of a supervisor."""

    def __init__(self, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = open_store(home, create=True)
        self.request = self.store.write(lambda tx: tx.requests.ask(RequestKind.DOWN, None, "ann", "", {}, clock.now()))
        self.queries = Queries(home)
        self.running: Callable[[], dict[str, object] | None] = lambda: {"pid": 1}
        monkeypatch.setattr(self.queries, "supervisor", lambda: self.running())

    def answer(self) -> None:
        self.store.write(lambda tx: tx.requests.answer(self.request, STOPPED, clock.now()))

    def wait(self, patience: float = 60.0) -> RequestAnswer:
        deadline = time.monotonic() + patience
        return wait_for_result(self.queries, self.request, deadline, if_gone="It is gone.", if_late="It is late.")


@pytest.fixture
def asker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asker:
    return Asker(str(tmp_path / "home"), monkeypatch)


def test_an_answer_is_waited_for(asker: Asker) -> None:
    seen: list[None] = []

    def running() -> dict[str, object]:
        seen.append(None)
        if len(seen) == 3:
            asker.answer()
        return {"pid": 1}

    asker.running = running
    assert read_result(asker.queries, asker.request) is None
    assert asker.wait() == STOPPED
    assert len(seen) == 3


def test_an_answer_that_is_the_last_act_of_a_supervisor_counts(asker: Asker) -> None:
    """The supervisor answers and ends between the two readings: the answer is read after the supervisor."""

    def running() -> None:
        asker.answer()

    asker.running = running
    assert asker.wait() == STOPPED


def test_a_supervisor_that_ends_without_an_answer_is_not_waited_for(asker: Asker) -> None:
    asker.running = lambda: None
    with pytest.raises(Unavailable, match=r"^It is gone\.$"):
        asker.wait()


def test_a_wait_has_an_end(asker: Asker) -> None:
    with pytest.raises(Unavailable, match=r"^It is late\.$"):
        asker.wait(patience=0.05)


def test_a_forgotten_request_or_task_is_not_waited_for(asker: Asker) -> None:
    with pytest.raises(NotFound, match="forgotten"):
        read_result(asker.queries, asker.request + 1)
    forgotten = RequestOutcome(False, "Task t1 was forgotten meanwhile.")
    assert find_outcome(asker.queries, asker.request, RequestKind.CANCEL, "t1") == forgotten


@pytest.mark.parametrize(
    ("kind", "answer", "outcome"),
    [
        (RequestKind.PAUSE, RequestAnswer(RequestResult.PAUSED), RequestOutcome(True, "Paused t1.")),
        (RequestKind.CANCEL, RequestAnswer(RequestResult.CANCELLED), RequestOutcome(True, "Cancelled t1.")),
        (RequestKind.CANCEL, RequestAnswer(RequestResult.ASSUMED_DEAD), RequestOutcome(True, "Cancelled t1.")),
        (
            RequestKind.CANCEL,
            RequestAnswer(RequestResult.COMPLETED),
            RequestOutcome(False, "Task t1 was not cancelled: the task is completed."),
        ),
        (
            RequestKind.PAUSE,
            RequestAnswer(RequestResult.RESUMED, "bob"),
            RequestOutcome(False, "Task t1 was not paused: resumed by bob."),
        ),
    ],
)
def test_what_an_answer_means(kind: RequestKind, answer: RequestAnswer, outcome: RequestOutcome) -> None:
    assert describe_answer(kind, "t1", answer) == outcome
