"""What an agent answered, from what it wrote: recordings of all CLIs, and whatever else may stand there."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agents.recordings import Recording, lines_of, recordings

from holdfast.agents.common.cli_agent import CliAgent
from holdfast.agents.port import Stream
from holdfast.agents.registry import AGENTS
from holdfast.core.agents.events import AgentEvent, AgentFailure, AgentResult, AgentText, AgentTrouble, ToolStarted
from holdfast.core.agents.final_answer import FinalAnswer, read_final_answer
from holdfast.core.workflows.result import MOST_TEXT

DONE = ("ok", "tool", "nohup", "resume2", "kr2")
FILE = "out.txt\n\n```\nhello from agent\n\n```"  # what aider's model says: the file, in aider's own form


def answered(recording: Recording) -> str:
    agent = AGENTS[recording.agent]
    assert isinstance(agent, CliAgent)
    lines = agent.join_lines(lines_of(recording.out))
    return read_final_answer(lines, lambda line: agent.parse(line, Stream.OUT), agent.is_banner)


@pytest.mark.parametrize("agent", sorted({recording.agent for recording in recordings()}))
def test_every_recorded_cli_gives_its_last_answer(agent: str) -> None:
    """Golden: where a CLI did its work, its answer is the model's last message, with nothing around it."""
    by_scenario = {each.scenario: answered(each) for each in recordings() if each.agent == agent}
    done = {scenario: text for scenario, text in by_scenario.items() if scenario in DONE}
    expected = FILE if agent == "aider" else "Hello, the task is done."
    assert done
    assert done == dict.fromkeys(done, expected)
    assert "usage limit reached" in by_scenario["limittext"]  # the model's words, whatever they are about
    assert not by_scenario["hang"]  # it never said a word


def told(*events: AgentEvent) -> str:
    answer = FinalAnswer()
    for event in events:
        answer.add(event)
    return answer.text


def test_a_result_in_words_comes_before_talk_and_talk_before_an_error() -> None:
    tool = ToolStarted(id="1", name="Bash")
    assert (
        told(AgentText(text="I look"), tool, AgentText(text="a"), AgentText(text="b"), AgentResult(ok=True)) == "a\nb"
    )
    assert (
        told(AgentText(text="talk"), AgentResult(ok=True, text="the result"), AgentText(text="Commit 1"))
        == "the result"
    )
    assert told(AgentText(text="half"), AgentText(text="thinking", is_thought=True), tool) == "half"  # killed in a tool
    assert told(AgentText(text="so ", is_delta=True), AgentText(text="far", is_delta=True), tool) == "so far"
    assert told(AgentText(text="as far"), AgentResult(ok=False, text="exit code 1")) == "as far"
    assert told(AgentFailure(trouble=AgentTrouble.AUTH), AgentResult(ok=False, text="log in")) == "log in"
    assert told() == ""


def test_an_endless_answer_keeps_its_end_and_says_so() -> None:
    pieces = 100_000  # 1 MB in pieces of ten: quadratic work would take minutes
    text = told(*(AgentText(text="x" * 10, is_delta=True) for _ in range(pieces)), AgentText(text="VERDICT: approve"))
    assert len(text) < MOST_TEXT + 100
    assert text.endswith("xx\nVERDICT: approve")
    assert text.startswith(f"[… {pieces * 10 + 17 - MOST_TEXT} characters before this are not kept]\n")
    plain = read_final_answer((f"line {number}" for number in range(100_000)), None)
    assert len(plain) < MOST_TEXT + 100
    assert plain.endswith("line 99998\nline 99999")


@given(
    st.lists(st.one_of(st.text(), st.builds(lambda text: json.dumps({"type": "result", "result": text}), st.text()))),
    st.sampled_from(sorted(AGENTS)),
)
@settings(max_examples=100, deadline=None)
def test_no_output_whatsoever_raises_and_what_comes_can_be_stored(lines: list[str], name: str) -> None:
    """An agent's JSON may hold halves of characters and NULs."""
    agent = AGENTS[name]
    text = read_final_answer(lines, (lambda line: agent.parse(line, Stream.OUT)) if agent.reads_events else None)
    assert "\0" not in text
    assert text.encode().decode() == text
    assert told(AgentText(text="\ud800\0")) == "?�"
