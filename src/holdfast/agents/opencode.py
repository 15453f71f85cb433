"""opencode: `opencode run --format json`, the prompt on standard input.

Seen with 1.18.33:
- opencode has no final event. It succeeded if it exits with 0 and the last step of the model ended with "stop".
- With a spent plan, and while it waits for a Retry-After, opencode writes nothing to standard output. A tool is
  reported only when it has finished. `--print-logs` adds more on standard error: why it retries, and which tool it
  permits (which is when a tool begins). Lines about the small model, which writes the title of a session, are ignored.
- While opencode retries, it reports the end of a limit nowhere: neither `resets_at` nor Retry-After are in its output,
  in its logs (DEBUG included) or in its data directory. They are known only when it gives up with an `error` event.
  Otherwise Holdfast tries again with growing holds (`resume.default_hold`).
- OPENCODE_CONFIG_CONTENT is merged over the user's own configuration, key by key. If two permissions match, the later
  key decides, and that may be the user's. The rules of an agent profile come after all of those, so Holdfast has its
  own profile.
- A permission that would need a question is refused, and that ends the whole turn. So no permission may be "ask".
- The MCP servers that a repository's `opencode.json` names are started in every mode, even in `read`.
- opencode inserts a `$schema` into a repository's `opencode.json` that has none, even in `read`. Holdfast removes
  that text again.
- The number of retries cannot be set. The health service decides (core/health/diagnosis.py).
- opencode's login and all its sessions are in `$XDG_DATA_HOME/opencode`, so each account has its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.agents.common.cli_agent import (
    Capabilities,
    CliAgent,
    Login,
    allowed_commands,
    as_count,
    as_http_status,
    as_number,
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
    RawLine,
    Retry,
    SessionStarted,
    StepStarted,
    ToolFinished,
    ToolRefused,
    ToolStarted,
    Usage,
)
from holdfast.core.agents.limit_reset import parse_reset_time

PROVIDER, MODEL = "holdfast", "default"  # for an account with a `base_url`
KEY = "OPENAI_API_KEY"  # the variable with the key of such an account
_OF_LIMITS = frozenset({AgentTrouble.USAGE_LIMIT, AgentTrouble.RATE_LIMIT})
_LASTING = frozenset(
    {AgentTrouble.USAGE_LIMIT, AgentTrouble.BILLING, AgentTrouble.AUTH}
)  # it would retry for hours, in vain
CONTENT = "OPENCODE_CONFIG_CONTENT"  # a configuration in the environment: the user's, with ours merged over it
PROFILE = "holdfast"
_SCHEMA = (
    '\n  "$schema": "https://opencode.ai/config.json",'  # inserted after the first brace of a configuration without it
)
# An allow-list: a tool server, or a subagent with its own rules, could otherwise do anything.
_LOOKING: dict[str, object] = {
    "*": "deny",
    "read": {"*": "allow", "*.env": "deny", "*.env.*": "deny", "*.env.example": "allow"},
    **dict.fromkeys(("glob", "grep", "list", "lsp", "skill", "todowrite", "webfetch", "websearch"), "allow"),
}
_PERMISSIONS: dict[Permission, Mapping[str, object]] = {
    Permission.READ: _LOOKING,
    Permission.EDIT: {**_LOOKING, "edit": "allow"},
    Permission.FULL: {"*": "allow"},
}


# -- starting it -------------------------------------------------------------------------------------------------------


def _arguments(order: WorkOrder) -> Sequence[str]:
    return (
        "run",
        *("--format", "json"),
        *("--print-logs", "--log-level", "INFO"),
        *("--agent", PROFILE),
        *(("--model", model) if (model := _model(order)) else ()),
        *(("--session", order.session_id) if order.session_id is not None else ()),
    )


def _model(order: WorkOrder) -> str | None:
    """Return the model as `provider/model`. A model without a provider belongs to the account's own provider."""
    model = format_option(order, "model")
    if order.account.base_url and (model is None or "/" not in model):
        return f"{PROVIDER}/{model or MODEL}"
    return model


def _allowed(order: WorkOrder) -> Mapping[str, object]:
    """Return the permissions of single commands. If several patterns match a command, the last one decides."""
    commands = allowed_commands(order)
    rules = {pattern: "allow" for command in commands for pattern in (command, f"{command} *")}
    return {"bash": {"*": "deny", **rules}} if commands else {}


def _environment(order: WorkOrder) -> Mapping[str, str]:
    account = order.account
    permission = {**_PERMISSIONS[order_permission(order)], **_allowed(order)}
    config: dict[str, object] = {
        "autoupdate": False,
        "share": "disabled",
        "agent": {PROFILE: {"mode": "primary", "permission": permission}},
    }
    env = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}
    if account.base_url:
        provider, _, model = (_model(order) or "").partition("/")
        config |= {"provider": {provider: _provider(account.base_url, provider, model)}}
        if provider == PROVIDER:  # the small model writes the titles of sessions; other providers may have no login
            config |= {"small_model": f"{provider}/{model}"}
        env |= {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    if account.config_dir:
        env["XDG_DATA_HOME"] = account.config_dir
    users = parse_object(order.inherited_environment.get(CONTENT, "")) or {}
    return {**env, CONTENT: json.dumps(_merge_config(users, config))}


def _merge_config(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Merge one configuration over another, as opencode does: tables are joined, other values are replaced."""
    joined = dict(below)
    for key, value in above.items():
        under = joined.get(key)
        joined[key] = _merge_config(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return joined


def _provider(address: str, provider: str, model: str) -> Mapping[str, object]:
    """Return the configuration of a provider. The provider that Holdfast adds for an address uses OpenAI's protocol,
    any other its own."""
    if provider != PROVIDER:
        return {"options": {"baseURL": address}}
    return {
        "npm": "@ai-sdk/openai-compatible",
        "name": PROVIDER,
        "options": {"baseURL": address, "apiKey": f"{{env:{KEY}}}"},
        "models": {model: {}},
    }


# -- reading its output ------------------------------------------------------------------------------------------------


def _parse(line: str, stream: Stream) -> Sequence[AgentEvent]:
    if stream is Stream.ERR:
        return _parse_error_line(line) or (RawLine(text=line),)
    event = parse_object(line)
    if event is None:
        return (RawLine(text=line),)
    part = as_object(event.get("part"))
    match event.get("type"):
        case "step_start":
            return (SessionStarted(id=words(event.get("sessionID"))), StepStarted())
        case "text" | "reasoning" as kind:
            return (AgentText(text=words(part.get("text")), is_thought=kind == "reasoning"),)
        case "tool_use":
            return _tool(part)
        case "step_finish":
            return _step(part)
        case "error":
            session = words(event.get("sessionID"))
            failure = _failure(as_object(event.get("error")))
            return (SessionStarted(id=session), failure) if session else (failure,)
    return (RawLine(text=line),)


_NOT_PERMITTED = re.compile(r"The user (?:rejected permission to use|has specified a rule which prevents)")


def _tool(part: Mapping[str, Any]) -> Sequence[AgentEvent]:
    state, key, name = as_object(part.get("state")), words(part.get("callID")), words(part.get("tool"))
    given = as_object(state.get("input"))
    shown = next((words(given[field]) for field in ("command", "filePath", "pattern") if words(given.get(field))), "")
    started = ToolStarted(id=key, name=name, input=shown or format_one_line(given))
    status = state.get("status")
    if status not in ("completed", "error"):
        return (started,)
    output = words(state.get("output")) or words(state.get("error"))
    finished = ToolFinished(id=key, name=name, ok=status == "completed", output=output)
    if status == "error" and _NOT_PERMITTED.match(words(state.get("error"))):
        return (started, finished, ToolRefused(name=name, input=started.input))
    return (started, finished)


def _step(part: Mapping[str, Any]) -> Sequence[AgentEvent]:
    tokens = as_object(part.get("tokens"))
    cache = as_object(tokens.get("cache"))
    cached, reasoning = as_count(cache.get("read")), as_count(tokens.get("reasoning"))
    usage = Usage(
        input=as_count(tokens.get("input")) + cached + as_count(cache.get("write")),
        output=as_count(tokens.get("output")) + reasoning,
        cached=cached,
        reasoning=reasoning,
        cost_usd=as_number(part.get("cost")) or None,  # it reports 0 for a model without a known price
    )
    reason = words(part.get("reason"))
    if reason == "stop":
        return (usage, AgentResult(ok=True))
    if reason in ("length", "content-filter", "error"):
        return (usage, AgentResult(ok=False, text=f"the model's last step ended with {reason!r}"))
    return (usage,)  # after "tool-calls" it continues, and after "unknown" it retries without end


# -- errors ------------------------------------------------------------------------------------------------------------

_BY_NAME = {
    "ContextOverflowError": AgentTrouble.CONTEXT,
    "ProviderAuthError": AgentTrouble.AUTH,
    "MessageAbortedError": AgentTrouble.INTERRUPTED,
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FIELD = re.compile(r'([\w.]{1,64})=("(?:[^"\\]|\\.)*"|\S*)')
_CLASS = re.compile(r"^(\w{1,64}): ")
LONGEST_ERROR = 64 * 1024


def _failure(error: Mapping[str, Any]) -> AgentFailure:
    data, name = as_object(error.get("data")), words(error.get("name"))
    message, status = words(data.get("message")), as_http_status(data.get("statusCode"))
    body, headers = words(data.get("responseBody")), as_object(data.get("responseHeaders"))
    if name == "NotFoundError" and message.startswith("Session not found"):
        trouble = AgentTrouble.SESSION_LOST
    elif data.get("ref") is not None:  # "Unexpected server error": an error of its own server, described in its log
        trouble = AgentTrouble.OTHER
    else:
        trouble = _BY_NAME.get(name) or _provider_trouble(status, message, body)
    after = words(headers.get("retry-after"))
    hints = (body if "reset" in body else "", f"retry-after: {after}" if after else "", message)
    return AgentFailure(
        trouble=trouble,
        message=message or name,
        status=status,
        reset=next(filter(None, hints), None) if trouble in _OF_LIMITS else None,
    )


def _provider_trouble(status: int | None, message: str, body: str) -> AgentTrouble:
    """Return the trouble of a provider's error. Its own answer (`body`) is more specific than the CLI's text."""
    answer = parse_object(body) or {}
    said = as_object(answer.get("error")) or answer
    text = f"{message}\n{words(said.get('message'))}"
    found = [classify_error(status=status, code=words(said.get(field)), text=text) for field in ("code", "type")]
    lasting = (one for one in found if one in _LASTING or one is AgentTrouble.CONTEXT)
    return next(lasting, found[0])


def _parse_error_line(line: str) -> Sequence[AgentEvent]:
    """Return the events of opencode's log lines (`key=value …`), or of the last lines of a process that could not
    start."""
    line = _COLOUR.sub("", line[:LONGEST_ERROR])
    if not line.startswith("timestamp="):
        return _last_words(line)
    said = {key: _unquoted(value) for key, value in _FIELD.findall(line)}
    if said.get("small") == "true":
        return ()
    match said.get("message"):
        case "created" if said.get("parentID") == "undefined" and said.get("id", "").startswith("ses_"):
            return (SessionStarted(id=said["id"]),)
        case "loop":
            return (SessionStarted(id=said.get("session.id", "")),)
        case "evaluated" if said.get("action.action") == "allow":
            return (ToolStarted(id="", name=said.get("permission", ""), input=said.get("pattern", "")),)
        case "stream":
            return (StepStarted(),)
        case "stream error":
            return (_parse_stream_error(said),)
        case "failed" if said.get("error", "").startswith("Provider"):
            return (AgentFailure(trouble=AgentTrouble.REFUSED, message=said["error"]),)
    return ()


def _last_words(line: str) -> Sequence[AgentEvent]:
    if not line.startswith("Error: ") or "unexpected error" in line.lower():
        return ()  # a crash: simultaneous first starts in a new data directory disturb each other
    lost = "session not found" in line.lower()
    return (
        AgentFailure(
            trouble=AgentTrouble.SESSION_LOST if lost else AgentTrouble.REFUSED, message=line[len("Error: ") :]
        ),
    )


def _parse_stream_error(said: Mapping[str, str]) -> AgentEvent:
    """Return the event of a stream error. The CLI does not announce it, but it always retries, with growing delays."""
    message = _CLASS.sub("", said.get("error.error") or said.get("error.error.message", ""))
    trouble = classify_error(code=said.get("error.error.code") or said.get("error.error.type", ""), text=message)
    reset = _resolve_reset(message, said.get("timestamp", "")) if trouble in _OF_LIMITS else None
    if trouble in _LASTING:
        return AgentFailure(trouble=trouble, message=message, reset=reset)
    return Retry(trouble=trouble, message=message, reset=reset)


def _resolve_reset(message: str, at: str) -> str | float:
    """Return the reset time relative to the time of the log line, because the line may be read much later."""
    try:
        said_at = datetime.fromisoformat(at).timestamp()
    except ValueError:
        return message
    return parse_reset_time(message, said_at) or message


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except ValueError:
        return value.strip('"')


_OWN_ARGUMENTS = (
    *("--format", "--print-logs", "--log-level", "--agent", "--model", "-m", "--session", "-s", "--continue", "-c"),
    *("--fork", "--share", "--command", "--attach", "--port", "--dir", "--help", "-h", "--version", "-v"),
    *("--dangerously-skip-permissions", "--auto", "--interactive", "-i"),
)


OPENCODE = CliAgent(
    name="opencode",
    title="opencode",
    binary="opencode",
    install="npm install -g opencode-ai",
    tested=("1.18.33", "1.18.33"),
    arguments=_arguments,
    own_arguments=_OWN_ARGUMENTS,
    parse_line=_parse,
    environment=_environment,
    login_variables=(
        *("OPENCODE_API_KEY", "OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR", CONTENT, "OPENCODE_DISABLE_*"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
        *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"),
        *("GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"),
    ),
    longest_quiet_answer=600.0,
    capabilities=Capabilities(cost=True),  # a limit that it retries has no reset time
    login=Login(
        config_variable="XDG_DATA_HOME",
        config_directory="~/.local/share",
        files=("{config}/opencode/auth.json",),
        variables=("OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
        command="opencode auth login",
    ),
    by_hand=("--session", "{session}"),
    own_edits=dict.fromkeys(("opencode.json", "opencode.jsonc"), _SCHEMA),
    transcript=lambda _session, config, _workspace: f"{config}/opencode/opencode.db",
    reads_errors=True,
)
