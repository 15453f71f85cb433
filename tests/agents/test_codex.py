"""Codex: what is started, and how its errors are told apart. Recordings of it are in test_golden.py."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from itertools import pairwise

import pytest

from holdfast.agents.codex import CODEX, NO_COMMITS, READ_RULES
from holdfast.agents.port import Account, EndedRun, HostFacts, Stream, WorkOrder
from holdfast.core.agents.events import AgentFailure, AgentTrouble, Retry, ToolFinished, ToolStarted
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict

SESSION = "01a1dd28-6da5-7333-bfe1-95c330bc0eb7"
BYPASS = "--dangerously-bypass-approvals-and-sandbox"


def order(session: str | None = None, account: Account | None = None, run: int = 1, **options: object) -> WorkOrder:
    return WorkOrder(
        prompt="do it", run_number=run, session_id=session, options=options, account=account or Account(name="a")
    )


def settings(argv: list[str]) -> dict[str, object]:
    """What the `-c` arguments add up to, read as TOML."""
    return tomllib.loads("\n".join(value for flag, value in pairwise(argv) if flag == "-c"))


@pytest.mark.parametrize(
    ("mode", "sandbox"), [("read", "read-only"), ("edit", "workspace-write"), (None, "workspace-write")]
)
@pytest.mark.parametrize("session", [None, SESSION])
def test_a_restricted_agent_has_its_sandbox_and_asks_nobody(
    mode: str | None, sandbox: str, session: str | None
) -> None:
    """`exec resume` takes no --sandbox, so both go by `-c`. Nothing dangerous is switched on in silence."""
    command = CODEX.build(order(session, permission=mode))
    argv = list(command.argv)
    assert argv[:2] == ["codex", "exec"]
    assert argv[2:4] == (["resume", SESSION] if session else ["--json", "--skip-git-repo-check"])
    assert argv[-1] == "-"
    assert BYPASS not in argv
    chosen = settings(argv)
    assert (chosen["sandbox_mode"], chosen["approval_policy"]) == (sandbox, "never")
    assert command.stdin.endswith(NO_COMMITS) is (sandbox == "workspace-write")
    assert "do it" in command.stdin
    assert "do it" not in " ".join(argv)


@pytest.mark.parametrize(("mode", "is_private"), [("read", False), ("edit", True), ("full", False)])
def test_an_agent_that_edits_may_write_its_own_temporary_files_only(mode: str, is_private: bool) -> None:
    """Left to itself its sandbox opens all of /tmp, where other tasks may have their workspaces."""
    command = CODEX.build(replace(order(permission=mode), files_directory="/run/files"))
    assert command.env.get("TMPDIR") == ("/run/files/tmp" if is_private else None)
    assert list(command.files) == (["tmp/.keep"] if is_private else [])
    chosen = settings(list(command.argv)).get("sandbox_workspace_write")
    assert chosen == ({"exclude_slash_tmp": True} if is_private else None)


@pytest.mark.parametrize("directory", ['/home/ü/a \U0001f389"\\b', "/home/a.b"])
@pytest.mark.parametrize("session", [None, SESSION])
@pytest.mark.parametrize(("mode", "trust"), [("read", None), ("edit", "untrusted"), ("full", "trusted")])
def test_no_run_has_it_trust_the_repository_for_good(
    mode: str, trust: str | None, session: str | None, directory: str
) -> None:
    """Left to itself it writes that into the user's configuration, and runs what the repository's `.codex` names."""
    command = CODEX.build(replace(order(session, permission=mode), directory=directory))
    expected = None if trust is None else {directory: {"trust_level": trust}}
    assert settings(list(command.argv)).get("projects") == expected
    assert (READ_RULES in command.stdin) is (trust == "untrusted")


def test_full_permission_and_a_model() -> None:
    argv = list(CODEX.build(order(permission="full", model="gpt-x", binary="/opt/codex")).argv)
    assert argv[0] == "/opt/codex"
    assert BYPASS in argv
    assert argv[argv.index("-m") + 1] == "gpt-x"
    assert "sandbox_mode" not in settings(argv)


def test_an_account_with_its_own_address_has_its_own_provider_with_few_retries() -> None:
    account = Account(name="a", base_url='http://127.0.0.1:1/"x"/v1', config_dir="/c", env={"CODEX_API_KEY": "secret"})
    command = CODEX.build(order(account=account))
    chosen = settings(list(command.argv))
    assert chosen["model_provider"] == "holdfast"
    provider = chosen["model_providers"]["holdfast"]  # type: ignore[index]
    assert provider["base_url"] == account.base_url
    assert provider["env_key"] == "CODEX_API_KEY"
    assert provider["stream_max_retries"] <= 2
    assert command.env == {"CODEX_HOME": "/c", "CODEX_API_KEY": "secret"}
    assert "secret" not in " ".join(command.argv)
    assert "model_provider" not in settings(list(CODEX.build(order()).argv))  # the user's own is left alone


def test_without_namespaces_only_full_permission_is_accepted() -> None:
    """There its sandbox cannot start: every command would fail, and the turn be a success all the same."""
    bare = HostFacts(is_root=True, has_namespaces=False)
    assert "--permission full" in (CODEX.problem({"permission": "edit"}, bare) or "")
    assert CODEX.problem({"permission": "full"}, bare) is None
    assert CODEX.problem({"permission": "read"}, HostFacts(is_root=True)) is None


@pytest.mark.parametrize(
    ("message", "trouble"),
    [
        ("unexpected status 401 Unauthorized: Missing bearer or basic authentication in header", AgentTrouble.AUTH),
        ("unexpected status 403 Forbidden: no", AgentTrouble.AUTH),
        ("Your access token could not be refreshed because your refresh token was already used.", AgentTrouble.AUTH),
        ("Missing environment variable: `OPENAI_API_KEY`.", AgentTrouble.AUTH),
        (
            "You’ve hit your usage limit for gpt-x. Switch to another model now, or try again in 3 days",
            AgentTrouble.USAGE_LIMIT,
        ),
        ("Your workspace is out of credits. Add credits to continue.", AgentTrouble.BILLING),
        ("To use Codex with your ChatGPT plan, upgrade to Plus: https://chatgpt.com/pricing.", AgentTrouble.BILLING),
        ("Quota exceeded. Check your plan and billing details.", AgentTrouble.BILLING),
        ("Codex ran out of room in the model's context window. Start a new thread.", AgentTrouble.CONTEXT),
        ("exceeded retry limit, last status: 503 Service Unavailable, request id: 429", AgentTrouble.OVERLOADED),
        (
            "unexpected status 404 Not Found: no such model, url: http://h/rate-limit/429/v1/responses",
            AgentTrouble.OTHER,
        ),
        ("Selected model is at capacity. Please try a different model.", AgentTrouble.OVERLOADED),
        ("stream disconnected before completion: idle timeout waiting for SSE", AgentTrouble.NETWORK),
        ('{"error":{"message":"too big","code":"context_length_exceeded"}}', AgentTrouble.CONTEXT),
        (
            "stream disconnected before completion: Incomplete response returned, reason: content_filter",
            AgentTrouble.OTHER,
        ),
        ("interrupted (Ctrl-C). Something went wrong? Hit `/feedback` to report the issue.", AgentTrouble.INTERRUPTED),
        ("turn aborted. Something went wrong? Hit `/feedback` to report the issue.", AgentTrouble.INTERRUPTED),
        ("required MCP servers failed to initialize: x: connection closed, 401", AgentTrouble.OTHER),
        ("shared rollout token budget exhausted", AgentTrouble.BUDGET),
        ("something unheard of", AgentTrouble.OTHER),
        ("", AgentTrouble.OTHER),
    ],
)
def test_errors_by_their_structure(message: str, trouble: AgentTrouble) -> None:
    """The same words are a failure in `turn.failed` and in `error`, and a retry behind `Reconnecting...`."""
    (failed,) = CODEX.parse(json.dumps({"type": "turn.failed", "error": {"message": message}}), Stream.OUT)
    assert isinstance(failed, AgentFailure)
    assert (failed.trouble, failed.is_fatal) == (trouble, True)
    again = {"type": "error", "message": f"Reconnecting... 2/5 ({message})"}
    (retried,) = CODEX.parse(json.dumps(again), Stream.OUT)
    assert isinstance(retried, Retry)
    assert (retried.trouble, retried.attempt, retried.most) == (trouble, 2, 5)


@pytest.mark.parametrize(
    ("item", "name", "said"),
    [
        (
            {"type": "file_change", "changes": [{"path": "a.py", "kind": "add"}], "status": "completed"},
            "edit",
            "add a.py",
        ),
        (
            {"type": "mcp_tool_call", "server": "s", "tool": "t", "arguments": {"x": 1}, "status": "completed"},
            "s.t",
            '{"x": 1}',
        ),
        ({"type": "web_search", "query": "q", "status": "completed"}, "web_search", "q"),
        ({"type": "new_thing", "plan": "p", "status": "completed"}, "new_thing", '{"plan": "p"}'),
    ],
)
def test_every_tool_opens_and_closes(item: dict[str, object], name: str, said: str) -> None:
    started, finished = (
        CODEX.parse(json.dumps({"type": kind, "item": {"id": "item_7", **item}}), Stream.OUT)
        for kind in ("item.started", "item.completed")
    )
    assert started == (ToolStarted(id="item_7", name=name, input=said),)
    (closed,) = finished
    assert isinstance(closed, ToolFinished)
    assert (closed.id, closed.name, closed.ok) == ("item_7", name, True)


def ran(output: str, status: str = "failed", code: int = 1) -> str:
    item = {"type": "command_execution", "aggregated_output": output, "exit_code": code, "status": status}
    return json.dumps({"type": "item.completed", "item": {"id": "item_1", "command": "ls", **item}})


def test_a_sandbox_that_cannot_start_is_no_success() -> None:
    """The turn completes all the same. A command that says so by itself is only a command."""
    no = "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)\n"
    done = '{"type":"turn.completed"}'
    hindered = judged("", ran(no), done, code=0)
    assert hindered.outcome is Outcome.LAUNCH_ERROR
    assert "--permission full" in hindered.reason
    worked = ran("a.txt\n", "completed", 0)
    for lines in ((worked, ran(no)), (ran(no), worked), (ran("make: failed\n"),), (ran(f"$ ls\n{no}"),)):
        assert judged("", *lines, done, code=0).outcome is Outcome.COMPLETED


def judged(error_tail: str, *lines: str, code: int = 1) -> Verdict:
    end = ProcessEnd(cause=Cause.EXITED, code=code)
    return CODEX.judge(EndedRun(end=end, output=lines, error_tail=error_tail, errors=error_tail.splitlines(), at=0.0))


def test_more_last_words_on_standard_error() -> None:
    for line, outcome in (
        ("Error: thread not found: 0194", Outcome.SESSION_LOST),
        ("Error: error loading config: /x/config.toml:1:1", Outcome.LAUNCH_ERROR),
        ("Not inside a trusted directory and --skip-git-repo-check was not specified.", Outcome.LAUNCH_ERROR),
    ):
        assert judged(line).outcome is outcome


def test_a_process_that_could_not_begin() -> None:
    lost = f"Error: thread/resume: thread/resume failed: no rollout found for thread id {SESSION} (code -32600)\n"
    assert judged(lost).outcome is Outcome.SESSION_LOST
    assert judged("error: unexpected argument '--x' found\n").outcome is Outcome.LAUNCH_ERROR
    assert judged('Error finding codex home: CODEX_HOME points to "/x"\n').outcome is Outcome.LAUNCH_ERROR
    assert judged("WARNING: proceeding\n").outcome is Outcome.CRASHED
    # What stands on standard error is no word against a turn that completed.
    done = '{"type":"turn.completed","usage":{"input_tokens":9,"output_tokens":1}}'
    assert judged(lost, done, code=0).outcome is Outcome.COMPLETED
