"""The signs of health in an agent's events: one sign per event, and the state that they add up to.

`signs_from_events` turns the events of one line into signs, without any memory. `AgentActivity` remembers which tools
are open, and how many events in a row were not new.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.base.dataclass import dataclass
from holdfast.base.text import clean_text
from holdfast.core.agents.events import (
    AgentEvent,
    AgentFailure,
    AgentResult,
    AgentText,
    AgentTrouble,
    LimitNotice,
    Retry,
    SessionStarted,
    StepStarted,
    ToolFinished,
    ToolRefused,
    ToolStarted,
    Usage,
)
from holdfast.core.agents.stream import Stream
from holdfast.core.agents.usage import UsageCounter
from holdfast.core.health.stalled import LONGEST_DELAY, Stall, StallKind, merge_stalls

if TYPE_CHECKING:
    from holdfast.core.agents.events import Usage


REMEMBERED = 16  # different contents seen lately: a cycle of so many events is still detected
EMPTY_ANSWERS = 5  # answers in a row without a word or a tool call: the provider does not really answer
MOST_RETRIES = 20  # retries in a row; the CLIs make 3 to 10 in a minute
BURST = 60.0  # seconds: so many empty answers or retries within this time end the run at once
MOST_TOOLS = 256
MOST_ID = 128  # characters of a tool call's id
MOST_WORDS = 200
MOST_NAME = 80


class SignKind(StrEnum):
    PROGRESS = "progress"  # text, tokens, a result
    NEWS = "news"  # progress if it is new, nothing if it is not: some CLIs repeat it with every step
    STEP = "step"  # an event that is never progress: a tick, a retry, "thinking"
    TOOL_OPENED = "tool_opened"
    TOOL_CLOSED = "tool_closed"
    RETRY = "retry"  # the agent retries by itself
    EMPTY = "empty"  # an answer of the model without a word
    USAGE = "usage"  # tokens or money: no evidence about health
    DOOMED = "doomed"  # a fatal error: the run cannot succeed by itself any more, even if it continues


_NEVER_PROGRESS = frozenset({SignKind.STEP, SignKind.RETRY, SignKind.EMPTY})
_ANSWERS = frozenset({SignKind.PROGRESS, SignKind.TOOL_OPENED})


@dataclass(frozen=True, kw_only=True, slots=True)
class NearLimit:
    """A warning of the provider: the account works, but not for much longer."""

    used: float | None = None  # 0 to 1
    scope: str = ""  # five_hour, weekly …
    reset: str | float | None = None  # as it was written (core/agents/limit_reset.py reads it)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sign:
    """One event of an agent, in one form for every agent."""

    kind: SignKind
    content: str = ""  # its text, without ids and times: the same content again is not progress
    tool: str = ""  # the id of the tool call
    name: str = ""  # the tool's name, for people
    deadline: float | None = None  # seconds after which the tool ends by itself, if the agent reports it
    delay: float | None = None  # seconds until its next try, if the agent reports it
    is_hopeless: bool = False  # the next try cannot help
    usage: Usage | None = None  # the reported tokens and money
    near_limit: NearLimit | None = None
    told: str = field(default="", compare=False)  # for people: the tool with its input, or the text; raw


@dataclass(frozen=True, slots=True)
class SignReader:
    """The function that turns an agent's lines into signs, and the streams that are worth reading."""

    signs: Callable[[str, Stream], Sequence[Sign]]
    reads_errors: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenTool:
    name: str
    opened_at: float
    deadline_at: float | None = None  # until then its silence is intended


class LastAct(NamedTuple):
    """The tool that an agent started last, or the text that it wrote last, as raw text."""

    text: str
    at: float
    is_tool: bool = False
    is_over: bool = False  # the tool has ended, and nothing was reported since


def make_printable(text: str, most: int) -> str:
    """Return an agent's text in a form that can be stored and shown: one line, no control characters, no half surrogate
    pairs."""
    if text[:most].isprintable():
        return text[:most]
    whole = clean_text(text[: 4 * most]).encode(errors="replace").decode()
    return " ".join("".join(letter if letter.isprintable() else " " for letter in whole).split())[:most]


class AgentActivity:
    """The state that an agent's signs add up to. All times are those of the caller's clock."""

    def __init__(self) -> None:
        self.tools: dict[str, OpenTool] = {}
        self.steps = 0  # events in a row without progress
        self.last_step = ""  # the content of the newest of them
        self.stall: Stall | None = None  # the present trouble, until something new follows
        self.spending = UsageCounter()  # usage so far
        self.progress_at: float | None = None  # the earliest time at which the newest progress can have been made
        self.has_answer = False  # its model wrote or did something: the provider answered
        self.near_limit: NearLimit | None = None  # the newest warning
        self.last_act: LastAct | None = None
        self._empty_answers: deque[float] = deque(maxlen=EMPTY_ANSWERS)  # times of the newest, since the last progress
        self._retries: deque[float] = deque(maxlen=MOST_RETRIES)
        self._lately: dict[int, None] = {}  # in order, the newest last; checksums, so that it stays small

    def hear(self, sign: Sign, at: float, not_before: float | None = None) -> None:
        """Add a sign that was read at `at`. The agent wrote it at some time after the last reading (`not_before`)."""
        if sign.usage is not None:
            self.spending.add(sign.usage)
        if sign.kind is SignKind.USAGE:
            return
        self.has_answer = self.has_answer or sign.kind in _ANSWERS
        self.near_limit = sign.near_limit or self.near_limit
        if sign.told:
            self.last_act = LastAct(sign.told, at, is_tool=sign.kind is SignKind.TOOL_OPENED)
        if sign.kind is SignKind.TOOL_OPENED:
            self._open(sign, at)
        elif sign.kind is SignKind.TOOL_CLOSED:
            is_known = self.tools.pop(sign.tool[:MOST_ID], None) is not None
            if is_known and not self.tools and self.last_act is not None and self.last_act.is_tool:
                self.last_act = self.last_act._replace(at=at, is_over=True)
        elif sign.kind is SignKind.DOOMED:
            self._record_trouble(sign, StallKind.FATAL, at)
            return
        elif sign.kind is SignKind.RETRY:
            is_burst = _is_burst(self._retries, at, not_before)
            self._record_trouble(sign, StallKind.HOPELESS if sign.is_hopeless or is_burst else StallKind.RETRYING, at)
        elif sign.kind is SignKind.EMPTY and not self.tools and _is_burst(self._empty_answers, at, not_before):
            self._record_trouble(sign, StallKind.HOPELESS, at)
        is_new = sign.kind not in _NEVER_PROGRESS and self._is_new(sign)
        if is_new:
            self.record_progress(at if not_before is None else not_before)
        elif sign.kind not in (SignKind.TOOL_CLOSED, SignKind.NEWS):  # the opening of the tool was counted
            self.steps += 1
            self.last_step = make_printable(sign.content or sign.name or str(sign.kind), MOST_WORDS)

    def record_progress(self, at: float) -> None:
        """Record progress: the agent wrote something new, or its progress was observed elsewhere."""
        self.steps = 0
        self.progress_at = at
        self.stall = None
        self._empty_answers.clear()
        self._retries.clear()

    def _open(self, sign: Sign, at: float) -> None:
        deadline = sign.deadline
        is_told = deadline is not None and math.isfinite(deadline) and deadline > 0
        while len(self.tools) >= MOST_TOOLS:
            del self.tools[next(iter(self.tools))]
        self.tools[sign.tool[:MOST_ID]] = OpenTool(
            name=make_printable(sign.name, MOST_NAME),
            opened_at=at,
            deadline_at=at + deadline if is_told and deadline is not None else None,
        )

    def _record_trouble(self, sign: Sign, kind: StallKind, at: float) -> None:
        words = make_printable(sign.content, MOST_WORDS) or "an error without words"
        next_try = at + sign.delay if sign.delay is not None and math.isfinite(sign.delay) else None
        self.stall = merge_stalls(self.stall, Stall(kind=kind, words=words, since=at, next_try=next_try))

    def _is_new(self, sign: Sign) -> bool:
        if not sign.content:
            return True
        key = zlib.crc32(f"{sign.kind} {sign.name} {sign.content}".encode(errors="replace"))
        is_new = key not in self._lately
        self._lately.pop(key, None)
        self._lately[key] = None
        if len(self._lately) > REMEMBERED:
            del self._lately[next(iter(self._lately))]
        return is_new

    def dump(self) -> dict[str, Any]:
        """Return the agent's activity as data for the next supervisor, which continues reading at the same position."""
        return {
            "tools": {key: [tool.name, tool.opened_at, tool.deadline_at] for key, tool in self.tools.items()},
            "steps": self.steps,
            "last_step": self.last_step,
            "plight": None if self.stall is None else self.stall.dump(),
            "progress_at": self.progress_at,
            "has_answer": self.has_answer,
            "lately": list(self._lately),
            "spending": self.spending.dump(),
        }

    @classmethod
    def load(cls, kept: Mapping[str, Any]) -> AgentActivity:
        """Rebuild the activity from what `dump` returned. Raise ValueError, KeyError, TypeError, AttributeError or
        OverflowError for data of another form."""
        talk = cls()
        for key, (name, opened_at, deadline_at) in kept["tools"].items():
            talk.tools[str(key)[:MOST_ID]] = OpenTool(
                name=make_printable(str(name), MOST_NAME),
                opened_at=float(opened_at),
                deadline_at=None if deadline_at is None else float(deadline_at),
            )
        talk.steps = int(kept["steps"])
        talk.last_step = make_printable(str(kept["last_step"]), MOST_WORDS)
        if kept.get("plight") is not None:
            stall = Stall.load(kept["plight"])
            talk.stall = replace(stall, words=make_printable(stall.words, MOST_WORDS))
        talk.progress_at = None if kept["progress_at"] is None else float(kept["progress_at"])
        if kept.get("spending") is not None:
            talk.spending = UsageCounter.load(kept["spending"])
        talk.has_answer = kept.get("has_answer") is True
        talk._lately = {int(key): None for key in kept["lately"][:REMEMBERED]}
        return talk


def _is_burst(times: deque[float], at: float, not_before: float | None) -> bool:
    """Add a time to the queue. Return True if the queue is full and all of its times are newer than BURST.

    A line may have been written long before it was read, so the earliest possible time counts.
    """
    times.append(at if not_before is None else not_before)
    return len(times) == times.maxlen and at - times[0] <= BURST


MOST_CONTENT = 4096  # characters that are compared with earlier content
_HOPELESS = frozenset({AgentTrouble.AUTH, AgentTrouble.BILLING, AgentTrouble.USAGE_LIMIT, AgentTrouble.SESSION_LOST})
"""Troubles in which no further try of the same process helps."""


_PLAIN: dict[type, Sign] = {
    StepStarted: Sign(kind=SignKind.TOOL_CLOSED, content="a step"),  # closes a tool without an id
    ToolRefused: Sign(kind=SignKind.STEP, content="a refused tool call"),
}


def signs_from_events(events: Iterable[AgentEvent]) -> list[Sign]:
    return [sign for event in events if (sign := _sign(event)) is not None]


def _usage_sign(usage: Usage) -> Sign:
    if usage.output:
        return Sign(kind=SignKind.USAGE, usage=usage)
    kind = SignKind.EMPTY if usage.is_empty_answer else SignKind.STEP
    return Sign(kind=kind, content="answers without a word", usage=usage)


def _end_of(text: str) -> str:
    """Return the end of a text. A word that would be cut is left out, because half of a secret is not recognized as
    one."""
    return text if len(text) <= MOST_CONTENT else "".join(text[-MOST_CONTENT:].split(None, 1)[1:])


def _sign(event: AgentEvent) -> Sign | None:
    """Return the sign of an event. Text, tools and results are progress when they are new. A retry or a bookkeeping
    step is never progress."""
    match event:
        case AgentText(text=text, is_delta=is_delta):
            told = "" if is_delta else _end_of(text)  # a piece of a text may hold half of a secret
            return Sign(kind=SignKind.PROGRESS, content=text[:MOST_CONTENT], told=told) if text.strip() else None
        case ToolStarted():
            return Sign(
                kind=SignKind.TOOL_OPENED,
                tool=event.id,
                name=event.name,
                content=f"{event.name} {event.input[:MOST_CONTENT]}",
                told=f"{event.name} {event.input[:MOST_CONTENT]}",
                deadline=event.deadline,
            )
        case ToolFinished():
            return Sign(
                kind=SignKind.TOOL_CLOSED,
                tool=event.id,
                name=event.name,
                content=event.output[:MOST_CONTENT] or "ended",
            )
        case Retry():
            return Sign(
                kind=SignKind.RETRY,
                content=event.message or str(event.trouble),
                told=f"retries: {(event.message or event.trouble)[:MOST_CONTENT]}",
                delay=event.delay,
                is_hopeless=event.trouble in _HOPELESS or (event.delay or 0.0) > LONGEST_DELAY,
            )
        case AgentFailure(is_fatal=True):
            return Sign(kind=SignKind.DOOMED, content=event.message or str(event.trouble))
        case AgentFailure():
            return Sign(kind=SignKind.STEP, content=event.message or str(event.trouble))
        case LimitNotice():
            warning = NearLimit(used=event.utilization, scope=event.scope, reset=event.reset)
            return Sign(kind=SignKind.STEP, content="limit", near_limit=None if event.rejected else warning)
        case Usage():
            return _usage_sign(event)
        case SessionStarted(id=session):
            return Sign(kind=SignKind.NEWS, content=f"session {session}")
        case AgentResult(ok=True):
            return Sign(kind=SignKind.PROGRESS)
        case AgentResult():
            return Sign(kind=SignKind.DOOMED, content=event.text or "it reported failure")
    return _PLAIN.get(type(event))
