"""GitHub Copilot: what is started, and how its errors are told apart. Recordings of it are in test_golden.py."""

from __future__ import annotations

import json

import pytest

from holdfast.agents.copilot import COPILOT
from holdfast.agents.port import Account, EndedRun, HostFacts, Stream, WorkOrder
from holdfast.core.agents.events import AgentFailure, AgentTrouble, LimitNotice, Retry
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict

SESSION = "390c10a5-5eeb-4407-9432-9c24fe6a7e81"
NEW = "41b382ad-cced-4360-bdfe-d626db46b9a9"
AT = 1_794_772_786.0


def order(session: str | None = None, account: Account | None = None, left: str = "", **options: object) -> WorkOrder:
    return WorkOrder(
        prompt="do it",
        run_number=1,
        session_id=session,
        options=options,
        new_session=NEW,
        account=account or Account(name="a"),
        result_directory=left,
    )


def event(kind: str, **data: object) -> str:
    return json.dumps({"type": kind, "data": data})


def result(code: object = 0) -> str:
    return json.dumps({"type": "result", "sessionId": SESSION, "exitCode": code, "usage": {"premiumRequests": 1}})


def judged(output: list[str], code: int = 1, errors: tuple[str, ...] = (), left: str = "") -> Verdict:
    end = ProcessEnd(cause=Cause.EXITED, code=code)
    found = {"usage.json": left} if left else {}
    ended = EndedRun(end=end, output=output, errors=errors, error_tail="", at=AT, left=found, new_session=NEW)
    return COPILOT.judge(ended)


# -- starting it


def test_the_session_is_of_our_choice_and_the_prompt_is_no_argument() -> None:
    command = COPILOT.build(order(model="gpt-x", binary="/opt/copilot"))
    assert command.argv[0] == "/opt/copilot"
    assert {f"--session-id={NEW}", "--model=gpt-x", "--no-auto-update", "--no-ask-user"} <= set(command.argv)
    assert "do it" in command.stdin
    assert "do it" not in " ".join(command.argv)
    resumed = COPILOT.build(order(SESSION)).argv
    assert f"--resume={SESSION}" in resumed
    assert not any(word.startswith("--session-id") for word in resumed)


@pytest.mark.parametrize(
    ("mode", "flags"),
    [
        ("read", {"--deny-tool=write", "--deny-tool=shell"}),
        ("edit", {"--allow-tool=write"}),
        (None, {"--allow-tool=write"}),
        ("full", {"--allow-all"}),
    ],
)
def test_permissions(mode: str | None, flags: set[str]) -> None:
    """Nothing dangerous is switched on in silence, not by a variable of the user's own either."""
    command = COPILOT.build(order(permission=mode))
    assert {word for word in command.argv if word.startswith(("--allow", "--deny"))} == flags
    assert command.env.get("COPILOT_ALLOW_ALL") == (None if mode == "full" else "false")
    assert COPILOT.problem({"permission": mode}, HostFacts(is_root=True)) is None


def test_an_account_with_its_own_address_talks_to_nobody_else() -> None:
    account = Account(
        name="a", base_url="http://127.0.0.1:1/x", config_dir="/c", env={"COPILOT_PROVIDER_API_KEY": "secret"}
    )
    command = COPILOT.build(order(account=account, left="/run/channel"))
    assert command.env["COPILOT_PROVIDER_BASE_URL"] == account.base_url
    assert (command.env["COPILOT_OFFLINE"], command.env["COPILOT_HOME"]) == ("true", "/c")
    assert command.env["COPILOT_MODEL"]
    assert "secret" not in " ".join(command.argv)
    assert "--usage-output-file=/run/channel/usage.json" in command.argv
    own = COPILOT.build(order())
    assert not any(name.startswith("COPILOT_PROVIDER") for name in own.env)
    assert COPILOT.by_hand
    assert list(COPILOT.continue_by_hand(SESSION, account)) == [
        "env",
        "COPILOT_HOME=/c",
        "copilot",
        f"--resume={SESSION}",
    ]


# -- how it ended


def test_success_needs_its_word_its_exit_code_and_nothing_after() -> None:
    assert judged([event("assistant.message", content="usage limit reached"), result()], 0).outcome is Outcome.COMPLETED
    assert judged([event("assistant.message", content="done")], 0).outcome is Outcome.CRASHED
    assert judged([result(1)], 0).outcome is Outcome.FAILED
    assert judged([result(False)], 0).outcome is Outcome.FAILED
    assert judged([result(), event("assistant.turn_start")], 0).outcome is Outcome.CRASHED
    assert judged([event("abort", reason="user_initiated"), result()], 0).outcome is Outcome.EXTERNAL_KILL
    assert judged([result()], 0).session_id == SESSION
    assert judged([event("assistant.turn_start")], 1).session_id == NEW  # ended before it could say so


USAGE = {
    "currentModel": "gpt-x",
    "modelMetrics": {
        "gpt-x": {"usage": {"inputTokens": 200, "outputTokens": 84, "cacheReadTokens": 60}},
        "small": {"usage": {"inputTokens": 10, "outputTokens": True}},
        "odd": 7,
    },
}


def test_tokens_come_from_the_file_that_it_leaves() -> None:
    usage = judged([result()], 0, left=json.dumps(USAGE, indent=2)).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.cached, usage.model) == (210, 84, 60, "gpt-x")
    for spoilt in ("", "{", "[]", '{"modelMetrics": 3}', '{"modelMetrics": {}}'):
        assert judged([result()], 0, left=spoilt).usage is None


BODY = json.dumps(
    {"type": "usage_limit_reached", "message": "The usage limit has been reached", "resets_at": AT + 7200}
)


@pytest.mark.parametrize(
    ("data", "trouble", "reset"),
    [
        ({"errorType": "authentication", "statusCode": 401, "message": "no"}, AgentTrouble.AUTH, None),
        ({"errorType": "quota", "message": "You have no premium requests left"}, AgentTrouble.USAGE_LIMIT, None),
        ({"errorType": "rate_limit", "statusCode": 429, "message": "429 slow, try again in 60s"}, "rate_limit", 60.0),
        (
            {
                "errorType": "rate_limit",
                "statusCode": 429,
                "message": "retried 5 times (total retry wait time: 11.03 seconds) Last error: 429 Slow down",
            },
            AgentTrouble.RATE_LIMIT,
            None,
        ),
        ({"errorType": "rate_limit", "statusCode": 429, "message": "exceeded your current quota"}, "billing", None),
        ({"errorType": "query", "statusCode": 400, "message": "maximum context length"}, AgentTrouble.CONTEXT, None),
        (
            {"errorType": "query", "message": "Last error: error decoding response body: EOF"},
            AgentTrouble.NETWORK,
            None,
        ),
        (
            {"errorType": "query", "message": "Could not connect to http://127.0.0.1:9/429/v1."},
            AgentTrouble.NETWORK,
            None,
        ),
        ({"errorType": "query", "statusCode": 529, "message": "529 Overloaded"}, AgentTrouble.OVERLOADED, None),
        (
            {"errorType": "rate_limit", "errorCode": "user_weekly_rate_limited", "message": "in 60s"},
            "usage_limit",
            None,
        ),
        (
            {"errorType": "quota", "errorCode": "session_quota_exceeded", "message": "spending"},
            AgentTrouble.BUDGET,
            None,
        ),
        ({"errorType": "quota", "errorCode": "billing_not_configured", "message": "x"}, AgentTrouble.BILLING, None),
        ({"errorType": 7, "statusCode": "x", "message": None}, AgentTrouble.OTHER, None),
    ],
)
def test_what_an_error_is(data: dict[str, object], trouble: AgentTrouble, reset: float | None) -> None:
    line = event("session.error", **data)
    (failure,) = COPILOT.parse(line, Stream.OUT)
    assert isinstance(failure, AgentFailure)
    assert failure.trouble == trouble
    assert judged([line, result(1)]).resets_at == (None if reset is None else AT + reset)


def test_a_spent_plan_is_known_at_the_first_try_and_with_its_end() -> None:
    """It would try for a minute; and its last error no longer says when the limit ends."""
    call = event("model.call_failure", statusCode=429, errorType="usage_limit_reached", errorMessage=BODY)
    failure, notice = COPILOT.parse(call, Stream.OUT)
    assert isinstance(failure, AgentFailure)
    assert isinstance(notice, LimitNotice)
    last = event(
        "session.error", errorType="rate_limit", statusCode=429, message="429 The usage limit has been reached"
    )
    for output in ([call], [call, last, result(1)]):
        verdict = judged(output)
        assert (verdict.outcome, verdict.resets_at) == (Outcome.USAGE_LIMITED, AT + 7200)
    assert judged([call, event("assistant.message", content="done"), result()], 0).outcome is Outcome.COMPLETED


def test_what_it_waited_for_is_known_though_it_was_aborted() -> None:
    """Ended by us while it tried again: it says that it was aborted, and exits as if all were well."""
    aborted = [event("abort", reason="user_initiated"), result()]
    for status, outcome in ((401, Outcome.AUTH), (402, Outcome.BILLING), (429, Outcome.RATE_LIMITED)):
        assert judged([event("model.call_failure", statusCode=status), *aborted], 0).outcome is outcome


@pytest.mark.parametrize(
    ("data", "trouble"),
    [
        ({"statusCode": 429, "errorCode": "rate_limit_exceeded", "errorMessage": "{}"}, AgentTrouble.RATE_LIMIT),
        ({"failureKind": "transport", "errorMessage": '"odd"'}, AgentTrouble.NETWORK),
        ({"statusCode": 429, "errorType": "usage_limit_reached", "source": "subagent"}, AgentTrouble.USAGE_LIMIT),
    ],
)
def test_one_failed_call_is_only_a_try(data: dict[str, object], trouble: AgentTrouble) -> None:
    (retry,) = COPILOT.parse(event("model.call_failure", retryAttempt=2, **data), Stream.OUT)
    assert isinstance(retry, Retry)
    assert (retry.trouble, retry.attempt) == (trouble, 3)


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        (f"Error: No session, task, or name matched '{SESSION}'.", Outcome.SESSION_LOST),
        (f"Error: Session '{SESSION}' was found but could not be loaded.", Outcome.SESSION_LOST),
        ("Error: Session file is corrupted or incompatible", Outcome.SESSION_LOST),
        ("Error: No authentication information found.", Outcome.AUTH),
        ("error: unexpected argument '--nosuch' found", Outcome.LAUNCH_ERROR),
        ("Package extraction took 11181ms", Outcome.CRASHED),
    ],
)
def test_last_words_of_a_process_that_could_not_begin(line: str, outcome: Outcome) -> None:
    assert judged([], 1, (line,)).outcome is outcome
