"""GitHub Copilot CLI: `copilot --output-format json`, the prompt on standard input.

Seen with 1.0.102:
- The session's id is only in the last event, so Holdfast chooses it (`--session-id`). An unknown id to resume is
  refused.
- A tool that is not allowed on the command line needs a question. Without a terminal it is refused, and the model
  gets that refusal. A `--deny-tool` outweighs everything that the user's own settings allow.
- The CLI writes token counts only into a file, at its end, for the whole session. If that file cannot be written, it
  exits with 1.
- A failed request is complete in `model.call_failure`, with the reset time of a limit. `session.error` has only its
  text.
- After a signal the CLI reports the abort, and then an exit code of 0.
- The CLI's first start unpacks it into ~/.cache, which takes ten seconds.
- An account with a `base_url` needs no login at GitHub. Then the CLI runs offline except for that address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.agents.common.cli_agent import (
    Capabilities,
    CliAgent,
    Login,
    allowed_commands,
    as_count,
    as_http_status,
    as_object,
    format_one_line,
    format_option,
    order_permission,
    parse_object,
    words,
)
from holdfast.agents.common.provider_errors import classify_error
from holdfast.agents.port import Permission, Stream, WorkOrder
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
    StepStarted,
    ToolFinished,
    ToolRefused,
    ToolStarted,
    Usage,
)

MODEL = "default"  # for an account with a `base_url`, which needs a model
USAGE = "usage.json"
_OF_LIMITS = frozenset({AgentTrouble.USAGE_LIMIT, AgentTrouble.RATE_LIMIT})
_LASTING = frozenset({AgentTrouble.USAGE_LIMIT, AgentTrouble.BILLING, AgentTrouble.AUTH})  # the CLI would retry anyway
_ALLOWED = {
    Permission.READ: ("--deny-tool=write", "--deny-tool=shell"),
    Permission.EDIT: ("--allow-tool=write",),
    Permission.FULL: ("--allow-all",),
}


# -- starting it -------------------------------------------------------------------------------------------------------


def _arguments(order: WorkOrder) -> Sequence[str]:
    resume = order.session_id is not None
    usage = os.path.join(order.result_directory, USAGE) if order.result_directory else ""
    return (
        *("--output-format", "json"),
        *("--no-auto-update", "--no-ask-user", "--no-color"),
        *_ALLOWED[order_permission(order)],
        *(f"--allow-tool=shell({command}{more})" for command in allowed_commands(order) for more in ("", ":*")),
        *((f"--usage-output-file={usage}",) if usage else ()),
        *((f"--model={model}",) if (model := format_option(order, "model")) else ()),
        *((f"--resume={order.session_id}",) if resume else (f"--session-id={order.new_session}",)),
    )


def _environment(order: WorkOrder) -> Mapping[str, str]:
    account = order.account
    # the CLI's own variable must not widen the permission that the user chose here
    env = {} if order_permission(order) is Permission.FULL else {"COPILOT_ALLOW_ALL": "false"}
    if account.config_dir:
        env["COPILOT_HOME"] = account.config_dir
    if account.base_url:
        env |= {
            "COPILOT_PROVIDER_BASE_URL": account.base_url,
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_OFFLINE": "true",
            "COPILOT_MODEL": format_option(order, "model") or MODEL,
        }
    return env


# -- reading its output ------------------------------------------------------------------------------------------------


def _parse(line: str, stream: Stream) -> Sequence[AgentEvent]:
    if stream is Stream.ERR:
        return _last_words(line) or (RawLine(text=line),)
    event = parse_object(line)
    if event is None:
        return (RawLine(text=line),)
    data = as_object(event.get("data"))
    match event.get("type"):
        case "session.tools_updated":
            return (SessionStarted(id="", model=words(data.get("model"))),)
        case "assistant.turn_start":
            return (StepStarted(),)
        case "assistant.message" | "assistant.reasoning" as kind if text := words(data.get("content")):
            return (AgentText(text=text, is_thought=kind == "assistant.reasoning"),)
        case "tool.execution_start":
            return (_started(data),)
        case "tool.execution_complete":
            return _finished(data)
        case "model.call_failure":
            return _call_failed(data)
        case "session.error":
            return (_failure(data),)
        case "abort":
            why = words(data.get("reason"))
            trouble = AgentTrouble.BUDGET if why == "autopilot_credit_limit" else AgentTrouble.INTERRUPTED
            return (AgentFailure(trouble=trouble, message=f"it was aborted: {why}", outlasts_success=True),)
        case "result":
            return _result(event)
    return (RawLine(text=line),)


def _started(data: Mapping[str, Any]) -> ToolStarted:
    given = data.get("arguments")
    fields = as_object(given)
    shown = next((words(fields[name]) for name in ("command", "path", "pattern") if words(fields.get(name))), "")
    return ToolStarted(
        id=words(data.get("toolCallId")), name=words(data.get("toolName")), input=shown or format_one_line(given)
    )


_NOT_PERMITTED = "Permission denied and could not request permission from user"


def _finished(data: Mapping[str, Any]) -> Sequence[AgentEvent]:
    ok = data.get("success")
    said = words(as_object(data.get("result")).get("content")) or words(as_object(data.get("error")).get("message"))
    finished = ToolFinished(id=words(data.get("toolCallId")), ok=ok if isinstance(ok, bool) else None, output=said)
    if ok is False and said.strip() == _NOT_PERMITTED:
        return (finished, ToolRefused(name=words(data.get("toolName"))))
    return (finished,)


def _result(event: Mapping[str, Any]) -> Sequence[AgentEvent]:
    code = event.get("exitCode")
    ok = code == 0 and not isinstance(code, bool)
    return (
        SessionStarted(id=words(event.get("sessionId"))),
        AgentResult(ok=ok, text="" if ok else f"exit code {code}"),
    )


def _usage(text: str) -> Sequence[AgentEvent]:
    """Return the events of the file that the CLI leaves: tokens by model."""
    found = parse_object(text) or {}
    counts = [as_object(as_object(one).get("usage")) for one in as_object(found.get("modelMetrics")).values()]
    if not counts:
        return ()

    def total(name: str) -> int:
        return sum(as_count(count.get(name)) for count in counts)

    return (
        SessionStarted(id="", model=words(found.get("currentModel"))),
        Usage(
            input=total("inputTokens"),
            output=total("outputTokens"),
            cached=total("cacheReadTokens"),
            reasoning=total("reasoningTokens"),
            is_total=True,
        ),
    )


# -- errors ------------------------------------------------------------------------------------------------------------

_BY_TYPE = {
    "authorization": AgentTrouble.AUTH,
    "quota": AgentTrouble.USAGE_LIMIT,  # of premium requests: it is reset with the next month
    "context_limit": AgentTrouble.CONTEXT,
}
_BY_CODE = {
    "user_weekly_rate_limited": AgentTrouble.USAGE_LIMIT,
    "session_quota_exceeded": AgentTrouble.BUDGET,  # the user's own cap for one session
    "billing_not_configured": AgentTrouble.BILLING,
    "custom_billing_not_configured": AgentTrouble.BILLING,
}
_LOST = re.compile(
    r"^error: (?:no session\b.*\bmatched|session\b.*\b(?:not found|could not be loaded|corrupted))", re.IGNORECASE
)
_LOGGED_OUT = re.compile(r"^Error: No authentication information", re.IGNORECASE)
_REFUSED = re.compile(r"^error: ", re.IGNORECASE)


def _failure(data: Mapping[str, Any]) -> AgentFailure:
    kind, message, status = (
        words(data.get("errorType")),
        words(data.get("message")),
        as_http_status(data.get("statusCode")),
    )
    last = message.rpartition("Last error: ")[2]  # the text before it: number of tries, and waits
    named = _BY_CODE.get(words(data.get("errorCode"))) or _BY_TYPE.get(kind)
    trouble = named or classify_error(status=status, code=kind, text=last)
    reset = last if trouble in _OF_LIMITS else None
    return AgentFailure(trouble=trouble, message=message or kind, status=status, reset=reset)


def _call_failed(data: Mapping[str, Any]) -> Sequence[AgentEvent]:
    """Return the events of a failed request to the model. The CLI retries, or ends with `session.error`."""
    body, status = words(data.get("errorMessage")), as_http_status(data.get("statusCode"))
    said = as_object((answer := parse_object(body) or {}).get("error")) or answer
    message = words(said.get("message")) or body.strip('"')
    codes = [words(data.get("errorCode")), words(data.get("errorType")), ""]
    found = [classify_error(status=status, code=code, text=message) for code in codes]
    trouble = next((one for one in found if one in _LASTING), found[0])
    if trouble is AgentTrouble.OTHER and data.get("failureKind") == "transport":
        trouble = AgentTrouble.NETWORK
    reset = body if trouble in _OF_LIMITS else None
    if trouble in _LASTING and data.get("source") in (None, "top_level"):
        failure = AgentFailure(trouble=trouble, message=message, status=status, reset=reset)
        if trouble is not AgentTrouble.USAGE_LIMIT:
            return (failure,)
        return (
            failure,
            LimitNotice(rejected=True, reset=reset),
        )  # later events repeat the limit without its reset time
    attempt = as_count(data.get("retryAttempt")) + 1
    return (Retry(trouble=trouble, attempt=attempt, status=status, message=message, reset=reset),)


def _last_words(line: str) -> Sequence[AgentEvent]:
    """Return the events of a line of standard error. Only a process that could not start writes there."""
    line = line[:4096]
    if _LOST.search(line):
        return (AgentFailure(trouble=AgentTrouble.SESSION_LOST, message=line),)
    if _LOGGED_OUT.search(line):
        return (AgentFailure(trouble=AgentTrouble.AUTH, message=line),)
    if _REFUSED.search(line):
        return (AgentFailure(trouble=AgentTrouble.REFUSED, message=line),)
    return ()


_OWN_ARGUMENTS = (
    *("--output-format", "--auto-update", "--ask-user", "--color", "--allow-all", "--allow-all-tools", "--yolo"),
    *("--usage-output-file", "--model", "--resume", "--continue", "--session-id", "--prompt", "-p", "--interactive"),
    *("-i", "--silent", "-s", "--acp", "--help", "-h", "--version", "-v"),
)


COPILOT = CliAgent(
    name="copilot",
    provider_name="github",
    title="GitHub Copilot",
    binary="copilot",
    install="npm install -g @github/copilot",
    tested=("1.0.102", "1.0.102"),
    arguments=_arguments,
    own_arguments=_OWN_ARGUMENTS,
    parse_line=_parse,
    environment=_environment,
    login_variables=(
        "COPILOT_HOME",
        "COPILOT_GITHUB_TOKEN",
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "COPILOT_PROVIDER_*",
        "COPILOT_MODEL",
        "COPILOT_OFFLINE",
    ),
    longest_quiet_answer=600.0,
    capabilities=Capabilities(preassigned_session=True, reset_time=True),
    login=Login(
        config_variable="COPILOT_HOME",
        config_directory="~/.copilot",
        variables=("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_API_KEY"),
        command="copilot login",
    ),
    by_hand=("--resume={session}",),
    transcript=lambda session, config, _workspace: f"{config}/session-state/{session}/events.jsonl",
    reads_errors=True,
    result_files={USAGE: _usage},
)
