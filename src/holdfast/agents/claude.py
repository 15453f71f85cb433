"""Claude Code: `claude -p --output-format stream-json`, the prompt on standard input.

Seen with 2.1.325:
- `read` is the CLI's plan mode. `edit` accepts edits of files and simple commands on them (touch, mkdir). Other
  commands are refused unless the CLI's own settings or `permissions.allow` allow them. `full` skips the CLI's
  permissions. The CLI refuses `full` to root unless `IS_SANDBOX=1` is set. A container as workspace or
  `permissions.sandbox` sets it.
- Claude Code ignores the commands that a repository's `.claude/settings.json` allows, unless its state has trust in
  the repository. A worktree counts as the repository that it belongs to. `--allowedTools` needs no trust.
- Unattended, Claude Code does not ask whether a repository is trusted. The hooks of the repository's
  `.claude/settings.json` and the servers of its `.mcp.json` are started in every mode, even in `read`.
- By default Claude Code retries for three minutes when its provider fails (11 requests). With three retries it takes
  about ten seconds. After a Retry-After of more than a minute it gives up at once.
- Claude Code cannot be made to notice an answer that never comes: its watchdogs for streams had no effect below a
  minute. The health service notices it (`health.stuck_after`).
- With the login of a plan, a limit comes with its reset time to the second. With an API key, a limit looks like any
  other 429.
- After SIGINT Claude Code exits with 0. After errors of its provider it prints `"subtype":"success"` with
  `"is_error":true`.
- `total_cost_usd` and `modelUsage` continue counting when a session is continued. `model_usage_since_last_result`
starts
  at 0. A run that was cut off has reported its tokens but no cost.
- While the model thinks or writes, Claude Code prints nothing, however long that takes, unless partial messages are
  switched on. Holdfast switches them on: they distinguish work from a hang, and are not shown.
- A prompt that begins with one of its commands ("/compact …", "/help …") runs that command: a success with no turns,
  which counts as a failure. Other words after a slash ("/src/app.py …") reach the model.
- After a cut stream, Claude Code requests the answer again in one piece, so the run continues.

Errors are read only from fields that the CLI itself fills, never from the model's text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.agents.common.cli_agent import (
    Capabilities,
    CliAgent,
    Login,
    RepositoryTrust,
    allowed_commands,
    as_count,
    as_http_status,
    as_number,
    as_object,
    as_objects,
    as_turns,
    format_one_line,
    format_option,
    order_permission,
    parse_object,
    permission_of,
    refused_tools,
    words,
)
from holdfast.agents.common.provider_errors import classify_error
from holdfast.agents.port import HostFacts, Permission, Stream, WorkOrder
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
    ToolFinished,
    ToolStarted,
    Usage,
)

_PIECE = '{"type":"stream_event"'  # most lines: they hold nothing that is needed, so they are not parsed as JSON
_PIECE_WITH_USAGE = '{"type":"stream_event","event":{"type":"message_delta"'
_SYNTHETIC = "<synthetic>"  # the model's name in messages written by the CLI itself
_TELLING = ("command", "file_path", "pattern", "url", "prompt")  # the part of a tool's input that is shown first
_ASIDE = ("description", "timeout", "run_in_background", "subagent_type")
_BY_SUBTYPE = {"error_max_turns": AgentTrouble.TURN_LIMIT, "error_max_budget_usd": AgentTrouble.BUDGET}
_BY_REASON = {
    "max_turns": AgentTrouble.TURN_LIMIT,
    "prompt_too_long": AgentTrouble.CONTEXT,
    "blocking_limit": AgentTrouble.CONTEXT,
    "rapid_refill_breaker": AgentTrouble.CONTEXT,
    "budget_exhausted": AgentTrouble.BUDGET,
    "aborted_streaming": AgentTrouble.INTERRUPTED,
    "aborted_tools": AgentTrouble.INTERRUPTED,
}
_UNFINISHED = frozenset(
    {"tool_deferred"}
)  # a hook deferred a tool: not an error for the CLI, but the work is not finished
_LOG = "[ede_diagnostic]"  # begins an entry of `errors` about its own process: a tool server, a hook
_LOST = re.compile(r"no conversation found|requires a valid session|session (?:id )?\S* ?(?:was )?not found", re.I)
_BAD_START = re.compile(
    r"cannot be used with root|^error: (?:input must be provided|settings file not found)"
    r"|session id \S+ is already in use|^error: (?:unknown (?:option|command)|option '"
    r"|missing required|too many arguments|invalid)",
    re.I,
)


def parse(line: str, stream: Stream) -> Sequence[AgentEvent]:
    if stream is Stream.ERR:
        return (_parse_error_line(line),)
    if line.startswith(_PIECE) and not line.startswith(_PIECE_WITH_USAGE):
        return ()
    said = parse_object(line)
    if said is None:
        return (RawLine(text=line),)
    found = list(_events(said))
    return found if found or said.get("type") == "stream_event" else (RawLine(text=line),)


def _parse_error_line(line: str) -> AgentEvent:
    """Return the event of a line of standard error.

    Failures before a session exists are printed there. Tools and the model never write to standard error.
    """
    if _LOST.search(line[:1000]):
        return AgentFailure(trouble=AgentTrouble.SESSION_LOST, message=line[:1000])
    if _BAD_START.search(line[:1000]):
        return AgentFailure(trouble=AgentTrouble.REFUSED, message=line[:1000])
    return RawLine(text=line)


def _events(said: dict[str, Any]) -> Iterator[AgentEvent]:
    match said.get("type"), said.get("subtype"):
        case "system", "init":
            yield SessionStarted(id=words(said.get("session_id")), model=words(said.get("model")))
        case "system", "api_retry":
            yield _retry(said)
        case "assistant", _:
            yield from _assistant(said)
        case "user", _:
            for block in as_objects(as_object(said.get("message")).get("content")):
                yield from _tool_result(block)
        case "stream_event", _:
            yield from _piece(as_object(said.get("event")))
        case "rate_limit_event", _:
            yield from _limit(as_object(said.get("rate_limit_info")))
        case "result", _:
            yield from _result(said)


def _retry(said: dict[str, Any]) -> Retry:
    status, code = as_http_status(said.get("error_status")), words(said.get("error"))
    trouble = classify_error(status=status, code=code, text=words(said.get("error_message")))
    if trouble is AgentTrouble.OTHER and status is None:
        trouble = AgentTrouble.NETWORK  # the provider did not answer at all
    delay = as_number(said.get("retry_delay_ms"))
    return Retry(
        trouble=trouble,
        attempt=as_count(said.get("attempt")) or None,
        most=as_count(said.get("max_retries")) or None,
        delay=None if delay is None else delay / 1000,
        status=status,
        message=" ".join(str(part) for part in (status, code) if part),
    )


def _assistant(said: dict[str, Any]) -> Iterator[AgentEvent]:
    message = as_object(said.get("message"))
    if said.get("is_api_error_message") is True or message.get("model") == _SYNTHETIC:
        yield from _synthetic(said, message)
        return
    for block in as_objects(message.get("content")):
        kind = words(block.get("type"))
        if kind == "text":
            yield AgentText(text=words(block.get("text")))
        elif kind == "thinking":
            yield AgentText(text=words(block.get("thinking")), is_thought=True)
        elif kind.endswith("tool_use"):
            yield _tool(block)
        elif kind.endswith("tool_result"):
            yield from _tool_result(block, kind)
    if usage := as_object(message.get("usage")):
        yield _tokens(usage, of=words(message.get("id")))


def _synthetic(said: dict[str, Any], message: dict[str, Any]) -> Iterator[AgentEvent]:
    """Yield the event of a message that the CLI wrote itself: mostly an error, sometimes a remark that is not marked as
    an error."""
    text = "\n".join(words(block.get("text")) for block in as_objects(message.get("content")))
    is_marked = said.get("is_api_error_message") is True or bool(said.get("error"))
    if not is_marked and _trouble({}, text) is AgentTrouble.OTHER:  # older versions do not mark errors
        yield AgentText(text=text)
        return
    params = as_object(as_object(said.get("api_error_params")).get("rate_limit_info"))
    # The parent agent handles the trouble of its sub-agent.
    yield _failure(said, text, is_fatal=said.get("parent_tool_use_id") is None, reset=as_number(params.get("resetsAt")))


def _tool(block: dict[str, Any]) -> ToolStarted:
    given = as_object(block.get("input"))
    deadline = as_number(given.get("timeout")) if block.get("name") == "Bash" else None
    return ToolStarted(
        id=words(block.get("id")),
        name=words(block.get("name")),
        input=_format_tool_input(given),
        deadline=deadline / 1000 if deadline is not None and deadline > 0 else None,
    )


def _format_tool_input(given: dict[str, Any]) -> str:
    """Return a tool's input as text, with its main part first.

    All other fields follow, because fifty different edits of one file are fifty steps and not a loop.
    """
    lead = next((key for key in _TELLING if words(given.get(key))), None)
    if lead is None:
        return format_one_line(given)
    rest = {key: value for key, value in given.items() if key not in (lead, *_ASIDE)}
    return f"{given[lead]} {format_one_line(rest)}" if rest else str(given[lead])


def _tool_result(block: dict[str, Any], kind: str = "") -> Iterator[ToolFinished]:
    if not (kind or words(block.get("type"))).endswith("tool_result"):
        return
    content = block.get("content")
    if isinstance(content, list):
        content = "\n".join(words(part.get("text")) for part in as_objects(content))
    yield ToolFinished(id=words(block.get("tool_use_id")), ok=block.get("is_error") is not True, output=words(content))


def _piece(event: dict[str, Any]) -> Iterator[Usage]:
    """Yield the usage from a partial message.

    Partial messages show that the model is working. Their text comes again in the complete message. Only the last part
    has the number of output tokens: the message itself is printed before its end is known, and reports 1.
    """
    if (
        output := as_count(as_object(event.get("usage")).get("output_tokens"))
        if event.get("type") == "message_delta"
        else 0
    ):
        yield Usage(output=output - 1)


def _limit(info: dict[str, Any]) -> Iterator[LimitNotice]:
    """Yield a notice about the limits of the plan.

    Newer versions report every window. The rejected window counts, else the fullest one.
    """
    scope, window = words(info.get("rateLimitType")), info
    windows = [
        (name, found) for name, found in as_object(info.get("unifiedWindows")).items() if isinstance(found, dict)
    ]
    if windows and info.get("resetsAt") is None:
        scope, window = max(windows, key=lambda named: (named[1].get("status") == "rejected", _fullness(named[1]) or 0))
    status = words(info.get("status")) or words(window.get("status"))
    if status in ("", "allowed"):
        return
    yield LimitNotice(
        rejected=status == "rejected" and info.get("isUsingOverage") is not True,
        scope=scope,
        utilization=_fullness(window),
        reset=as_number(window.get("resetsAt")),
    )


def _fullness(window: dict[str, Any]) -> float | None:
    return as_number(window.get("utilization"))


def _result(said: dict[str, Any]) -> Iterator[AgentEvent]:
    yield from _spent(said)
    ok = said.get("is_error") is False and said.get("subtype") == "success"
    ok = ok and said.get("terminal_reason") not in _UNFINISHED
    text = words(said.get("result"))
    if not ok:
        errors = said.get("errors")
        spoken = [words(error) for error in errors if error] if isinstance(errors, list) else []
        # `result` is an error text if an API error ended the run. Otherwise it may be the model's last text.
        is_api_error = said.get("subtype") == "success" and said.get("terminal_reason") != "completed"
        yield _failure(said, text if text and is_api_error else "; ".join(spoken)[:4000])
    yield from refused_tools(said)
    yield AgentResult(ok=ok, text=text, turns=as_turns(said.get("num_turns")))


def _failure(said: dict[str, Any], text: str, *, is_fatal: bool = True, reset: float | None = None) -> AgentFailure:
    status, trouble = as_http_status(said.get("api_error_status")), _trouble(said, text)
    hint = (
        reset if reset is not None else text if trouble in (AgentTrouble.USAGE_LIMIT, AgentTrouble.RATE_LIMIT) else None
    )
    return AgentFailure(trouble=trouble, message=text, status=status, is_fatal=is_fatal, reset=hint)


def _trouble(said: dict[str, Any], text: str) -> AgentTrouble:
    named = _BY_SUBTYPE.get(words(said.get("subtype"))) or _BY_REASON.get(words(said.get("terminal_reason")))
    if named is not None:
        return named
    if text.startswith(_LOG):
        return AgentTrouble.OTHER
    if _LOST.search(text[:1000]):
        return AgentTrouble.SESSION_LOST
    # From the most specific field to the least: connection_failed, overloaded_error, server_error.
    codes = [words(said.get(field)) for field in ("api_error", "api_error_type", "error")]
    code = next((code for code in codes if classify_error(code=code) is not AgentTrouble.OTHER), "")
    status = as_http_status(said.get("api_error_status"))
    found = classify_error(status=status, code=code, text=text)
    if found is AgentTrouble.OVERLOADED and status is None and classify_error(text=text) is AgentTrouble.NETWORK:
        return AgentTrouble.NETWORK  # the CLI reports a provider that did not answer as a server error
    return found


def _spent(said: dict[str, Any]) -> Iterator[Usage]:
    """Yield the usage of this run only. `total_cost_usd` and `modelUsage` also count earlier runs of the session."""
    models = said.get("model_usage_since_last_result")
    if isinstance(models, dict):
        if models:
            yield _of_models(list(as_objects(list(models.values()))))
    elif usage := as_object(said.get("usage")):
        total = _tokens(usage, cost=as_number(said.get("total_cost_usd")), is_total=True)
        if total.input or total.output or total.cost_usd:  # otherwise it lost count after a broken stream, as 2.0 does
            yield total


def _of_models(models: Sequence[dict[str, Any]]) -> Usage:
    def total(*names: str) -> int:
        return sum(as_count(model.get(name)) for model in models for name in names)

    costs = [cost for model in models if (cost := as_number(model.get("costUSD"))) is not None]
    return Usage(
        input=total("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"),
        output=total("outputTokens"),
        cached=total("cacheReadInputTokens"),
        reasoning=total("thinkingTokens"),
        cost_usd=sum(costs) if costs else None,
        settles=True,
    )


def _tokens(usage: dict[str, Any], *, of: str = "", cost: float | None = None, is_total: bool = False) -> Usage:
    cached = as_count(usage.get("cache_read_input_tokens"))
    return Usage(
        input=as_count(usage.get("input_tokens")) + as_count(usage.get("cache_creation_input_tokens")) + cached,
        output=as_count(usage.get("output_tokens")),
        cached=cached,
        reasoning=as_count(as_object(usage.get("output_tokens_details")).get("thinking_tokens")),
        cost_usd=cost,
        of=of,
        is_total=is_total,
    )


_MODES = {
    Permission.READ: ("--permission-mode", "plan"),
    Permission.EDIT: ("--permission-mode", "acceptEdits"),
    Permission.FULL: ("--dangerously-skip-permissions",),
}
_TAMED = {
    # The CLI bridges a short failure itself. The supervisor handles longer ones, for all agents of an account together.
    "CLAUDE_CODE_MAX_RETRIES": "3",
    # The time until the headers of an answer. A streamed answer sends them at once. After a broken stream the CLI
    # requests the whole answer in one piece, and 32,000 tokens take ten minutes. Silence ends a run sooner:
    # health.stuck_after.
    "API_TIMEOUT_MS": "600000",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "NO_COLOR": "1",
    "TERM": "dumb",
}
_LOGIN = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_PROVIDERS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


def _arguments(order: WorkOrder) -> list[str]:
    # With partial messages: otherwise a long answer would be silent for minutes, like an answer that never comes.
    given = ["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"]
    given += _MODES[order_permission(order)]
    if commands := allowed_commands(order):
        given += ["--allowedTools", *(f"Bash({command}:*)" for command in commands)]  # `:*`: also with more arguments
    given += ["--resume", order.session_id] if order.session_id is not None else ["--session-id", order.new_session]
    for flag, name in (("--model", "model"), ("--max-budget-usd", "budget_usd"), ("--max-turns", "max_turns")):
        if (value := format_option(order, name)) is not None:
            given += [flag, value]
    return given


def _environment(order: WorkOrder) -> dict[str, str]:
    env = dict(_TAMED)
    if order_permission(order) is Permission.FULL and order.surroundings.is_sandboxed:
        env["IS_SANDBOX"] = "1"  # without this variable of its own, the CLI refuses this mode to root
    if order.account.config_dir is not None:
        env["CLAUDE_CONFIG_DIR"] = order.account.config_dir
    if order.account.base_url is not None:
        env["ANTHROPIC_BASE_URL"] = order.account.base_url
    return env


def _refusal(options: Mapping[str, object], surroundings: HostFacts) -> str | None:
    if permission_of(options) is not Permission.FULL or not surroundings.is_root or surroundings.is_sandboxed:
        return None
    return (
        "Claude Code refuses `full` permissions to root. Run Holdfast as another user, give the task a container as "
        "its workspace (--workspace container), choose --permission edit, or set `permissions.sandbox = true` if this "
        "machine is disposable"
    )


def _transcript(session: str, config: str, _workspace: str) -> str:
    # The directory in the middle is named after the workspace's path, shortened if that path is long.
    return f"{config}/projects/*/{session}.jsonl"


_OWN_ARGUMENTS = (
    *("-p", "--print", "--output-format", "--input-format", "--verbose", "--include-partial-messages"),
    *("--permission-mode", "--permission-prompt-tool", "--dangerously-skip-permissions"),
    *("--allow-dangerously-skip-permissions", "--resume", "-r", "--continue", "-c", "--session-id", "--fork-session"),
    *("--no-session-persistence", "--from-pr", "--teleport", "--cloud", "--bg", "--background", "--worktree", "-w"),
    *("--tmux", "--model", "--max-budget-usd", "--max-turns", "--replay-user-messages"),
    *("--help", "-h", "--version", "-v"),
)


def _has_rules(settings: str) -> bool:
    """True if the settings of a repository have commands that Claude Code may run without asking."""
    return bool(as_object((parse_object(settings) or {}).get("permissions")).get("allow"))


def _is_trusted(state: str, repository: str) -> bool:
    """True if Claude Code trusts the repository, or a directory above it."""
    projects = as_object((parse_object(state) or {}).get("projects"))
    above = [repository]
    while (parent := os.path.dirname(above[-1])) != above[-1]:
        above.append(parent)
    return any(as_object(projects.get(path)).get("hasTrustDialogAccepted") is True for path in above)


CLAUDE = CliAgent(
    name="claude",
    provider_name="anthropic",
    title="Claude Code",
    binary="claude",
    install="npm install -g @anthropic-ai/claude-code",
    tested=("2.1.325", "2.1.325"),
    arguments=_arguments,
    parse_line=parse,
    environment=_environment,
    refusal=_refusal,
    own_arguments=_OWN_ARGUMENTS,
    trust=RepositoryTrust(
        rules=".claude/settings.json",
        has_rules=_has_rules,
        file="{config}/.claude.json",
        default_file="~/.claude.json",
        is_trusted=_is_trusted,
        remedy="run `claude` there once and accept its question",
    ),
    login_variables=(
        *_LOGIN,
        *_PROVIDERS,
        "ANTHROPIC_*",
        "CLAUDE_CONFIG_DIR",
        "CLAUDE_CODE_SKIP_*_AUTH",
        "CLOUD_ML_REGION",
        "VERTEX_REGION_*",
        "AWS_REGION",
        "AWS_PROFILE",
        "AWS_BEARER_TOKEN_BEDROCK",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "NODE_EXTRA_CA_CERTS",
    ),
    capabilities=Capabilities(preassigned_session=True, cost=True, reset_time=True, budget=True, turns=True),
    login=Login(
        config_variable="CLAUDE_CONFIG_DIR",
        config_directory="~/.claude",
        files=("{config}/.credentials.json",),
        variables=(*_LOGIN, *_PROVIDERS),
        command="claude auth login",
    ),
    by_hand=("--resume", "{session}"),
    transcript=_transcript,
    reads_errors=True,
)
