"""What an agent's events say about its health: from the events of one line to signs."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.agents.events import (
    AgentEvent,
    Failure,
    LimitNotice,
    Result,
    Retry,
    SessionStarted,
    StepStarted,
    Text,
    ToolFinished,
    ToolStarted,
    Trouble,
    Usage,
)
from holdfast.core.health.signs import NearLimit, Sign, SignKind
from holdfast.core.health.stalled import LONGEST_DELAY

MOST_CONTENT = 4096  # characters that are compared with what was said before
_HOPELESS = frozenset({Trouble.AUTH, Trouble.BILLING, Trouble.USAGE_LIMIT, Trouble.SESSION_LOST})
"""No further try of the same process helps."""


_PLAIN: dict[type, Sign] = {
    StepStarted: Sign(kind=SignKind.TOOL_CLOSED, content="a step"),  # of a tool without an id
}


def signs_of(events: Iterable[AgentEvent]) -> list[Sign]:
    return [sign for event in events if (sign := _sign(event)) is not None]


def _sign(event: AgentEvent) -> Sign | None:
    """Words, tools and results are progress when they are new; a retry or a step of bookkeeping never is."""
    match event:
        case Text(text=text):
            return Sign(kind=SignKind.PROGRESS, content=text[:MOST_CONTENT]) if text.strip() else None
        case ToolStarted():
            return Sign(
                kind=SignKind.TOOL_OPENED,
                tool=event.id,
                name=event.name,
                content=f"{event.name} {event.input[:MOST_CONTENT]}",
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
                delay=event.delay,
                is_hopeless=event.trouble in _HOPELESS or (event.delay or 0.0) > LONGEST_DELAY,
            )
        case Failure(is_fatal=True):
            return Sign(kind=SignKind.DOOMED, content=event.message or str(event.trouble))
        case Failure():
            return Sign(kind=SignKind.STEP, content=event.message or str(event.trouble))
        case LimitNotice():
            warning = NearLimit(used=event.utilization, scope=event.scope, reset=event.reset)
            return Sign(kind=SignKind.STEP, content="limit", near_limit=None if event.rejected else warning)
        case Usage(output=output):
            kind, words = (SignKind.USAGE, "") if output else (SignKind.STEP, "a step without words")
            return Sign(kind=kind, content=words, usage=event)
        case SessionStarted(id=session):
            return Sign(kind=SignKind.NEWS, content=f"session {session}")
        case Result(ok=True):
            return Sign(kind=SignKind.PROGRESS)
        case Result():
            return Sign(kind=SignKind.DOOMED, content=event.text or "it reported failure")
    return _PLAIN.get(type(event))
