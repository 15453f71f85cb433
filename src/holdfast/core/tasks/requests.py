"""Results of operators' requests. The store keeps each answer as a text. Code compares members of `RequestResult`
instead."""

from __future__ import annotations

from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.core.model import RequestKind
from holdfast.core.states import TaskState


class StopCause(StrEnum):
    """The cause of a supervisor's orderly stop. The store keeps the value."""

    DOWN = "down"
    SIGNAL = "signal"
    IDLE = "idle"  # `--idle-exit`: nothing was left to do


class RequestResult(StrEnum):
    """The result of a request. The value is the stored text, or its beginning where a detail follows.

    Stores of users hold these texts, and supervisors of other versions write them. A value never changes.
    """

    QUEUED = "the task is queued"
    RUNNING = "the task is running"
    PAUSED = "the task is paused"
    COMPLETED = "the task is completed"
    FAILED = "the task is failed"
    CANCELLED = "the task is cancelled"
    ASSUMED_DEAD = "cancelled on the operator's word"  # the operator vouched for the death of a frozen run
    KEEPER_LIVES = "refused: a keeper of it still lives; end that first"
    FROZEN = "refused: it is frozen; see `holdfast why`"
    PAUSE_IS_OVER = "refused: the time for which it was to be paused is over"
    RESUMED = "resumed by"  # detail: the operator
    RETRIED = "retried by"  # detail: the operator
    APPROVED = "approved by"  # detail: the operator
    STOPPED = "stopped"  # detail: the mode of `down`
    SUPERVISOR_GONE = "the supervisor was gone already"
    STOPPING = "refused: it is stopping"
    TAKEN_OVER = "taken over"  # detail: the values before and after, as JSON
    SWEPT = "swept"  # detail: the report as JSON, which is stored alone
    OTHER = "other"  # detail: the whole text, written by another version


_BY_OPERATOR = (RequestResult.RESUMED, RequestResult.RETRIED, RequestResult.APPROVED)
_BEFORE_DETAIL = (*_BY_OPERATOR, RequestResult.TAKEN_OVER)
_WITHOUT_DETAIL = frozenset(RequestResult) - {
    *_BEFORE_DETAIL,
    RequestResult.STOPPED,
    RequestResult.SWEPT,
    RequestResult.OTHER,
}
_DONE = {
    RequestKind.PAUSE: frozenset({RequestResult.PAUSED}),
    RequestKind.CANCEL: frozenset({RequestResult.CANCELLED, RequestResult.ASSUMED_DEAD}),
    RequestKind.DOWN: frozenset({RequestResult.STOPPED, RequestResult.SUPERVISOR_GONE}),
    RequestKind.SWEEP: frozenset({RequestResult.SWEPT}),
    RequestKind.TAKE_OVER: frozenset({RequestResult.TAKEN_OVER}),
}


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """The answer to a request: its result and a detail."""

    result: RequestResult
    detail: str = ""

    @classmethod
    def from_state(cls, state: TaskState) -> RequestAnswer:
        """Return the answer that names the state of the task."""
        return cls(RequestResult[state.name])

    @property
    def text(self) -> str:
        """Return the text that the store keeps and users read."""
        if self.result in (RequestResult.SWEPT, RequestResult.OTHER):
            return self.detail
        if self.result is RequestResult.STOPPED:
            return f"{self.result} ({self.detail})"
        return f"{self.result} {self.detail}" if self.detail else str(self.result)

    def is_done(self, kind: RequestKind) -> bool:
        """True if a request of this kind was carried out."""
        return self.result in _DONE[kind]


def parse_answer(text: str) -> RequestAnswer:
    """Return the answer that the store keeps as `text`."""
    if text in _WITHOUT_DETAIL:
        return RequestAnswer(RequestResult(text))
    for result in _BEFORE_DETAIL:
        if text.startswith(f"{result} "):
            return RequestAnswer(result, text.removeprefix(f"{result} "))
    start = f"{RequestResult.STOPPED} ("
    if text.startswith(start) and text.endswith(")"):
        return RequestAnswer(RequestResult.STOPPED, text[len(start) : -1])
    if text.startswith("{"):
        return RequestAnswer(RequestResult.SWEPT, text)
    return RequestAnswer(RequestResult.OTHER, text)
