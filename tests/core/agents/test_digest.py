"""Trouble that an agent tells on standard error: nobody knows what of its output came before, and what after."""

from __future__ import annotations

import pytest

from holdfast.agents.common.cli_agent import CliAgent
from holdfast.agents.port import EndedRun, Stream
from holdfast.core.agents.events import (
    AgentEvent,
    AgentFailure,
    AgentResult,
    AgentText,
    AgentTrouble,
    Retry,
    SessionStarted,
    ToolFinished,
    Usage,
)
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd

RETRY = Retry(trouble=AgentTrouble.USAGE_LIMIT, message="spent")
FATAL = AgentFailure(trouble=AgentTrouble.AUTH, message="bad key")
EVENTS: dict[str, AgentEvent] = {
    "text": AgentText(text="hello"),
    "ok": AgentResult(ok=True),
    "not ok": AgentResult(ok=False),
    "retry": RETRY,
    "fatal": FATAL,
    "refused": AgentFailure(trouble=AgentTrouble.RATE_LIMIT, message="429"),
    "session": SessionStarted(id="s-1"),
    "another": SessionStarted(id="s-2"),
    "empty": Usage(),
    "blank": AgentText(text=" "),
    "tokens": Usage(input=10, output=2),
    "no turns": AgentResult(ok=True, text="cleared", turns=0),
    "one turn": AgentResult(ok=True, turns=1),
    "total of none": Usage(is_total=True),
    "tool": ToolFinished(id="t", ok=True),
}


def parse(line: str, _stream: Stream) -> list[AgentEvent]:
    return [EVENTS[line]]


AGENT = CliAgent(
    name="any",
    title="Any",
    binary="any",
    tested=("1", "1"),
    arguments=lambda _: [],
    parse_line=parse,
    reads_errors=True,
)


@pytest.mark.parametrize(
    ("output", "errors", "code", "outcome"),
    [
        (["text", "ok"], ["retry"], 0, Outcome.COMPLETED),
        (["text", "ok"], ["fatal", "retry"], 0, Outcome.COMPLETED),  # its positive word outweighs what it said aside
        (["ok"], ["retry", "fatal"], 1, Outcome.CRASHED),
        (["text"], ["retry"], 1, Outcome.USAGE_LIMITED),  # perhaps it came through; it is not said that it did
        (["text"], ["retry"], 0, Outcome.USAGE_LIMITED),
        (["not ok"], ["retry"], 1, Outcome.USAGE_LIMITED),
        (["refused"], ["retry"], 1, Outcome.RATE_LIMITED),  # a failure says more than a try
        (["refused"], ["fatal"], 1, Outcome.AUTH),  # the order of the rules holds for both together
        ([], ["fatal"], 0, Outcome.AUTH),
        (["text"], ["ok"], 0, Outcome.CRASHED),  # a success is told by the output, or not at all
    ],
)
def test_what_is_said_aside(output: list[str], errors: list[str], code: int, outcome: Outcome) -> None:
    end = ProcessEnd(cause=Cause.EXITED, code=code)
    assert AGENT.judge(EndedRun(end=end, output=output, errors=errors, error_tail="", at=1e9)).outcome is outcome


def test_all_of_standard_error_is_judged_and_its_session_only_without_another() -> None:
    end = ProcessEnd(cause=Cause.EXITED, code=1)
    many = ["fatal", "another", *["text"] * 100_000]  # far more than the tail that people are shown
    verdict = AGENT.judge(EndedRun(end=end, output=["session"], errors=many, error_tail="", at=1e9))
    assert (verdict.outcome, verdict.session_id) == (Outcome.AUTH, "s-1")
    verdict = AGENT.judge(EndedRun(end=end, output=[], errors=many, error_tail="", at=1e9))
    assert verdict.session_id == "s-2"


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (ProcessEnd(cause=Cause.EXITED, code=0), Outcome.COMPLETED),
        (ProcessEnd(cause=Cause.EXITED, code=1), Outcome.CRASHED),
        (ProcessEnd(cause=Cause.EXITED, signal=9), Outcome.CRASHED),
        (ProcessEnd(cause=Cause.STOPPED, signal=15), Outcome.COMPLETED),
    ],
)
def test_a_success_that_did_not_exit_by_itself(end: ProcessEnd, outcome: Outcome) -> None:
    """The code of a process that we ended says nothing; that of one which ended by itself does."""
    verdict = AGENT.judge(EndedRun(end=end, output=["text", "ok"], error_tail="", at=0.0))
    assert verdict.outcome is outcome


def test_a_failure_that_we_ended_is_none() -> None:
    end = ProcessEnd(cause=Cause.STOPPED, signal=15)
    assert AGENT.judge(EndedRun(end=end, output=["ok", "not ok"], error_tail="", at=0.0)).outcome is Outcome.FAILED
    assert AGENT.judge(EndedRun(end=end, output=["text"], error_tail="", at=0.0)).outcome is Outcome.CRASHED


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        (["empty"] * 5, Outcome.NETWORK),
        (["text", "tokens", *["empty"] * 5], Outcome.NETWORK),
        (["blank", "empty"] * 5, Outcome.NETWORK),
        (["empty"] * 4, Outcome.CRASHED),
        (["empty", "empty", "text", "empty", "empty", "empty"], Outcome.CRASHED),
        (["empty", "empty", "tool", "empty", "empty", "empty"], Outcome.CRASHED),
        (["empty"] * 5 + ["fatal"], Outcome.AUTH),  # an error says more
        (["empty"] * 5 + ["text", "ok"], Outcome.COMPLETED),
        (["total of none"] * 5, Outcome.CRASHED),
    ],
)
def test_answers_without_a_word_are_a_provider_that_is_not_there(output: list[str], outcome: Outcome) -> None:
    """A gateway that ends every stream before its first word, or answers with a page: the CLI asks again for ever."""
    for end in (ProcessEnd(cause=Cause.EXITED, code=0), ProcessEnd(cause=Cause.STOPPED, signal=15)):
        verdict = AGENT.judge(EndedRun(end=end, output=output, error_tail="", at=1e9))
        assert verdict.outcome is outcome
    assert outcome is not Outcome.NETWORK or "5 answers in a row without a word" in verdict.reason


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        (["ok"], Outcome.FAILED),
        (["session", "total of none", "ok"], Outcome.FAILED),
        (["blank", "empty", "ok"], Outcome.FAILED),
        (["text", "no turns"], Outcome.FAILED),  # the words are those of the CLI
        (["tokens", "no turns"], Outcome.FAILED),  # the tokens are those of the session's earlier runs
        (["text", "ok"], Outcome.COMPLETED),  # a provider that counts no tokens
        (["tokens", "ok"], Outcome.COMPLETED),
        (["tool", "ok"], Outcome.COMPLETED),
        (["tool", "no turns"], Outcome.COMPLETED),
        (["one turn"], Outcome.COMPLETED),
    ],
)
@pytest.mark.parametrize("cause", [Cause.EXITED, Cause.STOPPED])
def test_no_success_without_an_answer_of_a_model(output: list[str], outcome: Outcome, cause: Cause) -> None:
    """One rule for every CLI: some report success after a command of their own, and some after nothing at all."""
    end = ProcessEnd(cause=cause, code=0)
    for prompt, words in (
        ("/clear the cache\nand more", "no model was asked: the prompt `/clear …` is a command of any"),
        ("say hello", "no model answered: the CLI reported success without words, tokens, turns or tool calls"),
    ):
        verdict = AGENT.judge(EndedRun(end=end, output=output, error_tail="", at=1e9, prompt=prompt))
        assert verdict.outcome is outcome
        assert outcome is not Outcome.FAILED or verdict.reason == words
