"""The sum of a run's events: session, usage, troubles, and the result that the agent reports.

The rules are ordered, and the first that applies decides. Success needs three things together: the CLI's own report of
success, exit code 0, and no fatal error after that report. The model's text or the exit code alone is never enough.
A success without any answer of a model is a failure: the prompt was a command of the CLI itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from holdfast.core.agents.events import (
    AgentEvent,
    AgentFailure,
    AgentResult,
    AgentText,
    AgentTrouble,
    LimitNotice,
    RawLine,
    Retry,
    SessionStarted,
    StepStarted,
    ToolFinished,
    ToolRefused,
    ToolStarted,
    Usage,
)
from holdfast.core.agents.limit_reset import parse_reset_time
from holdfast.core.agents.usage import UsageCounter
from holdfast.core.health.signs import EMPTY_ANSWERS, make_printable
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, RefusedCalls, RunUsage, Verdict

MAX_ERROR_LENGTH = 300  # characters of an agent's error message in our reason
MOST_REFUSED = 5  # refused tool calls that are kept by name
MAX_CALL_LENGTH = 120  # characters of the name of a refused tool call

# The order matters: a usage limit is often reported as a rate limit as well, and a lost login as a server error.
RULES: tuple[tuple[AgentTrouble, Outcome, str], ...] = (
    (AgentTrouble.SESSION_LOST, Outcome.SESSION_LOST, "the session that it was to continue is gone"),
    (AgentTrouble.USAGE_LIMIT, Outcome.USAGE_LIMITED, "the plan's usage limit is reached"),
    (AgentTrouble.BILLING, Outcome.BILLING, "the account has no credit"),
    (AgentTrouble.AUTH, Outcome.AUTH, "the provider refused the login"),
    (AgentTrouble.CONTEXT, Outcome.CONTEXT_LIMIT, "the conversation is too long for the model"),
    (AgentTrouble.RATE_LIMIT, Outcome.RATE_LIMITED, "the provider's rate limit was hit"),
    (AgentTrouble.OVERLOADED, Outcome.OVERLOADED, "the provider is overloaded or broken"),
    (AgentTrouble.NETWORK, Outcome.NETWORK, "the provider could not be reached"),
    (AgentTrouble.TURN_LIMIT, Outcome.TURN_LIMIT, "its limit of turns is reached"),
    (AgentTrouble.BUDGET, Outcome.OVER_BUDGET, "its budget is spent"),
    (AgentTrouble.LOOP, Outcome.LOOPING, "it went round in circles"),
    (AgentTrouble.INTERRUPTED, Outcome.EXTERNAL_KILL, "it was interrupted from outside"),
    (AgentTrouble.REFUSED, Outcome.LAUNCH_ERROR, "the agent's CLI refused to start"),
    (AgentTrouble.OTHER, Outcome.FAILED, "the agent failed"),
)
# The next run gets the session on its command line: it must never look like an option or a path.
_SESSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")
_VAGUE = frozenset({AgentTrouble.INTERRUPTED, AgentTrouble.OTHER})
_LIMIT_OUTCOMES = frozenset({Outcome.USAGE_LIMITED, Outcome.RATE_LIMITED})


@dataclass(kw_only=True)
class RunDigest:
    """The digest of one run. Every event of the run is added to it, in order. It stays small, however much the agent
    writes."""

    agent: str = ""  # name of the agent, and the prompt of the task: for the words of a verdict
    prompt: str = ""
    plain_text: bool = False  # the CLI prints its own lines like text of the model
    session_id: str | None = None
    model: str = ""
    result: AgentResult | None = None
    failures: dict[AgentTrouble, AgentFailure] = field(default_factory=dict)  # fatal; the newest of each kind
    retry: Retry | None = None  # the newest retry, until something better follows
    limit: LimitNotice | None = None  # the newest rejection
    is_rejected: bool = False  # True until the model answers after the rejection
    warning: LimitNotice | None = None
    tool_failure: AgentFailure | None = None  # why none of its tools could start so far
    has_worked: bool = False  # at least one of its tools did
    refused: RefusedCalls = field(default_factory=RefusedCalls)
    has_words: bool = False  # there was a text; without a turn it is the CLI's own
    has_tools: bool = False  # there was a tool call
    has_events: bool = False  # at least one event that we understood
    empty_answers: int = 0  # in a row, without text or a tool call between them
    spending: UsageCounter = field(default_factory=UsageCounter)

    @property
    def has_answer(self) -> bool:
        """True if the agent's model wrote or did something. For plain text, only received tokens prove that."""
        has_words = self.spending.total.output > 0 if self.plain_text else self.has_words
        return has_words or self.has_tools

    def add(self, event: AgentEvent) -> None:
        if isinstance(event, RawLine):
            return
        self.has_events = True
        has_words = isinstance(event, AgentText) and bool(event.text.strip())
        if has_words or isinstance(event, ToolStarted | ToolFinished):
            self.retry, self.empty_answers = None, 0  # the retry succeeded
        if has_words:
            self.is_rejected = False
        self.has_words = self.has_words or has_words
        self.has_tools = self.has_tools or isinstance(event, ToolStarted | ToolFinished)
        self._note_tools(event)
        match event:
            case SessionStarted():
                self.session_id = event.id if _SESSION.fullmatch(event.id) else self.session_id
                self.model = event.model or self.model
            case StepStarted():
                self.result = None
            case Usage():
                self.spending.add(event)
                self.empty_answers += event.is_empty_answer
            case Retry():
                self.retry = event
            case LimitNotice(rejected=True):
                self.limit, self.is_rejected = event, True
            case LimitNotice():
                self.warning = event
            case AgentFailure(is_fatal=True):
                self.failures[event.trouble] = event
                self.result = None if self.result is not None and self.result.ok else self.result
            case AgentResult():
                self._add_result(event)

    def _add_refused(self, event: ToolRefused) -> None:
        known, name = self.refused.first, make_printable(event.name or "a tool", MAX_CALL_LENGTH)
        call = make_printable(f"{name}: {event.input}", MAX_CALL_LENGTH) if event.input.strip() else name
        first = known if call in known or len(known) == MOST_REFUSED else (*known, call)
        self.refused = RefusedCalls(count=self.refused.count + 1, first=first)

    def _note_tools(self, event: AgentEvent) -> None:
        if isinstance(event, ToolRefused):
            self._add_refused(event)
        elif isinstance(event, ToolFinished) and event.ok:
            self.has_worked, self.tool_failure = True, None
        elif isinstance(event, AgentFailure) and event.trouble is AgentTrouble.REFUSED and not event.is_fatal:
            self.tool_failure = None if self.has_worked else event

    def add_from_stderr(self, event: AgentEvent) -> None:
        """Add an event from standard error, after all events of the output. The order between the two streams is
        unknown.

        A success in the output outweighs every trouble on standard error. Without a success, trouble on standard error
        counts as the newest. Waiting for a limit that is over is better than running into one that is not.
        """
        came_through = self.result is not None and self.result.ok
        match event:
            case AgentResult() | StepStarted():
                return  # only the output decides how the run ended
            case AgentFailure(is_fatal=True):
                if not came_through:
                    self.failures.setdefault(event.trouble, event)
                    self.has_events = True
            case Retry() if came_through:
                return
            case SessionStarted() if self.session_id is not None:
                self.model = self.model or event.model
            case _:
                self.add(event)

    def _add_result(self, result: AgentResult) -> None:
        self.result = result
        ended_it = any(failure.outlasts_success for failure in self.failures.values())
        if result.ok and not ended_it:  # the run succeeded in spite of earlier failures
            self.failures.clear()
            self.retry = None

    @property
    def usage(self) -> RunUsage | None:
        """Return the usage of the run. None: the agent did not report it."""
        if not self.spending.is_told and not self.model:
            return None
        turns = self.result.turns if self.result is not None else None
        return replace(self.spending.total, turns=turns, model=self.model)

    def verdict(self, end: ProcessEnd, error_tail: str, now: float, zone: str | None) -> Verdict:
        """Judge the end of the run from the agent's own events. `now` and `zone`: the time and the time zone of the
        process that wrote the events."""
        outcome, reason, reset = self._judge(end)
        resets_at = None
        if outcome in _LIMIT_OUTCOMES:
            hints = [hint for hint in (reset, self.limit.reset if self.limit is not None else None) if hint is not None]
            hints.sort(key=lambda hint: isinstance(hint, str))  # a number is exact, a text is often rounded
            resets_at = next((at for hint in hints if (at := _time_of(hint, now, zone)) is not None), None)
        return Verdict(
            outcome=outcome,
            reason=reason,
            resets_at=resets_at,
            session_id=self.session_id,
            error_tail=error_tail,
            usage=self.usage,
            has_answer=self.has_answer,
            refused=self.refused if self.refused.count or self.result is not None else None,
        )

    def _judge(self, end: ProcessEnd) -> tuple[Outcome, str, str | float | None]:
        is_success = self.result is not None and self.result.ok and not self.failures
        if is_success and self.tool_failure is not None:
            return Outcome.LAUNCH_ERROR, _quoted("none of its tools could start", self.tool_failure.message), None
        # an exit code caused by our own signal proves nothing
        if is_success and (end.code == 0 or end.cause is Cause.STOPPED):
            if not self._has_answer():
                return Outcome.FAILED, self._words_without_answer(), None
            return Outcome.COMPLETED, "the agent reported success", None
        if not is_success and self.limit is not None and self.is_rejected:
            notice = AgentFailure(trouble=AgentTrouble.USAGE_LIMIT, message=self._limit_words(), reset=self.limit.reset)
            self.failures.setdefault(AgentTrouble.USAGE_LIMIT, notice)
        # The run ended, or was ended, while the agent kept retrying. An error that only reports this is less
        # informative.
        tells_more = self.retry is not None and self.failures.keys() <= _VAGUE
        for trouble, outcome, words in RULES:
            failure = self.failures.get(trouble)
            if failure is not None and not tells_more:
                return outcome, _quoted(words, failure.message), failure.reset
        if is_success:
            return Outcome.CRASHED, f"it reported success, but exited with {_exit_words(end)}", None
        if self.retry is not None:
            outcome, words = next((o, w) for trouble, o, w in RULES if trouble is self.retry.trouble)
            delay = None if self.retry.delay is None else f"try again in {self.retry.delay:.0f} seconds"
            return outcome, _quoted(words, self.retry.message), delay if self.retry.reset is None else self.retry.reset
        if self.result is None and self.empty_answers >= EMPTY_ANSWERS:
            said = f"{self.empty_answers} answers in a row without a word; is a proxy or a gateway in the way?"
            return Outcome.NETWORK, f"the provider could not be reached: {said}", None
        if self.result is not None:
            return Outcome.FAILED, _quoted("the agent reported failure", self.result.text), None
        return Outcome.CRASHED, f"it ended without reporting a result ({_exit_words(end)})", None

    def _has_answer(self) -> bool:
        """True if a model answered in this run. If the CLI reports its turns, words and tokens prove nothing: the words
        may be the CLI's own, and the tokens may belong to earlier runs of the session."""
        turns = self.result.turns if self.result is not None else None
        if self.has_tools or turns is not None:
            return self.has_tools or bool(turns)
        text = self.result.text if self.result is not None else ""
        return self.has_words or bool(text.strip()) or self.spending.total.output > 0

    def _words_without_answer(self) -> str:
        command = self.prompt.split(maxsplit=1)[0] if self.prompt.strip() else ""
        if command[:1] in ("/", "!"):
            return f"no model was asked: the prompt `{make_printable(command, 40)} …` is a command of {self.agent}"
        return "no model answered: the CLI reported success without words, tokens, turns or tool calls"

    def _limit_words(self) -> str:
        return f"the {self.limit.scope} window" if self.limit is not None and self.limit.scope else ""


def _time_of(hint: str | float | None, now: float, zone: str | None) -> float | None:
    return None if hint is None else parse_reset_time(hint, now, zone)


def _exit_words(end: ProcessEnd) -> str:
    return f"signal {end.signal}" if end.signal is not None else f"exit code {end.code}"


def _quoted(words: str, message: str) -> str:
    said = make_printable(message, MAX_ERROR_LENGTH).strip().rstrip(".")
    return f"{words}: {said}" if said else words
