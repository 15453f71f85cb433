"""Gemini CLI: what is started, and how its endings are told apart. Recordings of it are in test_golden.py."""

from __future__ import annotations

import itertools
import json

import pytest

from holdfast.agents.gemini import GEMINI
from holdfast.agents.port import Account, EndedRun, HostFacts, Stream, WorkOrder
from holdfast.core.agents.events import AgentText, AgentTrouble, RawLine, Retry, ToolStarted
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict

SESSION = "b0cec9c1-605e-487b-970c-17b91fc0cb20"
NEW = "0c7a6b1e-1111-4111-8111-111111111111"
INIT = {"type": "init", "session_id": SESSION, "model": "gemini-2.5-flash"}
DONE = {"type": "result", "status": "success", "stats": {"input_tokens": 5, "output_tokens": 2, "models": {"m": {}}}}
ADVICE = "\nPlease wait and try again later. To increase your limits, request a quota increase through AI Studio"


def order(session: str | None = None, account: Account | None = None, **options: object) -> WorkOrder:
    return WorkOrder(
        prompt="do it",
        run_number=1,
        session_id=session,
        new_session=NEW,
        options=options,
        account=account or Account(name="a"),
    )


def judged(*events: object, code: int = 0, errors: str = "") -> Verdict:
    return GEMINI.judge(
        EndedRun(
            end=ProcessEnd(cause=Cause.EXITED, code=code),
            output=[json.dumps(event) for event in events],
            errors=errors.splitlines(),
            error_tail=errors,
            at=1794711600.0,
            new_session=NEW,
        )
    )


def failed(message: str, kind: str = "unknown") -> dict[str, object]:
    return {"type": "result", "status": "error", "error": {"type": kind, "message": message}}


def api_error(code: int, status: str, message: str, reason: str = "") -> str:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}] if reason else []
    error = {"error": {"code": code, "message": message, "status": status, "details": details}}
    return f"[API Error: {json.dumps(error)}]"


@pytest.mark.parametrize(
    ("mode", "wanted"), [("read", "plan"), ("edit", "auto_edit"), (None, "auto_edit"), ("full", "yolo")]
)
@pytest.mark.parametrize("session", [None, SESSION])
def test_its_command(mode: str | None, wanted: str, session: str | None) -> None:
    """Nothing dangerous is switched on in silence; the prompt is not in the arguments."""
    command = GEMINI.build(order(session, permission=mode, model="gemini-x"))
    argv = list(command.argv)
    assert argv[argv.index("--approval-mode") + 1] == wanted
    assert "--yolo" not in argv
    assert argv[-2:] == (["--resume", SESSION] if session else ["--session-id", NEW])
    assert argv[argv.index("-m") + 1] == "gemini-x"
    assert "do it" in command.stdin
    assert not any("do it" in word for word in argv)
    assert command.files == {}
    assert command.env == {"NO_BROWSER": "true"}


def test_an_account_of_its_own() -> None:
    account = Account(name="work", config_dir="/c", base_url="http://127.0.0.1:1/x", env={"GEMINI_API_KEY": "secret"})
    command = GEMINI.build(order(account=account))
    assert command.env["GEMINI_CLI_HOME"] == "/c"
    assert command.env["GOOGLE_GEMINI_BASE_URL"] == "http://127.0.0.1:1/x"
    assert command.env["GEMINI_API_KEY"] == "secret"
    assert GEMINI.by_hand
    assert GEMINI.continue_by_hand(SESSION, account) == ("env", "GEMINI_CLI_HOME=/c", "gemini", "--resume", SESSION)
    assert GEMINI.continue_by_hand(SESSION, Account()) == ("gemini", "--resume", SESSION)


def test_what_it_cannot_be_given() -> None:
    assert "--max-turns" in (GEMINI.problem({"max_turns": 3}, HostFacts()) or "")
    assert GEMINI.problem({"permission": "full"}, HostFacts(is_root=True)) is None  # it does not mind root


@pytest.mark.parametrize(
    ("result", "outcome", "resets_in"),
    [
        (failed(api_error(400, "INVALID_ARGUMENT", "API key not valid.", "API_KEY_INVALID")), Outcome.AUTH, None),
        (failed(api_error(401, "UNAUTHENTICATED", "Request had invalid credentials.")), Outcome.AUTH, None),
        (failed(api_error(403, "PERMISSION_DENIED", "Enable billing.", "BILLING_DISABLED")), Outcome.BILLING, None),
        (failed(api_error(503, "UNAVAILABLE", "The model is overloaded.")), Outcome.OVERLOADED, None),
        (failed(api_error(500, "INTERNAL", "An internal error has occurred.")), Outcome.OVERLOADED, None),
        (
            failed(
                api_error(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens")
            ),
            Outcome.CONTEXT_LIMIT,
            None,
        ),
        (failed(api_error(400, "INVALID_ARGUMENT", "Unsupported tool schema.")), Outcome.FAILED, None),
        (failed(f"[API Error: You have exhausted your daily quota on this model.]{ADVICE}"), "usage_limited", None),
        (
            failed(f"[API Error: You have exhausted your capacity on this model. Resets after 2h.]{ADVICE}"),
            Outcome.USAGE_LIMITED,
            7200.0,
        ),
        (
            failed(f"[API Error: You exceeded your current quota, check your billing. Please retry in 2.5s.]{ADVICE}"),
            Outcome.RATE_LIMITED,
            2.5,
        ),
        (failed(f"[API Error: Quota exceeded for metric: free_tier_requests, limit: 0]{ADVICE}"), "billing", None),
        (failed(f"[API Error: Quota exceeded for metric: x, limit: 20 per minute]{ADVICE}"), "rate_limited", None),
        (failed(f"[API Error: something new]{ADVICE}"), Outcome.RATE_LIMITED, None),
        (failed("[API Error: exception TypeError: fetch failed sending request]"), Outcome.NETWORK, None),
        (failed("[API Error: terminated]"), Outcome.NETWORK, None),
        (failed("[API Error: Overloaded (Status: UNAVAILABLE)]"), Outcome.OVERLOADED, None),
        (failed("Reached max session turns for this session.", "FatalTurnLimitedError"), Outcome.TURN_LIMIT, None),
        (failed("Reached max session turns for this session.", "Error"), Outcome.TURN_LIMIT, None),
        (failed("Operation cancelled.", "FatalCancellationError"), Outcome.EXTERNAL_KILL, None),
        (failed("Error executing tool x: 401 Unauthorized", "FatalToolExecutionError"), Outcome.FAILED, None),
        (failed("Error executing tool x: usage limit reached", "no_space_left"), Outcome.FAILED, None),
        (failed("Please log in.", "FatalAuthenticationError"), Outcome.AUTH, None),
        ({"type": "result", "status": "error"}, Outcome.FAILED, None),
        ({"type": "result", "status": "cancelled"}, Outcome.FAILED, None),
    ],
)
@pytest.mark.parametrize("code", [0, 173])
def test_an_error_is_told_apart_by_its_fields_and_never_by_the_exit_code(
    result: dict[str, object], outcome: str, resets_in: float | None, code: int
) -> None:
    verdict = judged(INIT, result, code=code)
    assert verdict.outcome == outcome
    assert verdict.resets_at == (None if resets_in is None else 1794711600.0 + resets_in)
    assert verdict.session_id == SESSION


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([{"type": "error", "severity": "warning", "message": "Loop detected, stopping execution"}], Outcome.LOOPING),
        ([{"type": "error", "severity": "error", "message": "Maximum session turns exceeded"}], Outcome.TURN_LIMIT),
        ([{"type": "error", "severity": "error", "message": "Model stream ended without a finish reason."}], "network"),
        ([{"type": "error", "severity": "warning", "message": "Agent execution blocked: a hook"}], Outcome.COMPLETED),
        ([{"type": "message", "role": "assistant", "content": "usage limit reached", "delta": True}], "completed"),
    ],
)
def test_its_success_is_not_believed_after_it_stopped_the_model(events: list[object], outcome: str) -> None:
    verdict = judged(INIT, *events, DONE)
    assert verdict.outcome == outcome
    assert verdict.usage is not None
    assert verdict.usage.output == 2


def test_its_success_is_not_believed_when_it_asked_no_model() -> None:
    """A conversation that does not fit: 0.61.0 says "success", and did nothing."""
    nothing = {"type": "result", "status": "success", "stats": {"total_tokens": 0, "models": {}}}
    assert judged(INIT, nothing).outcome is Outcome.CONTEXT_LIMIT
    assert judged(INIT, DONE).outcome is Outcome.COMPLETED
    assert judged(INIT, DONE, code=1).outcome is Outcome.CRASHED


@pytest.mark.parametrize(
    ("line", "retry"),
    [
        (
            'Attempt 3 failed with status 529. Retrying with backoff... _ApiError: {"error":{"code":529,'
            '"message":"Overloaded","status":"UNAVAILABLE","details":[]}}',
            Retry(trouble=AgentTrouble.OVERLOADED, attempt=3, status=529, message="Overloaded"),
        ),
        (
            "Attempt 1 failed. Retrying with backoff... Error: exception TypeError: fetch failed sending request",
            Retry(trouble=AgentTrouble.NETWORK, attempt=1, message="exception TypeError: fetch failed sending request"),
        ),
        (
            "Attempt 2 failed: You exceeded your current quota. Please retry in 2s.. Retrying after 5199ms...",
            Retry(
                trouble=AgentTrouble.RATE_LIMIT,
                attempt=2,
                status=429,
                delay=5.199,
                message="You exceeded your current quota. Please retry in 2s.",
                reset="You exceeded your current quota. Please retry in 2s.",
            ),
        ),
        (
            "Attempt 4 failed with 429 error (no Retry-After header). Retrying with backoff... Error: x",
            Retry(trouble=AgentTrouble.RATE_LIMIT, attempt=4, status=429, message="x", reset="x"),
        ),
    ],
)
def test_its_retries_stand_on_standard_error(line: str, retry: Retry) -> None:
    assert list(GEMINI.parse(line, Stream.ERR)) == [retry]
    assert not isinstance(GEMINI.parse(line, Stream.OUT)[0], Retry)


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ("Error resuming session: No previous sessions found for this project.", Outcome.SESSION_LOST),
        ("\x1b[31mInvalid auth method selected.\x1b[0m", Outcome.AUTH),
        ("Manual authorization is required but the current session is non-interactive.", Outcome.AUTH),
        ("Gemini CLI is not running in a trusted directory. To proceed, …", Outcome.LAUNCH_ERROR),
        ("Unknown argument: nonsense", Outcome.LAUNCH_ERROR),
        ("some tool: Error resuming session", Outcome.CRASHED),
    ],
)
def test_why_it_did_not_begin(errors: str, outcome: Outcome) -> None:
    verdict = judged(code=42, errors=f"Ripgrep is not available.\n{errors}\n")
    assert verdict.outcome is outcome
    assert judged(INIT, DONE, errors=errors).outcome is Outcome.COMPLETED  # a success outweighs what stands aside


def test_an_address_without_settings_is_explained() -> None:
    """Its own words ("Invalid auth method selected.") help nobody who gave an account a `base_url`."""
    assert "config_dir" in judged(code=41, errors="Invalid auth method selected.").reason


def test_a_session_is_known_although_it_was_ended_before_it_said_so() -> None:
    assert judged(errors="Attempt 1 failed. Retrying with backoff... Error: fetch failed").session_id == NEW
    assert judged().session_id is None


def test_tools_are_told_in_words_for_people() -> None:
    use = {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "1", "parameters": {"command": "make"}}
    assert list(GEMINI.parse(json.dumps(use), Stream.OUT)) == [
        ToolStarted(id="1", name="run_shell_command", input="make")
    ]
    assert GEMINI.parse('{"type":"message","role":"assistant","content":"a","delta":true}', Stream.OUT) == (
        AgentText(text="a", is_delta=True),
    )


def test_a_field_may_be_anything() -> None:
    fields = ("stats", "error", "parameters", "output", "content", "message", "session_id", "status", "severity")
    kinds = ("init", "message", "tool_use", "tool_result", "error", "result")
    values: list[object] = [None, 7, "x", [], {"a": [1]}, {"message": {"error": 1}}, True]
    for kind, field, value in itertools.product(kinds, fields, values):
        line = {"type": kind, "role": "assistant", field: value}
        assert not any(isinstance(event, RawLine) for event in GEMINI.parse(json.dumps(line), Stream.OUT)), line
        assert judged(line).outcome is not Outcome.COMPLETED, line
