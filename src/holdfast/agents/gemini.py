"""Google's Gemini CLI: `gemini --output-format stream-json`, the prompt on standard input.

Seen with 0.61.0:
- `read` is the CLI's plan mode. In `edit` the agent changes files, and commands are not even offered to the model.
  `full` approves everything. The CLI accepts root. `--skip-trust` makes it read the repository's own `.gemini`
  settings.
- If the CLI is killed during a tool call, the continued session lacks that call but has everything before it.
- The CLI's exit code is the HTTP status of an error modulo 256, and 0 after a stream that was cut off. So only its
  output counts. Its `result` is also "success" after it stopped a loop, after its limit of turns, and when the
  conversation does not fit. In that last case it sent no request to a model, and `stats.models` is empty.
- The CLI's retries (10, up to four minutes) appear on standard error only. The retries and the limit of turns can
  only be set in its settings. It reads system settings only from directories of root, so a run cannot bring its own.
  The user's settings are not changed. The health service decides about retries (core/health/diagnosis.py).
- GEMINI_CLI_HOME replaces the home directory, not `~/.gemini`.
- A custom address (GOOGLE_GEMINI_BASE_URL) needs `security.auth.selectedType` in the settings. Without it, the CLI
  chooses a method ("gateway") that it then rejects as invalid. So such an account has a configuration directory.
- Error reports, with the conversation, go to the directory for temporary files, like the files of its tools.
"""

from __future__ import annotations

import json
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
    as_objects,
    format_option,
    format_tool_input,
    order_permission,
    parse_object,
    words,
)
from holdfast.agents.common.provider_errors import MOST_TEXT, classify_error
from holdfast.agents.port import Permission, Stream, WorkOrder
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

ATTEMPTS = 2  # attempts per request, if Holdfast writes the settings
_MODES = {Permission.READ: "plan", Permission.EDIT: "auto_edit", Permission.FULL: "yolo"}
_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"enableAutoUpdate": False, "maxAttempts": ATTEMPTS},
    "privacy": {"usageStatisticsEnabled": False},
}
_OF_LIMITS = frozenset({AgentTrouble.USAGE_LIMIT, AgentTrouble.RATE_LIMIT})


# -- starting it -------------------------------------------------------------------------------------------------------


def _arguments(order: WorkOrder) -> Sequence[str]:
    session = ("--resume", order.session_id) if order.session_id is not None else ("--session-id", order.new_session)
    return (
        "--output-format",
        "stream-json",
        "--skip-trust",  # it does not start in an untrusted directory, and a worktree is always new
        "--approval-mode",
        _MODES[order_permission(order)],
        *(f"--allowed-tools=run_shell_command({command})" for command in allowed_commands(order)),
        *(("-m", model) if (model := format_option(order, "model")) else ()),
        *session,
    )


def _environment(order: WorkOrder) -> Mapping[str, str]:
    account = order.account
    return {
        "NO_BROWSER": "true",  # an expired login is then an error and does not open a browser
        **({"GEMINI_CLI_HOME": account.config_dir} if account.config_dir else {}),
        **({"GOOGLE_GEMINI_BASE_URL": account.base_url} if account.base_url else {}),
    }


# -- reading its output ------------------------------------------------------------------------------------------------


def _parse(line: str, stream: Stream) -> Sequence[AgentEvent]:
    if stream is Stream.ERR:
        return _parse_error_line(line)
    event = parse_object(line)
    if event is None:
        return (RawLine(text=line),)
    match event.get("type"):
        case "init":
            return (SessionStarted(id=words(event.get("session_id")), model=words(event.get("model"))),)
        case "message" if event.get("role") == "assistant":
            return (AgentText(text=words(event.get("content")), is_delta=event.get("delta") is True),)
        case "message":
            return ()  # the prompt
        case "tool_use":
            name, given = words(event.get("tool_name")), format_tool_input(event.get("parameters"))
            return (ToolStarted(id=words(event.get("tool_id")), name=name, input=given),)
        case "tool_result":
            return (_finished(event),)
        case "error":
            return (_notice(words(event.get("severity")), words(event.get("message"))),)
        case "result":
            return _result(event)
    return (RawLine(text=line),)


def _finished(event: Mapping[str, Any]) -> ToolFinished:
    said = words(event.get("output")) or words(as_object(event.get("error")).get("message"))
    return ToolFinished(id=words(event.get("tool_id")), ok=event.get("status") == "success", output=said)


def _notice(severity: str, message: str) -> AgentFailure:
    """Return the failure of an `error` event: one that ends the conversation, or a warning.

    An event that ends the conversation may be followed by a `result` of success.
    """
    if severity == "error":
        trouble = AgentTrouble.TURN_LIMIT if "session turns" in message else classify_error(text=message)
        return AgentFailure(trouble=trouble, message=message, outlasts_success=True)
    if message.startswith("Loop detected"):
        return AgentFailure(trouble=AgentTrouble.LOOP, message=message, outlasts_success=True)
    return AgentFailure(trouble=AgentTrouble.OTHER, message=message, is_fatal=False)


def _result(event: Mapping[str, Any]) -> Sequence[AgentEvent]:
    stats = as_object(event.get("stats"))
    usage = Usage(
        input=as_count(stats.get("input_tokens")),
        output=as_count(stats.get("output_tokens")),
        cached=as_count(stats.get("cached")),
        is_total=True,
    )
    if event.get("status") != "success":
        error = as_object(event.get("error"))
        failed = _failure(words(error.get("type")), words(error.get("message"))) if error else None
        return (usage, *((failed,) if failed is not None else ()), AgentResult(ok=False))
    if stats.get("models") == {} and not (usage.input or usage.output):
        nothing = "the conversation does not fit into the model's context, so no model was asked"
        return (usage, AgentFailure(trouble=AgentTrouble.CONTEXT, message=nothing), AgentResult(ok=False))
    return (usage, AgentResult(ok=True))


# -- errors ------------------------------------------------------------------------------------------------------------

_BY_TYPE = {
    "FatalTurnLimitedError": AgentTrouble.TURN_LIMIT,
    "FatalAuthenticationError": AgentTrouble.AUTH,
    "ValidationRequiredError": AgentTrouble.AUTH,
    "FatalCancellationError": AgentTrouble.INTERRUPTED,
    "FatalToolExecutionError": AgentTrouble.OTHER,
    "FatalConfigError": AgentTrouble.REFUSED,
    "FatalInputError": AgentTrouble.REFUSED,
    "FatalSandboxError": AgentTrouble.REFUSED,
    "FatalUntrustedWorkspaceError": AgentTrouble.REFUSED,
}
# Texts without a known type. The rest of a tool's error is the tool's own text, and is not interpreted.
_BY_START = {
    "Error executing tool ": AgentTrouble.OTHER,
    "Reached max session turns": AgentTrouble.TURN_LIMIT,
    "Operation cancelled": AgentTrouble.INTERRUPTED,
}
_WRAPPED = re.compile(r"\[API Error: (.*)\](.*)", re.DOTALL)
_STATUS_WORD = re.compile(r"\(Status: (\w+)\)\s*$")
# Google's only text for any 429, sometimes followed by the quota. "limit: 0" is a plan without that quota.
_QUOTA = re.compile(r"exceeded your current quota|quota exceeded|resource has been exhausted", re.IGNORECASE)
_NO_QUOTA = re.compile(r"limit:\s*0(?!\d|\.\d)", re.IGNORECASE)
_BY_DAY = re.compile(r"per[ _]?day|daily", re.IGNORECASE)


def _failure(kind: str, message: str) -> AgentFailure:
    trouble, status, said = _trouble(kind, message)
    return AgentFailure(trouble=trouble, message=said, status=status, reset=said if trouble in _OF_LIMITS else None)


def _trouble(kind: str, message: str) -> tuple[AgentTrouble, int | None, str]:
    """Return the trouble, the HTTP status and the unwrapped text of an error, from its type and text."""
    named = _BY_TYPE.get(kind) or next((found for start, found in _BY_START.items() if message.startswith(start)), None)
    if named is not None:
        return named, None, message
    wrapped = _WRAPPED.fullmatch(message[:MOST_TEXT].strip())
    said = wrapped[1] if wrapped is not None else message
    status = 429 if wrapped is not None and wrapped[2].strip() else None  # the CLI adds advice only to this status
    error = as_object((parse_object(said) or {}).get("error"))
    word = _STATUS_WORD.search(said[-80:])
    code = words(error.get("status")) or (word[1] if word is not None else "")
    for detail in as_objects(error.get("details")):
        code = words(detail.get("reason")) or code
    status = as_http_status(error.get("code")) or status
    said = words(error.get("message")) or said
    if status in (None, 429) and _QUOTA.search(said):
        return _classify_quota(said), 429, said
    return classify_error(status=status, code=code, text=said), status, said


def _classify_quota(said: str) -> AgentTrouble:
    if _NO_QUOTA.search(said):
        return AgentTrouble.BILLING
    return AgentTrouble.USAGE_LIMIT if _BY_DAY.search(said) else AgentTrouble.RATE_LIMIT


# -- standard error: a log with its retries, and the last lines of a process that could not start ----------------------

_ATTEMPT = re.compile(
    r"Attempt (\d{1,4}) failed(?: with status (\d{3})| with (?:(429)|5xx) error)?"
    r"(?:[^.:]{0,60}\. Retrying with backoff\.\.\. *|: )(?:\w*Error: )?(.*)",
    re.DOTALL,
)
_DELAY = re.compile(r"\. Retrying after (\d{1,9})ms\.\.\.\s*$|\. Max attempts reached\s*$")
_LAST_WORDS: tuple[tuple[re.Pattern[str], AgentTrouble], ...] = (
    (re.compile(r"Error resuming session\b"), AgentTrouble.SESSION_LOST),
    (re.compile(r"Reached max session turns\b"), AgentTrouble.TURN_LIMIT),
    (
        re.compile(
            r"Invalid auth method selected|Please set an Auth method|When using (?:Gemini API|Vertex AI), you must"
            r"|The (?:enforced authentication type|auth type '\S+' is enforced)|Manual authorization is required"
            r"|Authentication consent could not|Failed to (?:authenticate|login|log in)\b"
        ),
        AgentTrouble.AUTH,
    ),
    (
        re.compile(
            r"Error starting session\b|Gemini CLI is not running in a trusted directory|No input provided via stdin"
            r"|Unknown arguments?: |Invalid values:|Error in \S+settings\.json: "
            r"|Cannot use both |Approval mode \S+ (?:is|cannot)|YOLO mode is disabled"
        ),
        AgentTrouble.REFUSED,
    ),
)
_HINTS = {
    "Invalid auth method selected.": " (An account with a `base_url` needs a `config_dir`, and in its "
    '.gemini/settings.json {"security": {"auth": {"selectedType": "gemini-api-key"}}}.)'
}
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


def _parse_error_line(line: str) -> Sequence[AgentEvent]:
    said = _COLOURS.sub("", line[:MOST_TEXT]).strip()
    if found := _ATTEMPT.match(said):
        return (_retry(found),)
    for pattern, trouble in _LAST_WORDS:
        if pattern.match(said):
            return (AgentFailure(trouble=trouble, message=said + _HINTS.get(said, "")),)
    return (RawLine(text=line),)


def _retry(found: re.Match[str]) -> Retry:
    delay = _DELAY.search(found[4])
    why = found[4][: delay.start()] if delay is not None else found[4]
    trouble, status, said = _trouble("", why)
    told = as_http_status(found[2]) or as_http_status(found[3])
    if told is not None and told != status:
        status, trouble = told, classify_error(status=told, text=said)
    return Retry(
        trouble=trouble,
        attempt=int(found[1]),
        delay=int(delay[1]) / 1000 if delay is not None and delay[1] else None,
        status=status,
        message=said,
        reset=said if trouble in _OF_LIMITS else None,
    )


_OWN_ARGUMENTS = (
    *("--output-format", "-o", "--skip-trust", "--approval-mode", "--yolo", "-y", "--model", "-m", "--resume", "-r"),
    *("--session-id", "--prompt", "-p", "--prompt-interactive", "-i", "--list-sessions", "--delete-session", "--acp"),
    *("--experimental-acp", "--worktree", "-w", "--help", "-h", "--version", "-v"),
)


GEMINI = CliAgent(
    name="gemini",
    provider_name="google",
    title="Gemini CLI",
    binary="gemini",
    install="npm install -g @google/gemini-cli",
    tested=("0.61.0", "0.61.0"),
    arguments=_arguments,
    own_arguments=_OWN_ARGUMENTS,
    parse_line=_parse,
    environment=_environment,
    login_variables=(
        "GEMINI_API_KEY",
        "GEMINI_API_KEY_AUTH_MECHANISM",
        "GEMINI_CLI_HOME",
        "GEMINI_MODEL",
        "GOOGLE_API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_*",
        "GOOGLE_GENAI_*",
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_VERTEX_BASE_URL",
    ),
    capabilities=Capabilities(preassigned_session=True, reset_time=True),
    login=Login(
        config_variable="GEMINI_CLI_HOME",
        config_directory="~",
        files=("{config}/.gemini/oauth_creds.json", "{config}/.gemini/gemini-credentials.json"),
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
        command="gemini",
    ),
    by_hand=("--resume", "{session}"),
    transcript=lambda session, config, _workspace: f"{config}/.gemini/tmp/*/chats/session-*-{session[:8]}.jsonl",
    reads_errors=True,
    fresh_config={".gemini/settings.json": json.dumps(_SETTINGS)},
)
