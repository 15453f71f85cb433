"""What agents say, in the same words for every agent. Adapters turn lines into these; nothing here knows a CLI.

An adapter's `parse` has no memory: one line, no, one or many events. What they add up to is core/agents/digest.py's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Trouble(StrEnum):
    """What stands in an agent's way, as far as its own structured words tell."""

    USAGE_LIMIT = "usage_limit"  # the plan's: it comes back at a known time, mostly
    BILLING = "billing"
    AUTH = "auth"
    CONTEXT = "context"  # the conversation is too long for the model
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"  # the provider answers, with 5xx
    NETWORK = "network"  # the provider does not answer
    SESSION_LOST = "session_lost"  # the session to be continued is not there
    TURN_LIMIT = "turn_limit"
    BUDGET = "budget"
    LOOP = "loop"  # the CLI saw the model go round in circles, and stopped it
    INTERRUPTED = "interrupted"  # somebody outside asked the CLI to end, and it obeyed
    REFUSED = "refused"  # the CLI does not start like this: a bad flag, a missing consent, a wrong version
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionStarted:
    id: str
    model: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepStarted:
    """The model is asked again: whatever was reported before, it was not the end; a tool without an id is over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """The model's words. Never evidence of anything."""

    text: str
    is_delta: bool = False  # a piece of a longer text: the next piece follows on the same line
    is_thought: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolStarted:
    id: str  # empty: told ahead of the event that has it, and over when the next step starts
    name: str
    input: str = ""  # in words for people: the command, the file; else its JSON
    deadline: float | None = None  # seconds after which the tool ends by itself, if it says so


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFinished:
    id: str
    ok: bool | None = None  # None: it does not say
    name: str = ""
    output: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens and money. Without a mark they are more of them.

    `is_total`: for all of the run, so it replaces what was counted before. `settles`: for all since the last such word,
    so it replaces what was counted after that. `of`: a message that may be told several times, and counts once."""

    input: int = 0  # those read from a cache included
    output: int = 0  # those of reasoning included
    cached: int = 0
    reasoning: int = 0
    cost_usd: float | None = None  # None: it does not say
    is_total: bool = False
    settles: bool = False
    of: str = ""
    context_used: int | None = None
    context_size: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """The CLI tries again by itself."""

    trouble: Trouble
    attempt: int | None = None
    most: int | None = None
    delay: float | None = None  # seconds
    status: int | None = None  # of HTTP
    message: str = ""
    reset: str | float | None = (
        None  # a hint at when it is over, as it was written (core/agents/limit_reset.py reads it)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitNotice:
    """The provider's own word on a plan's limit."""

    rejected: bool  # False: a warning, it still works
    scope: str = ""  # five_hour, weekly …
    utilization: float | None = None  # 0 to 1
    reset: str | float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A structured error. `is_fatal`: by itself the run cannot succeed any more.

    `outlasts_success`: nor does a later word of success undo it, for the CLI says that of every end.
    """

    trouble: Trouble
    message: str = ""
    status: int | None = None
    is_fatal: bool = True
    outlasts_success: bool = False
    reset: str | float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The CLI's own word that its work is over."""

    ok: bool
    text: str = ""
    turns: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Raw:
    """A line that means nothing to us. Kept as it is."""

    text: str


AgentEvent = (
    SessionStarted
    | StepStarted
    | Text
    | ToolStarted
    | ToolFinished
    | Usage
    | Retry
    | LimitNotice
    | Failure
    | Result
    | Raw
)


class Stream(StrEnum):
    """Where a line was written."""

    OUT = "out"
    ERR = "err"
