"""Claude Code's adapter: what is started, and what its words mean where no recording says so."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.agents.recordings import RECORDED_AT, judged

from holdfast.agents.claude import CLAUDE
from holdfast.agents.port import Account, HostFacts, Permission, Stream, WorkOrder
from holdfast.core.agents.events import LimitNotice, ToolStarted
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict

EXITED = ProcessEnd(cause=Cause.EXITED, code=0)
FAILED = ProcessEnd(cause=Cause.EXITED, code=1)
SANDBOX = HostFacts(is_root=True, is_sandboxed=True)
INIT = {"type": "system", "subtype": "init", "session_id": "s1", "model": "opus"}


def order(session: str | None = None, **options: Any) -> WorkOrder:
    surroundings = options.pop("surroundings", HostFacts())
    account = options.pop("account", Account())
    return WorkOrder(
        prompt="do it",
        run_number=1,
        session_id=session,
        options=options,
        new_session="11111111-1111-4111-8111-111111111111",
        account=account,
        surroundings=surroundings,
    )


def verdict(*lines: dict[str, Any], end: ProcessEnd = EXITED, err: str = "") -> Verdict:
    return judged(CLAUDE, b"".join(json.dumps(line).encode() + b"\n" for line in lines), err.encode(), end)


def result(**said: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": "done", **said}


def refused(text: str, **said: Any) -> dict[str, Any]:
    return result(is_error=True, result=text, **said)


def test_a_new_session_gets_our_id_and_an_old_one_is_resumed() -> None:
    """The prompt goes by standard input; what was asked for is on the command line."""
    new = CLAUDE.build(order(model="opus", budget_usd=2.5, max_turns=7, permission="read"))
    assert new.argv[:5] == ["claude", "-p", "--output-format", "stream-json", "--verbose"]
    given = " ".join(new.argv)
    assert "--permission-mode plan --session-id 11111111-1111-4111-8111-111111111111" in given
    assert given.endswith("--model opus --max-budget-usd 2.5 --max-turns 7")
    assert new.stdin == "do it"
    assert "do it" not in given

    again = CLAUDE.build(order("s9", binary="/opt/claude"))
    assert again.argv[0] == "/opt/claude"
    assert list(again.argv[-4:]) == ["--permission-mode", "acceptEdits", "--resume", "s9"]
    assert "interrupted" in again.stdin
    assert again.stdin.endswith("do it")
    sent_back = CLAUDE.build(replace(order("s9"), is_sent_back=True))
    assert "is not accepted yet" in sent_back.stdin
    assert "interrupted" not in sent_back.stdin
    assert sent_back.stdin.endswith("do it"), "what is to be mended stands in its prompt"


def test_full_permissions_for_root_need_a_sandbox_and_are_never_silent() -> None:
    full = {"permission": Permission.FULL}
    refusal = CLAUDE.problem(full, HostFacts(is_root=True))
    assert refusal is not None
    assert "permissions.sandbox" in refusal
    assert "container" in refusal
    assert CLAUDE.problem(full, HostFacts()) is None
    assert CLAUDE.problem({}, HostFacts(is_root=True)) is None
    command = CLAUDE.build(order(permission="full", surroundings=SANDBOX))
    assert "--dangerously-skip-permissions" in command.argv
    assert command.env["IS_SANDBOX"] == "1"
    assert "IS_SANDBOX" not in CLAUDE.build(order(surroundings=SANDBOX)).env
    assert "--dangerously-skip-permissions" not in CLAUDE.build(order()).argv


def test_an_account_is_a_directory_and_an_address() -> None:
    account = Account(name="work", config_dir="/c", base_url="http://127.0.0.1:1", env={"ANTHROPIC_API_KEY": "k"})
    env = CLAUDE.build(order(account=account)).env
    assert (env["CLAUDE_CONFIG_DIR"], env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_API_KEY"]) == (
        "/c",
        "http://127.0.0.1:1",
        "k",
    )
    assert "CLAUDE_CONFIG_DIR" not in CLAUDE.build(order()).env
    assert CLAUDE.by_hand
    assert list(CLAUDE.continue_by_hand("s1", account)) == ["env", "CLAUDE_CONFIG_DIR=/c", "claude", "--resume", "s1"]


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (refused("Claude AI usage limit reached|1794714959"), Outcome.USAGE_LIMITED),
        (refused("Session limit reached ∙ resets 10am"), Outcome.USAGE_LIMITED),
        (refused("You've hit your weekly limit · resets Nov 20, 11am (Asia/Seoul)"), Outcome.USAGE_LIMITED),
        (refused("Claude usage limit reached. Your limit will reset at 5pm (Europe/Warsaw)."), Outcome.USAGE_LIMITED),
        (refused("Credit balance is too low", api_error_status=400), Outcome.BILLING),
        (refused("x", error="billing_error"), Outcome.BILLING),
        (refused("Not logged in · Please run /login", terminal_reason="api_error"), Outcome.AUTH),
        (refused("OAuth token has expired", api_error_status=401), Outcome.AUTH),
        (refused("Context limit reached · /compact", terminal_reason="blocking_limit"), Outcome.CONTEXT_LIMIT),
        (refused("API Error: Connection error.", error="server_error"), Outcome.NETWORK),
        (refused("API Error: Request timed out.", api_error="request_timeout"), Outcome.NETWORK),
        (refused("API Error: 500 Internal server error", api_error_status=500), Outcome.OVERLOADED),
        (refused("API Error: 503 no limit reached", api_error_status=503), Outcome.OVERLOADED),
        (result(subtype="error_max_turns", is_error=True, result=None), Outcome.TURN_LIMIT),
        (result(subtype="error_max_budget_usd", is_error=False), Outcome.OVER_BUDGET),
        (result(subtype="error_during_execution", is_error=True, errors=["No conversation found with session ID: s"]),
         Outcome.SESSION_LOST),
        (result(subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools"),
         Outcome.EXTERNAL_KILL),
        (result(subtype="error_during_execution", is_error=True, result="usage limit reached"), Outcome.FAILED),
        (refused("usage limit reached", terminal_reason="completed"), Outcome.FAILED),
        (refused("x", error="invalid_request", api_error="org_disabled_credential"), Outcome.AUTH),
        (refused("x", error="account_on_hold", api_error_status=400), Outcome.AUTH),
        (refused("x", terminal_reason="rapid_refill_breaker"), Outcome.CONTEXT_LIMIT),
        (refused("x", terminal_reason="budget_exhausted"), Outcome.OVER_BUDGET),
        (result(terminal_reason="tool_deferred"), Outcome.FAILED),
        (result(subtype="error_during_execution", is_error=True, errors=["[ede_diagnostic] x", "MCP: Unauthorized"]),
         Outcome.FAILED),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value),
)  # fmt: skip
def test_an_ending_by_its_structure(said: dict[str, Any], outcome: Outcome) -> None:
    """Old and new texts, whatever the exit code: even 0 (older versions, or after SIGINT)."""
    for end in (FAILED, EXITED):
        ended = verdict(INIT, said, end=end)
        assert ended.outcome is outcome, ended.reason
        assert (ended.resets_at is not None) == (outcome is Outcome.USAGE_LIMITED)


def test_what_stands_only_on_standard_error() -> None:
    """Before there is a session, it speaks there."""
    lost = verdict(err="No conversation found with session ID: 11111111\n", end=FAILED)
    assert lost.outcome is Outcome.SESSION_LOST
    root = verdict(err="--dangerously-skip-permissions cannot be used with root/sudo privileges\n", end=FAILED)
    assert root.outcome is Outcome.LAUNCH_ERROR
    assert verdict(err="Error: Settings file not found: /x\n", end=FAILED).outcome is Outcome.LAUNCH_ERROR
    assert verdict(err="error: unknown option '--x'\n", end=FAILED).outcome is Outcome.LAUNCH_ERROR
    assert verdict(INIT, result(), err="No conversation found\n").outcome is Outcome.COMPLETED


def test_the_words_of_the_model_and_its_tools_are_no_evidence() -> None:
    """The model may say anything, a tool may print anything (facts/agents.md, `limittext`)."""
    text = "Claude AI usage limit reached|1794714959 API Error: 401 No conversation found"
    spoken = {"type": "assistant", "message": {"id": "m", "model": "opus", "content": [{"type": "text", "text": text}]}}
    failed = {"type": "tool_result", "tool_use_id": "t", "content": text, "is_error": True}
    lines = (INIT, spoken, {"type": "user", "message": {"content": [failed]}})
    assert verdict(*lines, result(result=text)).outcome is Outcome.COMPLETED
    assert verdict(*lines, end=FAILED).outcome is Outcome.CRASHED


def test_a_sub_agents_error_and_one_that_was_overcome_do_not_fail_the_run() -> None:
    error = {
        "type": "assistant",
        "is_api_error_message": True,
        "error": "rate_limit",
        "message": {"model": "<synthetic>", "content": [{"type": "text", "text": "API Error: 429"}]},
    }
    assert verdict(INIT, error, result()).outcome is Outcome.COMPLETED
    assert verdict(INIT, error, end=FAILED).outcome is Outcome.RATE_LIMITED
    assert verdict(INIT, {**error, "parent_tool_use_id": "t1"}, end=FAILED).outcome is Outcome.CRASHED


def test_words_of_the_cli_in_the_models_place_need_no_marks() -> None:
    """Older versions mark them only by the model's name."""

    def synthetic(text: str) -> dict[str, Any]:
        return {"type": "assistant", "message": {"model": "<synthetic>", "content": [{"type": "text", "text": text}]}}

    spent = synthetic("Claude AI usage limit reached|1794718625")
    ended = verdict(INIT, spent, end=FAILED)
    assert (ended.outcome, ended.resets_at) == (Outcome.USAGE_LIMITED, 1794718625.0)
    assert verdict(INIT, spent, result()).outcome is Outcome.COMPLETED
    assert verdict(INIT, synthetic("No response requested."), end=FAILED).outcome is Outcome.CRASHED


def test_limits_of_the_plan_in_all_their_shapes() -> None:
    def notice(**info: Any) -> Any:
        return CLAUDE.parse(json.dumps({"type": "rate_limit_event", "rate_limit_info": info}), Stream.OUT)[0]

    at = RECORDED_AT + 3600
    assert notice(status="rejected", resetsAt=at, rateLimitType="five_hour") == LimitNotice(
        rejected=True, scope="five_hour", reset=at
    )
    windows = {"five_hour": {"status": "allowed", "utilization": 0.2}, "weekly": {"status": "rejected", "resetsAt": at}}
    assert notice(status="rejected", unifiedWindows=windows) == LimitNotice(rejected=True, scope="weekly", reset=at)
    assert notice(status="allowed_warning", utilization=0.93, resetsAt=at).rejected is False
    assert notice(status="rejected", isUsingOverage=True).rejected is False
    for reset in (at, at * 1000):
        rejected = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": reset}}
        ended = verdict(INIT, rejected, refused("Limit reached"), end=FAILED)
        assert (ended.outcome, ended.resets_at) == (Outcome.USAGE_LIMITED, at)
    assert verdict(INIT, rejected, result()).outcome is Outcome.COMPLETED
    spoken = {"type": "assistant", "message": {"model": "m", "content": [{"type": "text", "text": "on it"}]}}
    assert verdict(INIT, rejected, end=FAILED).outcome is Outcome.USAGE_LIMITED
    assert verdict(INIT, rejected, spoken, end=FAILED).outcome is Outcome.CRASHED  # another model continued
    again = verdict(INIT, rejected, spoken, refused("You've hit your limit"), end=FAILED)
    assert (again.outcome, again.resets_at) == (Outcome.USAGE_LIMITED, at)


def test_tokens_and_money_count_once() -> None:
    """A message is told once per block, the result tells all of it again, and counts what an earlier run cost."""

    def spoken(message: str, **said: Any) -> dict[str, Any]:
        usage = {"input_tokens": 100, "cache_read_input_tokens": 30, "output_tokens": 1}
        return {"type": "assistant", "message": {"id": message, "content": [], "usage": usage, **said}}

    cut = verdict(INIT, spoken("m1"), spoken("m1"), spoken("m2"), end=FAILED).usage
    assert cut is not None
    assert (cut.input, cut.output, cut.cached, cut.cost_usd) == (260, 2, 60, None)

    models = {
        "opus": {"inputTokens": 200, "outputTokens": 84, "cacheReadInputTokens": 60, "costUSD": 0.5},
        "haiku": {"inputTokens": 10, "outputTokens": 2, "costUSD": 0.25},
    }
    first = result(total_cost_usd=9.0, model_usage_since_last_result=models)
    second = result(total_cost_usd=9.5, num_turns=3, model_usage_since_last_result={"opus": models["opus"]})
    spent = verdict(INIT, spoken("m1"), spoken("m2"), first, spoken("m3"), second).usage
    assert spent is not None
    assert (spent.input, spent.output, spent.cached, spent.cost_usd) == (530, 170, 120, 1.25)
    assert (spent.turns, spent.model) == (3, "opus")

    older = verdict(INIT, spoken("m1"), result(total_cost_usd=0.1, usage={"input_tokens": 7, "output_tokens": 2})).usage
    assert older is not None
    assert (older.input, older.output, older.cost_usd) == (7, 2, 0.1)

    lost = verdict(INIT, spoken("m1"), result(total_cost_usd=0, usage={"input_tokens": 0, "output_tokens": 0})).usage
    assert lost is not None
    assert (lost.input, lost.output, lost.cost_usd) == (130, 1, None)


def test_tools_for_people_and_for_the_watchdog() -> None:
    """A command says how long it may take; two edits of one file are two different things."""

    def tool(name: str, **given: Any) -> ToolStarted:
        block = {"type": "tool_use", "id": "t", "name": name, "input": given}
        found = CLAUDE.parse(json.dumps({"type": "assistant", "message": {"content": [block]}}), Stream.OUT)[0]
        assert isinstance(found, ToolStarted)
        return found

    assert tool("Bash", command="make test", timeout=600000, description="test").deadline == 600.0
    assert tool("Bash", command="make test", timeout=600000).input == "make test"
    assert tool("Bash", command="make").deadline is None
    edits = [tool("Edit", file_path="a.py", old_string="x", new_string=text).input for text in "yz"]
    assert edits[0] != edits[1]
    assert all(edit.startswith("a.py ") for edit in edits)


def test_pieces_of_a_message_are_life_and_tokens_but_no_words() -> None:
    """Their text comes again in the whole message."""

    def piece(**event: Any) -> dict[str, Any]:
        return {"type": "stream_event", "event": event, "session_id": "s1"}

    for line in (piece(type="content_block_delta", delta={"text": "Hel"}), piece(type="message_stop")):
        for text in (json.dumps(line), json.dumps(line, separators=(",", ":"))):
            assert not CLAUDE.parse(text, Stream.OUT)
    message = {"id": "m1", "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}
    told = {"type": "assistant", "message": message}
    cut = verdict(INIT, told, piece(type="message_delta", usage={"output_tokens": 42}), end=FAILED).usage
    assert cut is not None
    assert (cut.input, cut.output) == (5, 42)


def test_what_it_was_retrying_tells_more_than_that_it_was_ended() -> None:
    """Ended while it tried again and again: the trouble is what it tried against."""
    retry = {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": 401, "error": "x"}
    ended = result(subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")
    assert verdict(INIT, retry, ended).outcome is Outcome.AUTH
    assert verdict(INIT, retry, refused("529", api_error_status=529)).outcome is Outcome.OVERLOADED
    assert verdict(INIT, ended).outcome is Outcome.EXTERNAL_KILL
