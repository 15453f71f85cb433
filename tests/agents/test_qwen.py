"""Qwen Code: what is started, and how its endings are told apart. Recordings of it are in test_golden.py."""

from __future__ import annotations

import itertools
import json

import pytest

from holdfast.agents.port import Account, EndedRun, HostFacts, Stream, WorkOrder
from holdfast.agents.qwen import DEFAULTS, QWEN
from holdfast.core.agents.events import AgentText, AgentTrouble, Retry, ToolFinished, ToolStarted
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict

SESSION = "788a6787-dab4-4a69-ab66-bd048126f89c"
NEW = "0c7a6b1e-1111-4111-8111-111111111111"
INIT = {"type": "system", "subtype": "init", "session_id": SESSION, "model": "qwen-x"}
USAGE = {"input_tokens": 200, "output_tokens": 84, "cache_read_input_tokens": 60}
DONE = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 2, "result": "done", "usage": USAGE}
ADVICE = "\nPossible quota limitations in place or slow response times detected. Please wait and try again later."


def order(session: str | None = None, account: Account | None = None, **options: object) -> WorkOrder:
    return WorkOrder(
        prompt="do it",
        run_number=1,
        session_id=session,
        new_session=NEW,
        options=options,
        account=account or Account(name="a"),
        files_directory="/r/files",
    )


def judged(*events: object, code: int = 0, errors: str = "") -> Verdict:
    return QWEN.judge(
        EndedRun(
            end=ProcessEnd(cause=Cause.EXITED, code=code),
            output=[json.dumps(event) for event in events],
            errors=errors.splitlines(),
            error_tail=errors,
            at=1794711600.0,
            new_session=NEW,
        )
    )


def failed(message: str) -> dict[str, object]:
    return {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "error": {"message": message},
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def said(*blocks: object, kind: str = "assistant") -> dict[str, object]:
    return {"type": kind, "message": {"role": kind, "content": list(blocks)}}


@pytest.mark.parametrize(
    ("mode", "wanted"), [("read", "plan"), ("edit", "auto-edit"), (None, "auto-edit"), ("full", "yolo")]
)
@pytest.mark.parametrize("session", [None, SESSION])
def test_its_command(mode: str | None, wanted: str, session: str | None) -> None:
    """Nothing dangerous is switched on in silence; the user's own login keeps its method; the prompt is no argument."""
    command = QWEN.build(order(session, permission=mode, model="m", max_turns=7))
    argv = list(command.argv)
    assert argv[argv.index("--approval-mode") + 1] == wanted
    assert argv[argv.index("--max-session-turns") + 1] == "7"
    assert argv[-2:] == (["--resume", SESSION] if session else ["--session-id", NEW])
    assert "--auth-type" not in argv
    assert "do it" in command.stdin
    assert not any("do it" in word for word in argv)
    assert command.env["QWEN_CODE_SYSTEM_DEFAULTS_PATH"] == f"/r/files/{DEFAULTS}"
    assert json.loads(command.files[DEFAULTS])["model"]["generationConfig"]["maxRetries"] == 0
    assert "QWEN_HOME" not in command.env
    assert QWEN.problem({"max_turns": 3, "permission": "full"}, HostFacts(is_root=True)) is None


def test_an_account_of_its_own() -> None:
    account = Account(name="work", config_dir="/c", base_url="http://127.0.0.1:1/v1", env={"OPENAI_API_KEY": "secret"})
    command = QWEN.build(order(account=account))
    argv = list(command.argv)
    assert argv[argv.index("--auth-type") + 1] == "openai"
    assert command.env["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1"
    assert command.env["QWEN_HOME"] == "/c"
    assert command.env["OPENAI_API_KEY"] == "secret"
    assert "secret" not in " ".join(argv)
    assert QWEN.by_hand
    assert QWEN.continue_by_hand(SESSION, account) == ("env", "QWEN_HOME=/c", "qwen", "--resume", SESSION)


@pytest.mark.parametrize(
    ("message", "outcome", "resets_in"),
    [
        ("[API Error: 401 Incorrect API key provided: dummy.]", Outcome.AUTH, None),
        ("No auth type is selected. Please configure an auth type", Outcome.AUTH, None),
        ("Missing API key for OpenAI-compatible auth.", Outcome.AUTH, None),
        (f"[API Error: 429 Rate limit reached. Please try again in 2s.]{ADVICE}", Outcome.RATE_LIMITED, 2.0),
        (f"[API Error: 429 The usage limit has been reached]{ADVICE}", Outcome.USAGE_LIMITED, None),
        (
            "[API Error: Quota exhausted: your quota is exceeded, will reset in 3 hours\n\nPlease]",
            "usage_limited",
            10800,
        ),
        (f"[API Error: 429 You exceeded your current quota, check your billing.]{ADVICE}", Outcome.BILLING, None),
        ("[API Error: 400 This model's maximum context length is 128000 tokens.]", Outcome.CONTEXT_LIMIT, None),
        ("[API Error: 500 The server had an error.]", Outcome.OVERLOADED, None),
        ("[API Error: 503 whatever]", Outcome.OVERLOADED, None),
        ("[API Error: Connection error. (cause: fetch failed)]", Outcome.NETWORK, None),
        ("[API Error: terminated (cause: UND_ERR_SOCKET: other side closed)]", Outcome.NETWORK, None),
        ("[API Error: Model stream ended without a finish reason.]", Outcome.NETWORK, None),
        ("Loop detection halted the run (too many equal calls).", Outcome.LOOPING, None),
        ("[API Error: 422 no such tool]", Outcome.FAILED, None),
        ("", Outcome.FAILED, None),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_an_error_is_told_apart_by_its_fields_and_never_by_the_exit_code(
    message: str, outcome: str, resets_in: float | None, code: int
) -> None:
    """The same words stand in a message of the assistant as well: there they mean nothing."""
    text = said({"type": "text", "text": message})
    verdict = judged(INIT, text, failed(message), code=code)
    assert verdict.outcome == outcome
    assert verdict.resets_at == (None if resets_in is None else 1794711600.0 + resets_in)
    assert verdict.session_id == SESSION
    assert judged(INIT, text, DONE).outcome is Outcome.COMPLETED


def test_only_a_whole_success_is_one() -> None:
    verdict = judged(INIT, DONE)
    assert verdict.outcome is Outcome.COMPLETED
    assert verdict.usage is not None
    assert (verdict.usage.input, verdict.usage.cached, verdict.usage.turns) == (200, 60, 2)
    for broken in ({"is_error": None}, {"subtype": "error_max_turns"}, {"error": {"message": "x"}}, {"is_error": 1}):
        assert judged(INIT, {**DONE, **broken}).outcome is Outcome.FAILED
    assert "no model answered" in judged(INIT, {**DONE, "num_turns": 0}).reason
    assert judged(INIT, {**DONE, "num_turns": 0}).outcome is Outcome.FAILED
    assert judged(INIT, DONE, code=1).outcome is Outcome.CRASHED
    assert judged(INIT, said({"type": "text", "text": "done"})).outcome is Outcome.CRASHED


def test_the_failure_of_an_agent_that_it_started_is_not_its_own() -> None:
    assert (
        judged(INIT, failed("Task execution failed"), said({"type": "text", "text": "x"}), DONE).outcome == "completed"
    )


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        (f"No saved session found with ID {SESSION}. Run `qwen --resume`", Outcome.SESSION_LOST),
        ("Reached max session turns for this session. Increase", Outcome.TURN_LIMIT),
        ("Operation cancelled.", Outcome.EXTERNAL_KILL),
        ("Unknown argument: nonsense", Outcome.LAUNCH_ERROR),
        ("a tool says: Reached max session turns", Outcome.CRASHED),
    ],
)
def test_why_it_ended_without_a_result(errors: str, outcome: Outcome) -> None:
    assert judged(INIT, code=53, errors=f"Ripgrep not available: x\n{errors}\n").outcome is outcome
    assert judged(INIT, DONE, errors=errors).outcome is Outcome.COMPLETED


def test_its_retries() -> None:
    """The event says when, standard error says why."""
    data = {"reason": "retry", "attempt": 1, "maxRetries": 10, "delayMs": 60000}
    event = {"type": "system", "subtype": "retry", "data": data}
    assert QWEN.parse(json.dumps(event), Stream.OUT) == (
        Retry(trouble=AgentTrouble.RATE_LIMIT, attempt=1, most=10, delay=60.0),
    )
    again = {"type": "system", "subtype": "retry", "data": {"reason": "retry", "discardedToolCalls": 0}}
    assert QWEN.parse(json.dumps(again), Stream.OUT) == (Retry(trouble=AgentTrouble.NETWORK),)
    line = "Retrying in 60s (attempt 1/10): [API Error: 429 You exceeded your current quota, please check your plan.]"
    assert QWEN.parse(line, Stream.ERR) == (
        Retry(
            trouble=AgentTrouble.BILLING,
            attempt=1,
            most=10,
            delay=60.0,
            status=429,
            message="You exceeded your current quota, please check your plan.",
        ),
    )
    assert judged(INIT, event, again, errors=line, code=1).outcome is Outcome.BILLING
    cancelled = "Operation cancelled."  # what it says when it is ended, even by us, who end what only tries again
    assert judged(INIT, again, errors=cancelled, code=130).outcome is Outcome.NETWORK
    assert judged(INIT, errors=cancelled, code=130).outcome is Outcome.EXTERNAL_KILL


def test_tools_and_thoughts() -> None:
    use = {"type": "tool_use", "id": "1", "name": "write_file", "input": {"content": "x", "file_path": "/w/a"}}
    events = QWEN.parse(json.dumps(said({"type": "thinking", "thinking": "hm"}, use)), Stream.OUT)
    assert events == (AgentText(text="hm", is_thought=True), ToolStarted(id="1", name="write_file", input="/w/a"))
    back = {"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": [{"type": "text", "text": "no"}]}
    assert QWEN.parse(json.dumps(said(back, kind="user")), Stream.OUT) == (ToolFinished(id="1", ok=False, output="no"),)


def test_a_field_may_be_anything() -> None:
    fields = ("message", "error", "usage", "data", "session_id", "num_turns", "subtype", "is_error")
    values: list[object] = [None, 7, "x", [], {"a": [1]}, {"content": [1, {"type": "tool_result", "content": 3}]}, True]
    for kind, field, value in itertools.product(("system", "assistant", "user", "result"), fields, values):
        QWEN.parse_line(json.dumps({"type": kind, "subtype": "retry", field: value}), Stream.OUT)
        assert judged({"type": kind, field: value}).outcome is not Outcome.COMPLETED
