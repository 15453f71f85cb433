"""The events of agents, in one form for every agent. Adapters turn lines into these events. This module knows no CLI.

An adapter's `parse` has no memory: it turns one line into no, one or many events. core/agents/digest.py adds the events
up.
"""

from __future__ import annotations

from enum import StrEnum

from holdfast.base.dataclass import dataclass


class AgentTrouble(StrEnum):
    """A problem of an agent, as far as its structured output shows it."""

    USAGE_LIMIT = "usage_limit"  # of the plan: mostly it resets at a known time
    BILLING = "billing"
    AUTH = "auth"
    CONTEXT = "context"  # the conversation is too long for the model
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"  # the provider answers, with 5xx
    NETWORK = "network"  # the provider does not answer
    SESSION_LOST = "session_lost"  # the session to be continued does not exist
    TURN_LIMIT = "turn_limit"
    BUDGET = "budget"
    LOOP = "loop"  # the CLI saw that the model repeats itself, and stopped it
    INTERRUPTED = "interrupted"  # the CLI was asked from outside to end, and did
    REFUSED = "refused"  # the CLI refuses to start: a bad flag, a missing consent, a wrong version
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionStarted:
    id: str
    model: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepStarted:
    """The start of another request to the model. It shows that a result reported before was not the end, and that an
    open tool without an id is finished."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentText:
    """Text of the model. It is never evidence of anything."""

    text: str
    is_delta: bool = False  # a piece of a longer text: the next piece follows on the same line
    is_thought: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolStarted:
    id: str  # empty: announced before the event that has the id, and over when the next step starts
    name: str
    input: str = ""  # as text for people: the command, the file; else its JSON
    deadline: float | None = None  # seconds after which the tool ends by itself, if the agent reports it


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFinished:
    id: str
    ok: bool | None = None  # None: unknown
    name: str = ""
    output: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRefused:
    """A tool call that the CLI did not permit, because no person could be asked."""

    name: str
    input: str = ""  # as text for people, like that of `ToolStarted`


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens and money. Without a flag they are added to what was counted before.

    `is_total`: for the whole run, so it replaces everything that was counted before. `settles`: for everything since
    the last such report, so it replaces what was counted after that. `of`: the id of a message that may be reported
    several times and counts once.
    """

    input: int = 0  # includes tokens read from a cache
    output: int = 0  # includes tokens of reasoning
    cached: int = 0
    reasoning: int = 0
    cost_usd: float | None = None  # None: unknown
    is_total: bool = False
    settles: bool = False
    of: str = ""
    context_used: int | None = None
    context_size: int | None = None

    @property
    def is_empty_answer(self) -> bool:
        """True if this is the report on one answer of the model, and that answer had no output."""
        return not (self.output or self.is_total or self.settles)


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """A retry that the CLI makes by itself."""

    trouble: AgentTrouble
    attempt: int | None = None
    most: int | None = None
    delay: float | None = None  # seconds
    status: int | None = None  # of HTTP
    message: str = ""
    reset: str | float | None = None  # a hint at the end of the limit, as written (core/agents/limit_reset.py reads it)


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitNotice:
    """The provider's own report on a plan's limit."""

    rejected: bool  # False: a warning, the account still works
    scope: str = ""  # five_hour, weekly …
    utilization: float | None = None  # 0 to 1
    reset: str | float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentFailure:
    """A structured error. `is_fatal`: the run cannot succeed by itself any more.

    `outlasts_success`: a later report of success does not undo the error, because the CLI reports success at every end.
    """

    trouble: AgentTrouble
    message: str = ""
    status: int | None = None
    is_fatal: bool = True
    outlasts_success: bool = False
    reset: str | float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentResult:
    """The CLI's own report that its work is over."""

    ok: bool
    text: str = ""
    turns: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RawLine:
    """A line that has no meaning for us. It is kept as it is."""

    text: str


AgentEvent = (
    SessionStarted
    | StepStarted
    | AgentText
    | ToolStarted
    | ToolFinished
    | ToolRefused
    | Usage
    | Retry
    | LimitNotice
    | AgentFailure
    | AgentResult
    | RawLine
)
