"""Every recording of a real CLI gives the expected outcome and events (docs/howto/add-an-agent.md)."""

from __future__ import annotations

import re

import pytest
from tests.agents.recordings import RECORDED_AT, Recording, events_of, judged, recordings

from holdfast.agents.common.cli_agent import CliAgent
from holdfast.agents.registry import AGENTS
from holdfast.config.settings import CLI_AGENTS
from holdfast.core.model import StopWhy
from holdfast.core.runs.outcome import Outcome, classify

ALL = list(recordings())
SAID_NOTHING = (Outcome.CRASHED, Outcome.NETWORK)  # the recorder ended it; no word of a limit, a login or a success

O = Outcome  # noqa: E741  # the table is read by columns
Expected = dict[str, Outcome | tuple[Outcome, ...]]
DONE: Expected = dict.fromkeys(("ok", "tool", "nohup", "resume1", "resume2", "kr2", "limittext"), O.COMPLETED)
FAILURES: Expected = {
    "e401": O.AUTH,
    "e429": O.RATE_LIMITED,
    "e500": O.OVERLOADED,
    "e529": O.OVERLOADED,
    "ecredit": O.BILLING,
    "ectx": O.CONTEXT_LIMIT,
    "refused": O.NETWORK,  # of codex: it never gave up, "waiting for network"
    "reset": O.NETWORK,
    "html": O.NETWORK,  # status 200 with a proxy's page
    "unknown-session": O.SESSION_LOST,
    "max-turns": O.TURN_LIMIT,
}
CUT: Expected = {
    "kr1": O.CRASHED,
    "hang": SAID_NOTHING,
    "midhang": SAID_NOTHING,
    "sigint": O.CRASHED,
    "sigterm": O.CRASHED,  # of the CLI, by somebody else, in a tool call
}

# Written by hand, from what was done to each CLI and its exit code; never from what our code says of it.
EXPECTED: dict[str, Expected] = {
    "claude": {
        **DONE,
        **FAILURES,
        **CUT,
        "e429long": O.RATE_LIMITED,
        "eusage": O.RATE_LIMITED,  # with an API key it looks like any 429
        "oauth-eusage": O.USAGE_LIMITED,
        "oauth-5hour": O.USAGE_LIMITED,
        "midcut": O.COMPLETED,  # it asked again, without a stream
        "miderr": O.COMPLETED,
        "sigint": O.EXTERNAL_KILL,  # exit code 0, and "aborted_tools"
        "warn": O.COMPLETED,
        # the prompt began with a command of the CLI: "success", exit code 0, and no model was asked
        **dict.fromkeys(("command-compact", "command-help"), O.FAILED),
    },
    "codex": {
        **DONE,
        **FAILURES,
        **CUT,
        "e429long": (O.RATE_LIMITED, O.CRASHED),  # it slept the hour out
        "eusage": O.USAGE_LIMITED,
        "midcut": O.NETWORK,
        "miderr": O.RATE_LIMITED,
        "warn": O.COMPLETED,
    },
    "gemini": {
        **DONE,
        **FAILURES,
        **CUT,
        "e429long": O.RATE_LIMITED,
        "eusage": O.USAGE_LIMITED,
        "midcut": O.NETWORK,
        "miderr": O.NETWORK,  # it saw only that the stream ended
    },
    "opencode": {
        **DONE,
        **FAILURES,
        **CUT,
        "e429long": SAID_NOTHING,
        "eusage": SAID_NOTHING,
        "midcut": O.NETWORK,  # answers without words, for ever
        "empty": O.NETWORK,  # the same: every stream ended before its first word
        "empty-text": O.NETWORK,  # the same, with the announcement of a text that never came
        # with --print-logs, as we start it
        "e401-log": O.AUTH,
        "e429long-log": O.RATE_LIMITED,
        "ecredit-log": O.BILLING,
        "eusage-log": O.USAGE_LIMITED,
        "miderr-log": O.OVERLOADED,
        "slow-log": O.CRASHED,
        "refused-tool": O.CRASHED,  # a permission was not given, and that ended its turn; exit code 0
    },
    "qwen": {
        **DONE,
        **FAILURES,
        **CUT,
        "e429": (O.RATE_LIMITED, O.CRASHED),  # ended while it waited for its next try
        "eusage": SAID_NOTHING,
        "midcut": O.NETWORK,
        "miderr": O.OVERLOADED,
        # 0.15.10: "success" and exit code 0, whatever happened
        "command-stats": O.FAILED,  # no model was asked
        "old-e401": O.AUTH,
        "old-ectx": O.CONTEXT_LIMIT,
        "old-midcut": O.NETWORK,
        "old-refused": O.NETWORK,
    },
    "copilot": {
        **DONE,
        **FAILURES,
        **CUT,
        "e429long": O.RATE_LIMITED,
        "eusage": O.USAGE_LIMITED,
        "midcut": O.NETWORK,
        "miderr": O.OVERLOADED,
    },
    "aider": {**DONE, **FAILURES, **CUT, "eusage": O.USAGE_LIMITED},
}
RESETS = {
    "claude/oauth-eusage": 1794718625.0,  # 04:57:05, from its event; its text says only 4:57am
    "claude/oauth-5hour": 1794783254.0,
    "codex/eusage": RECORDED_AT + 116 * 60,  # "4:55 AM" is the end of that minute
    "codex/miderr": RECORDED_AT + 2.5,
    "gemini/e429": RECORDED_AT + 2,
    "gemini/e429long": RECORDED_AT + 3600,
    "opencode/e429": RECORDED_AT + 2,
    "opencode/e429long-log": 1794776386.816,  # an hour from when its log said so
    "copilot/e429long": RECORDED_AT + 3600,
    "copilot/eusage": 1794719017.0,
}
_SESSION = re.compile(rb'"(?:session_id|thread_id|sessionID|sessionId)": ?"([^"]+)"')


def names(recording: Recording) -> str:
    return recording.id


@pytest.mark.parametrize("recording", ALL, ids=names)
def test_the_outcome_of_a_recording(recording: Recording) -> None:
    """What the agent's own words make of it; a recording that the recorder cut off is never a success."""
    verdict = judged(AGENTS[recording.agent], recording.out, recording.err, recording.end())
    expected = EXPECTED[recording.agent][recording.scenario]
    assert verdict.outcome in (expected if isinstance(expected, tuple) else (expected,)), verdict.reason
    assert verdict.resets_at == RESETS.get(recording.id)
    assert verdict.reason.isprintable()
    if (session := _SESSION.search(recording.out)) and expected is not O.SESSION_LOST:
        assert verdict.session_id == session[1].decode()


@pytest.mark.parametrize("recording", ALL, ids=names)
def test_the_events_of_a_recording(recording: Recording) -> None:
    """events.jsonl is reviewed; when it differs, see tests/agents/recordings.py for how it is written again."""
    file = recording.events_file()
    kept = file.read_text().splitlines() if file.exists() else None
    assert kept == events_of(AGENTS[recording.agent], recording), "run `python -m tests.agents.recordings --write`"


@pytest.mark.parametrize("recording", ALL, ids=names)
def test_what_happened_to_the_process_comes_first(recording: Recording) -> None:
    """A killed agent was killed, and one that we ended as stuck was stuck, unless its errors say why it waited."""
    verdict = judged(AGENTS[recording.agent], recording.out, recording.err, recording.end())
    if recording.stopped:
        ended = classify(recording.end(), StopWhy.STUCK, verdict)
        is_explained = verdict.outcome in (O.NETWORK, O.RATE_LIMITED, O.USAGE_LIMITED, O.OVERLOADED, O.BILLING)
        assert ended.outcome is (verdict.outcome if is_explained else Outcome.STUCK)
    elif recording.code < 0:
        killed = classify(recording.end(), None, verdict)
        assert (killed.outcome, killed.session_id) == (Outcome.EXTERNAL_KILL, verdict.session_id)


def test_every_recording_has_its_expected_outcome() -> None:
    unexpected = [recording.id for recording in ALL if recording.scenario not in EXPECTED.get(recording.agent, {})]
    assert not unexpected, "say in EXPECTED what became of them"


def test_every_agent_that_is_a_cli_has_recordings() -> None:
    """An adapter without recordings is a guess."""
    clis = {name for name, agent in AGENTS.items() if isinstance(agent, CliAgent)}
    assert clis == set(CLI_AGENTS) == {recording.agent for recording in ALL}


@pytest.mark.parametrize("recording", ALL, ids=names)
def test_a_refused_first_request_is_no_answer(recording: Recording) -> None:
    """In each of these recordings the provider refused every request, so words in the output are the CLI's own."""
    verdict = judged(AGENTS[recording.agent], recording.out, recording.err, recording.end())
    if verdict.outcome in (O.RATE_LIMITED, O.USAGE_LIMITED, O.AUTH, O.BILLING):
        assert not verdict.has_answer
