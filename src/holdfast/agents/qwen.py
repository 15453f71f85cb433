"""Qwen Code: `qwen --output-format stream-json`, the prompt on standard input.

Seen with 0.24.4:
- `read` is the CLI's plan mode. In `edit` the agent changes files, and commands are not even offered to the model.
  `full` approves everything. The CLI accepts root.
- The CLI's events have Claude Code's shapes, with its own errors: `result.error.message`. The same text is also in a
  message of the "assistant", after the model's text, without any mark.
- Version 0.15.10, which npm installs on Node 20 by default, has only those unmarked errors, reports "success" and
  exits with 0.
- A failed sub-agent has its own `result`. Only the last `result` is that of the run.
- The CLI has several layers of retries. The outer layer and that of its HTTP client are switched off by a file of
  defaults, over which the user's own settings win. The inner layer cannot be set: seven tries, about 80 s, in
  silence. It waits for a Retry-After of any length. The health service decides about it (core/health/diagnosis.py).
- `result.usage` is that of the whole session, including earlier processes and its own requests (its memory).
- A prompt that begins with the name of one of its commands ("/stats …") runs that command: a success with no turns,
  which counts as a failure.
- At the limit of turns there is no result, only a line on standard error.
- The CLI's write_file accepts absolute paths only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.agents.common.cli_agent import (
    Capabilities,
    CliAgent,
    Login,
    allowed_commands,
    as_count,
    as_http_status,
    as_object,
    as_objects,
    as_turns,
    format_option,
    format_tool_input,
    order_permission,
    parse_object,
    refused_tools,
    words,
)
from holdfast.agents.common.provider_errors import MOST_TEXT, classify_error
from holdfast.agents.port import Account, Permission, Stream, WorkOrder
from holdfast.core.agents.events import (
    AgentEvent,
    AgentFailure,
    AgentResult,
    AgentText,
    AgentTrouble,
    RawLine,
    Retry,
    SessionStarted,
    ToolFinished,
    ToolStarted,
    Usage,
)

DEFAULTS = "qwen-defaults.json"
_SETTINGS = {
    "model": {"generationConfig": {"maxRetries": 0}},
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
}
_MODES = {Permission.READ: "plan", Permission.EDIT: "auto-edit", Permission.FULL: "yolo"}
_OF_LIMITS = frozenset({AgentTrouble.USAGE_LIMIT, AgentTrouble.RATE_LIMIT})


# -- starting it -------------------------------------------------------------------------------------------------------


def _arguments(order: WorkOrder) -> Sequence[str]:
    session = ("--resume", order.session_id) if order.session_id is not None else ("--session-id", order.new_session)
    return (
        "--output-format",
        "stream-json",
        "--approval-mode",
        _MODES[order_permission(order)],
        *(f"--allowed-tools=run_shell_command({command})" for command in allowed_commands(order)),
        *(("--auth-type", "openai") if _speaks_openai(order.account) else ()),
        *(("-m", model) if (model := format_option(order, "model")) else ()),
        *(("--max-session-turns", turns) if (turns := format_option(order, "max_turns")) else ()),
        *session,
    )


def _speaks_openai(account: Account) -> bool:
    """True if the account has an address or a key of OpenAI's protocol. The user's own login keeps its method."""
    return bool(account.base_url) or "OPENAI_API_KEY" in account.env


def _environment(order: WorkOrder) -> Mapping[str, str]:
    account, directory = order.account, order.files_directory
    return {
        "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
        **({"QWEN_CODE_SYSTEM_DEFAULTS_PATH": os.path.join(directory, DEFAULTS)} if directory else {}),
        **({"QWEN_HOME": account.config_dir} if account.config_dir else {}),
        **({"OPENAI_BASE_URL": account.base_url} if account.base_url else {}),
    }


# -- reading its output ------------------------------------------------------------------------------------------------


def _parse(line: str, stream: Stream) -> Sequence[AgentEvent]:
    if stream is Stream.ERR:
        return _parse_error_line(line)
    event = parse_object(line)
    if event is None:
        return (RawLine(text=line),)
    match event.get("type"), event.get("subtype"):
        case "system", "init":
            return (SessionStarted(id=words(event.get("session_id")), model=words(event.get("model"))),)
        case "system", "retry":
            return (_retry(as_object(event.get("data"))),)
        case "assistant" | "user", _:
            content = as_object(event.get("message")).get("content")
            said = tuple(found for block in as_objects(content) if (found := _block(block)) is not None)
            errors = _find_unmarked_error(event)
            last = said[-1] if errors and said else None
            if isinstance(last, AgentText) and last.text.startswith(_ERROR_MARK):
                said = said[:-1]  # no word of it is the model's
            return (*said, *errors)
        case "result", _:
            return _result(event)
    return (RawLine(text=line),)


def _find_unmarked_error(event: Mapping[str, Any]) -> Sequence[AgentFailure]:
    """Return the error that is printed in place of the model's text.

    Older versions (0.15) report it nowhere else, and then report "success".
    """
    message = as_object(event.get("message"))
    blocks = list(as_objects(message.get("content")))
    if event.get("type") != "assistant" or event.get("parent_tool_use_id") is not None or not blocks:
        return ()
    failure = _failure_without_tokens(words(blocks[-1].get("text")), message.get("usage"))
    return () if failure is None else (replace(failure, outlasts_success=True),)


def _failure_without_tokens(text: str, usage: object) -> AgentFailure | None:
    """Return the failure in a text that the CLI wrote itself. A text of the model has used tokens."""
    _, mark, rest = text.rpartition(_ERROR_MARK)
    if not mark or not isinstance(usage, dict) or any(as_count(count) for count in usage.values()):
        return None
    return _failure(mark + rest)


def _block(block: Mapping[str, Any]) -> AgentEvent | None:
    match block.get("type"):
        case "text":
            return AgentText(text=words(block.get("text")))
        case "thinking":
            return AgentText(text=words(block.get("thinking")), is_thought=True)
        case "tool_use":
            name, given = words(block.get("name")), format_tool_input(block.get("input"))
            return ToolStarted(id=words(block.get("id")), name=name, input=given)
        case "tool_result":
            said = block.get("content")
            output = said if isinstance(said, str) else "\n".join(words(part.get("text")) for part in as_objects(said))
            return ToolFinished(id=words(block.get("tool_use_id")), ok=not block.get("is_error"), output=output)
    return None


def _retry(data: Mapping[str, Any]) -> Retry:
    """Return a retry: of a rate limit if it has a delay, else of a stream without a result."""
    delay = data.get("delayMs")
    return Retry(
        trouble=AgentTrouble.NETWORK if delay is None else AgentTrouble.RATE_LIMIT,
        attempt=as_count(data.get("attempt")) or None,
        most=as_count(data.get("maxRetries")) or None,
        delay=as_count(delay) / 1000 if delay is not None else None,
    )


def _result(event: dict[str, Any]) -> Sequence[AgentEvent]:
    message = words(as_object(event.get("error")).get("message"))
    turns = as_turns(event.get("num_turns"))
    if event.get("is_error") is False and event.get("subtype") == "success" and not message:
        text = words(event.get("result"))
        if (failure := _failure_without_tokens(text, event.get("usage"))) is not None:
            return (failure, AgentResult(ok=False, text=text, turns=turns))
        return (*_usage(event), *refused_tools(event), AgentResult(ok=True, text=text, turns=turns))
    return (*_usage(event), _failure(message), AgentResult(ok=False, text=message, turns=turns))


def _usage(event: Mapping[str, Any]) -> Sequence[Usage]:
    usage = as_object(event.get("usage"))
    if not any(as_count(value) for value in usage.values()):
        return ()  # no request was sent: zeros must not replace the earlier usage of the session
    return (
        Usage(
            input=as_count(usage.get("input_tokens")),
            output=as_count(usage.get("output_tokens")),
            cached=as_count(usage.get("cache_read_input_tokens")),
            is_total=True,
        ),
    )


# -- errors ------------------------------------------------------------------------------------------------------------

_ERROR_MARK = "[API Error: "
_WRAPPED = re.compile(r"\[API Error: (?:(\d{3}) )?(.*?)\](?:\n.*)?", re.DOTALL)
_SPENT = re.compile(r"quota\b.*\b(?:exhausted|exceeded)\b.*\breset|^Quota exhausted: ", re.IGNORECASE | re.DOTALL)
_LOGGED_OUT = re.compile(
    r"no auth type is selected|missing api key|invalid auth|free tier has been discontinued|auth(?:entication)? failed",
    re.IGNORECASE,
)


def _failure(message: str) -> AgentFailure:
    wrapped = _WRAPPED.fullmatch(message[:MOST_TEXT].strip())
    said = wrapped[2] if wrapped is not None else message
    status = as_http_status(wrapped[1]) if wrapped is not None else None
    trouble = _trouble(status, said)
    return AgentFailure(trouble=trouble, message=said, status=status, reset=said if trouble in _OF_LIMITS else None)


def _trouble(status: int | None, said: str) -> AgentTrouble:
    text = said[:MOST_TEXT]
    if text.startswith("Loop detection halted"):
        return AgentTrouble.LOOP
    if status in (None, 403, 429) and _SPENT.search(text):
        return AgentTrouble.USAGE_LIMIT
    if status is None and _LOGGED_OUT.search(text):
        return AgentTrouble.AUTH
    return classify_error(status=status, text=text)


# -- standard error: why it retries, and the last lines of a process without a result ----------------------------------

_RETRYING = re.compile(r"Retrying in (\d{1,7})s \(attempt (\d{1,4})/(\d{1,4})\): (.*)", re.DOTALL)
_LAST_WORDS: tuple[tuple[re.Pattern[str], AgentTrouble], ...] = (
    (re.compile(r"No saved session found\b"), AgentTrouble.SESSION_LOST),
    (re.compile(r"Reached max session turns\b"), AgentTrouble.TURN_LIMIT),
    (re.compile(r"Operation cancelled\."), AgentTrouble.INTERRUPTED),
    (
        re.compile(r"Unknown arguments?: |Invalid values:|Error: Session \S+ is already|Session ID \S+ already"),
        AgentTrouble.REFUSED,
    ),
)


def _parse_error_line(line: str) -> Sequence[AgentEvent]:
    said = line[:MOST_TEXT].strip()
    if found := _RETRYING.match(said):
        why = _failure(found[4])
        return (
            Retry(
                trouble=why.trouble,
                attempt=int(found[2]),
                most=int(found[3]),
                delay=float(found[1]),
                status=why.status,
                message=why.message,
                reset=why.reset,
            ),
        )
    for pattern, trouble in _LAST_WORDS:
        if pattern.match(said):
            return (AgentFailure(trouble=trouble, message=said),)
    return (RawLine(text=line),)


_OWN_ARGUMENTS = (
    *("--output-format", "-o", "--input-format", "--approval-mode", "--yolo", "-y", "--model", "-m", "--auth-type"),
    *("--max-session-turns", "--resume", "-r", "--continue", "-c", "--session-id", "--prompt", "-p", "--acp"),
    *("--prompt-interactive", "-i", "--experimental-acp", "--help", "-h", "--version", "-v"),
)


QWEN = CliAgent(
    name="qwen",
    title="Qwen Code",
    binary="qwen",
    install="npm install -g @qwen-code/qwen-code",
    tested=("0.24.4", "0.24.4"),
    arguments=_arguments,
    own_arguments=_OWN_ARGUMENTS,
    parse_line=_parse,
    environment=_environment,
    files=lambda order: {DEFAULTS: json.dumps(_SETTINGS)} if order.files_directory else {},
    login_variables=(
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
        "DASHSCOPE_API_KEY",
        "BAILIAN_CODING_PLAN_API_KEY",
        "QWEN_HOME",
        "QWEN_MODEL",
        "QWEN_RUNTIME_DIR",
    ),
    longest_quiet_answer=600.0,
    capabilities=Capabilities(preassigned_session=True, reset_time=True, turns=True, session_usage=True),
    login=Login(
        config_variable="QWEN_HOME",
        config_directory="~/.qwen",
        files=(
            "{config}/oauth_creds.json",
            "{config}/settings.json",
        ),  # the CLI writes both at login, and not before
        variables=("OPENAI_API_KEY", "DASHSCOPE_API_KEY", "BAILIAN_CODING_PLAN_API_KEY"),
        command="qwen",
    ),
    by_hand=("--resume", "{session}"),
    transcript=lambda session, config, _workspace: f"{config}/projects/*/chats/{session}.jsonl",
    reads_errors=True,
    longest_quiet_retry=80.0,
)
