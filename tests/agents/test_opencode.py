"""opencode: what is started, and how its errors are told apart. Recordings of it are in test_golden.py."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from holdfast.agents.opencode import OPENCODE, PROFILE
from holdfast.agents.port import Account, AgentCommand, EndedRun, HostFacts, Stream, WorkOrder
from holdfast.core.agents.events import AgentEvent, AgentFailure, AgentTrouble, Retry
from holdfast.core.health.signs import AgentActivity
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict

SESSION = "ses_e22df5e25ffej7jE3MKhBFhDU6"
AT = 1_794_772_786.0  # 2026-11-15T19:59:46Z


def order(session: str | None = None, account: Account | None = None, **options: object) -> WorkOrder:
    return WorkOrder(
        prompt="do it", run_number=1, session_id=session, options=options, account=account or Account(name="a")
    )


def config(command: AgentCommand) -> dict[str, Any]:
    found = json.loads(command.env["OPENCODE_CONFIG_CONTENT"])
    assert isinstance(found, dict)
    return found


def log(message: str, **fields: str) -> str:
    """A line of its log, as --print-logs writes it."""
    said = {"timestamp": "2026-11-15T19:59:46.000Z", "level": "ERROR", "message": message, **fields}
    return " ".join(f"{key.replace('__', '.')}={json.dumps(value)}" for key, value in said.items()).replace(
        '"2026-11-15T19:59:46.000Z"', "2026-11-15T19:59:46.000Z"
    )


def refused(message: str, **fields: str) -> str:
    session = {"session__id": SESSION, "small": "false", "agent": "holdfast"}
    return log("stream error", **session, error__error=f"AI_APICallError: {message}", **fields)


def judged(output: list[str], errors: list[str], code: int | None = 1, signal: int | None = None) -> Verdict:
    end = ProcessEnd(cause=Cause.EXITED, code=code, signal=signal)
    return OPENCODE.judge(EndedRun(end=end, output=output, errors=errors, error_tail="", at=AT + 600, zone="UTC"))


def step(kind: str, reason: str = "", output: int = 42) -> str:
    tokens = {"input": 70, "output": output, "reasoning": output and 5, "cache": {"read": 30, "write": 1}}
    part = {"reason": reason, "tokens": tokens, "cost": 0.25}
    return json.dumps({"type": f"step_{kind}", "sessionID": SESSION, "part": part})


def failed(name: str, **data: object) -> str:
    return json.dumps({"type": "error", "sessionID": SESSION, "error": {"name": name, "data": data}})


# -- starting it


def test_its_log_is_asked_for_and_the_prompt_is_no_argument() -> None:
    """Without its log it is silent for ever on a spent plan."""
    command = OPENCODE.build(order(SESSION, model="anthropic/claude-x", binary="/opt/opencode"))
    argv = list(command.argv)
    assert argv[:2] == ["/opt/opencode", "run"]
    assert {"--print-logs", "json", PROFILE, SESSION, "anthropic/claude-x"} <= set(argv)
    assert "do it" in command.stdin
    assert "do it" not in " ".join(argv)
    chosen = config(command)
    assert (chosen["autoupdate"], chosen["share"]) == (False, "disabled")
    assert "provider" not in chosen  # the user's own are left alone
    assert "--session" not in OPENCODE.build(order()).argv


@pytest.mark.parametrize(
    ("mode", "edit", "bash"), [("read", "deny", "deny"), ("edit", "allow", "deny"), (None, "allow", "deny")]
)
def test_a_restricted_agent_may_only_do_what_is_listed(mode: str | None, edit: str, bash: str) -> None:
    """By a profile: the user's own rules stand before it, and of two the later decides. Nothing is left to be asked."""
    chosen = config(OPENCODE.build(order(permission=mode)))
    rules = chosen["agent"][PROFILE]["permission"]
    assert next(iter(rules.items())) == ("*", "deny")  # also for what is not listed: subagents, servers of tools
    assert (rules.get("edit", rules["*"]), rules.get("bash", rules["*"])) == (edit, bash)
    assert "ask" not in json.dumps(rules)
    assert "permission" not in chosen


def test_full_permission_is_everything_and_only_by_choice() -> None:
    assert config(OPENCODE.build(order(permission="full")))["agent"][PROFILE]["permission"] == {"*": "allow"}
    assert OPENCODE.problem({"permission": "full"}, HostFacts(is_root=True)) is None
    assert OPENCODE.problem({"max_turns": 3}, HostFacts()) is not None


@pytest.mark.parametrize(
    ("model", "named", "provider"),
    [(None, "holdfast/default", "holdfast"), ("m", "holdfast/m", "holdfast"), ("openai/gpt", "openai/gpt", "openai")],
)
def test_an_account_with_its_own_address(model: str | None, named: str, provider: str) -> None:
    account = Account(name="a", base_url="http://127.0.0.1:1/x", config_dir="/c", env={"OPENAI_API_KEY": "secret"})
    command = OPENCODE.build(order(account=account, model=model))
    assert command.argv[command.argv.index("--model") + 1] == named
    found = config(command)["provider"]
    assert list(found) == [provider]
    assert found[provider]["options"]["baseURL"] == account.base_url
    assert "secret" not in json.dumps(config(command))
    assert (command.env["XDG_DATA_HOME"], command.env["OPENAI_API_KEY"]) == ("/c", "secret")
    assert OPENCODE.by_hand
    assert list(OPENCODE.continue_by_hand(SESSION, account))[:2] == ["env", "XDG_DATA_HOME=/c"]


# -- how it ended


@pytest.mark.parametrize(
    ("steps", "code", "outcome"),
    [
        ([("start", ""), ("finish", "stop")], 0, Outcome.COMPLETED),
        ([("start", ""), ("finish", "stop")], 1, Outcome.CRASHED),
        ([("start", ""), ("finish", "tool-calls")], 0, Outcome.CRASHED),  # a permission was refused: the turn is over
        ([("start", ""), ("finish", "unknown")], 0, Outcome.CRASHED),
        ([("start", ""), ("finish", "length")], 0, Outcome.FAILED),
        ([("start", ""), ("finish", "stop"), ("start", "")], 0, Outcome.CRASHED),  # it continued after a summary
        ([("start", ""), ("finish", "stop"), ("start", ""), ("finish", "tool-calls")], 0, Outcome.CRASHED),
    ],
)
def test_success_is_a_last_step_that_ended_with_stop(steps: list[tuple[str, str]], code: int, outcome: Outcome) -> None:
    verdict = judged([step(*one) for one in steps], [], code)
    assert verdict.outcome is outcome
    assert verdict.session_id == SESSION
    finished = sum(kind == "finish" for kind, _ in steps)
    assert verdict.usage is not None
    assert (verdict.usage.input, verdict.usage.output) == (101 * finished, 47 * finished)
    assert verdict.usage.cost_usd == 0.25 * finished


def test_an_error_behind_the_last_step_is_no_success() -> None:
    assert judged([step("finish", "stop"), failed("UnknownError", message="?")], [], 0).outcome is Outcome.FAILED


BODY = '{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_at":%d}}'


@pytest.mark.parametrize(
    ("error", "trouble", "reset"),
    [
        (failed("APIError", message="no", statusCode=401), AgentTrouble.AUTH, None),
        (failed("ProviderAuthError", message="no"), AgentTrouble.AUTH, None),
        (failed("ContextOverflowError", message="long"), AgentTrouble.CONTEXT, None),
        (failed("NotFoundError", message="Session not found: ses_1"), AgentTrouble.SESSION_LOST, None),
        (failed("MessageAbortedError", message="Aborted"), AgentTrouble.INTERRUPTED, None),
        (failed("APIError", message="Slow", statusCode=429), AgentTrouble.RATE_LIMIT, None),
        (
            failed("APIError", message="Slow", statusCode=429, responseHeaders={"retry-after": "60"}),
            AgentTrouble.RATE_LIMIT,
            60.0,
        ),
        (
            failed("APIError", message="no", statusCode=429, responseBody=BODY % (AT + 7000)),
            AgentTrouble.USAGE_LIMIT,
            6400.0,
        ),
        (
            failed("APIError", message="no", statusCode=429, responseBody='{"error":{"code":"insufficient_quota"}}'),
            AgentTrouble.BILLING,
            None,
        ),
        (failed("APIError", message="Overloaded", statusCode=529), AgentTrouble.OVERLOADED, None),
        (failed("APIError", message="Cannot connect to API: Unable to connect."), AgentTrouble.NETWORK, None),
        (failed("UnknownError", message="Unexpected server error.", ref="err_1"), AgentTrouble.OTHER, None),
        ('{"type":"error","error":7}', AgentTrouble.OTHER, None),
        ('{"type":"error","error":{"name":"APIError","data":{"responseHeaders":[1],"statusCode":"x"}}}', "other", None),
    ],
)
def test_what_an_error_is(error: str, trouble: AgentTrouble, reset: float | None) -> None:
    """Also where a field is not what it should be."""
    failure = OPENCODE.parse(error, Stream.OUT)[-1]
    assert isinstance(failure, AgentFailure)
    assert failure.trouble == trouble
    until = judged([error], []).resets_at
    assert until == (None if reset is None else AT + 600 + reset)


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (refused("The usage limit has been reached"), AgentFailure(trouble=AgentTrouble.USAGE_LIMIT)),
        (
            refused("You exceeded your current quota, please check your billing"),
            AgentFailure(trouble=AgentTrouble.BILLING),
        ),
        (refused("Incorrect API key provided: x."), AgentFailure(trouble=AgentTrouble.AUTH)),
        (refused("Overloaded"), Retry(trouble=AgentTrouble.OVERLOADED)),
        (refused("Cannot connect to API: closed"), Retry(trouble=AgentTrouble.NETWORK)),
        (
            log("stream error", error__error__message="Oh", error__error__type="server_error"),
            Retry(trouble=AgentTrouble.OVERLOADED),
        ),
        ("\x1b[91m\x1b[1mError: \x1b[0mSession not found", AgentFailure(trouble=AgentTrouble.SESSION_LOST)),
        ("Error: Unexpected error", None),  # a crash: it may do better next time
        ("Error: Config file at X is not valid", AgentFailure(trouble=AgentTrouble.REFUSED)),
        (
            log("failed", error="ProviderModelNotFoundError: Model not found: a/b."),
            AgentFailure(trouble=AgentTrouble.REFUSED),
        ),
        (refused("The usage limit has been reached").replace('"false"', "true"), None),  # only the title's
        (log("share subscriber failed", cause="The usage limit has been reached"), None),
        ("The usage limit has been reached", None),
        ('timestamp="', None),
    ],
)
def test_what_its_log_says(line: str, event: AgentEvent | None) -> None:
    found = [one for one in OPENCODE.parse(line, Stream.ERR) if isinstance(one, AgentFailure | Retry)]
    assert [(type(one), one.trouble) for one in found] == (
        [(type(event), event.trouble)] if isinstance(event, AgentFailure | Retry) else []
    )


def test_a_limit_that_it_sleeps_out_in_silence_ends_when_it_said() -> None:
    """Ended by us ten minutes after it was told "in 3600s": the hour counts from when it was said."""
    verdict = judged([], [refused("Rate limit reached. Please try again in 3600s.")], None, signal=9)
    assert (verdict.outcome, verdict.resets_at) == (Outcome.RATE_LIMITED, AT + 3600)


def test_a_session_is_known_before_the_model_said_a_word() -> None:
    created = f"timestamp=2026-11-15T20:00:17Z level=INFO message=created id={SESSION} parentID=undefined"
    assert judged([], [created]).session_id == SESSION
    assert judged([], [created.replace("undefined", "ses_1")]).session_id is None
    assert judged([], [log("loop", session__id=SESSION)]).session_id == SESSION


# -- its health


def hear(talk: AgentActivity, line: str, stream: Stream) -> None:
    for sign in OPENCODE.signs(line, stream):
        talk.hear(sign, 1.0)


def test_a_tool_is_open_from_the_log_s_word_until_the_model_is_asked_again() -> None:
    """Its output tells of a tool only when it is over: a long one would look like a model that does not answer."""
    talk = AgentActivity()
    allowed = {"permission": "bash", "pattern": "make", "action__action": "allow"}
    hear(talk, log("evaluated", **allowed), Stream.ERR)
    assert [tool.name for tool in talk.tools.values()] == ["bash"]
    hear(talk, log("stream", small="true", session__id=SESSION), Stream.ERR)
    assert len(talk.tools) == 1
    hear(talk, log("stream", small="false", session__id=SESSION), Stream.ERR)
    assert talk.tools == {}


def test_steps_without_words_are_a_loop() -> None:
    """After a cut stream it asks again for ever, and each try ends with "unknown"."""
    talk = AgentActivity()
    for _ in range(50):
        hear(talk, step("start"), Stream.OUT)
        hear(talk, step("finish", "unknown", output=0), Stream.OUT)
    assert talk.steps == 50
    hear(talk, json.dumps({"type": "text", "part": {"text": "at last"}}), Stream.OUT)
    for _ in range(50):  # but that it continues, step by step, is nothing against it
        hear(talk, step("start"), Stream.OUT)
        hear(talk, step("finish", "tool-calls"), Stream.OUT)
    assert talk.steps == 0


def test_a_configuration_in_the_users_environment_holds_but_for_what_is_ours() -> None:
    """Who has a provider only there keeps it; permissions and updates stay ours to say."""
    mine = {"mine": {"options": {"baseURL": "http://127.0.0.1:1"}}}
    users = {"provider": mine, "autoupdate": True, "agent": {"x": {}}}
    inherited = {"OPENCODE_CONFIG_CONTENT": json.dumps(users)}
    config = json.loads(
        OPENCODE.build(replace(order(), inherited_environment=inherited)).env["OPENCODE_CONFIG_CONTENT"]
    )
    assert config["provider"] == mine
    assert config["autoupdate"] is False
    assert set(config["agent"]) == {"x", "holdfast"}
    broken = OPENCODE.build(replace(order(), inherited_environment={"OPENCODE_CONFIG_CONTENT": "{ not json"})).env
    assert set(json.loads(broken["OPENCODE_CONFIG_CONTENT"])) == {"autoupdate", "share", "agent"}
