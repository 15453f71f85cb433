"""OpenAI's Codex CLI: `codex exec --json`, the prompt on standard input.

Seen with 0.166.0:
- `exec resume` has no option --sandbox. The mode is passed by `-c`, which both commands accept.
- Codex's sandbox never lets a command write to a git directory, even if that directory is configured as writable. So
  in the modes `read` and `edit` the agent cannot commit. Holdfast commits the changes that it leaves.
- Codex's sandbox for `edit` allows writing in all of /tmp and in TMPDIR. Holdfast excludes /tmp and gives each run in
  `edit` a TMPDIR of its own, in the run's directory. An account's own TMPDIR replaces it.
- Without user namespaces its sandbox cannot start: every command fails, and the turn still completes.
- The retries of its built-in provider cannot be set ("Built-in providers cannot be overridden"), only those of an
  account with a `base_url`. For the built-in provider the health service decides (core/health/diagnosis.py).
- Codex trusts a repository without a trust setting as soon as it may write there. It records that trust in the user's
  own configuration permanently. It also starts the programs (MCP servers) that the repository's `.codex` names,
  outside its sandbox. So each run sets the trust: the workspace is trusted in `full` and untrusted in `edit`,
  whatever the user's configuration has. Untrusted, Codex does not read AGENTS.md by itself, so the prompt asks for
  it.
- Codex reports the end of a limit as a time of day without seconds. Holdfast waits for the end of that minute.
- The usage of a turn is that of the whole thread, including earlier processes.
- Codex reports tokens only at the end of a turn. A run that was killed earlier has none, and `why` prints that.

Errors are texts in its `error` and `turn.failed` events, and the last lines on standard error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.agents.common.cli_agent import (
    Capabilities,
    CliAgent,
    Login,
    as_count,
    as_object,
    as_objects,
    format_one_line,
    format_option,
    full_prompt,
    order_permission,
    parse_object,
    permission_of,
    words,
)
from holdfast.agents.common.provider_errors import classify_error
from holdfast.agents.port import Account, HostFacts, Permission, Stream, WorkOrder
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
    ToolRefused,
    ToolStarted,
    Usage,
)

_OF_LIMITS = frozenset({AgentTrouble.USAGE_LIMIT, AgentTrouble.RATE_LIMIT})
# "Reconnecting... 2/5 (why)", "Reconnecting... waiting for network (why)", "stream error: why; retrying 2/5 in …"
_TRIES_AGAIN = re.compile(r"^(?:reconnecting|retrying)\b|^stream error\b.*; retrying\b", re.IGNORECASE | re.DOTALL)
_COUNT = re.compile(r"\b(\d{1,4})/(\d{1,4})\b")
_STATUS = re.compile(r"\bstatus:? (\d{3})\b")
_ADDRESS = re.compile(r"\b(?:https?|wss?)://\S+")
_SPENT = re.compile(r"chatgpt plan, upgrade|spend cap", re.IGNORECASE)
_INTERRUPTED = re.compile(r"^(?:interrupted\b|turn (?:was )?(?:aborted|interrupted)\b)", re.IGNORECASE)
_BUDGET = re.compile(r"token budget exhausted", re.IGNORECASE)
_UNFIT = re.compile(
    r"incomplete response returned, reason: content_filter", re.IGNORECASE
)  # not a cut stream but a refusal
_LOGGED_OUT = re.compile(
    r"could not be refreshed|sign(?:ed)? (?:in|out)\b|missing environment variable|not logged in", re.IGNORECASE
)
_LOST = re.compile(r"^error\b.*\b(?:no rollout found for|thread not found)\b", re.IGNORECASE)
_NO_TOOLS = re.compile(r"^required MCP servers? failed", re.IGNORECASE)  # the rest of the text comes from that server
_REFUSED = re.compile(
    r"^error: |^Error: error loading |^Not inside a trusted directory"
    r"|^Error (?:loading|finding|parsing) |^Error: (?:Model provider|failed to load)"
)


_OWN = (
    (_SPENT, AgentTrouble.BILLING),
    (_INTERRUPTED, AgentTrouble.INTERRUPTED),
    (_BUDGET, AgentTrouble.BUDGET),
    (_UNFIT, AgentTrouble.OTHER),
    (_NO_TOOLS, AgentTrouble.OTHER),
)


def find_retry(message: str) -> Retry | None:
    if not _TRIES_AGAIN.search(message[:4096]):
        return None
    why = _in_brackets(message)
    trouble, status = _trouble(why)
    if "waiting for network" in message[:80].lower():
        trouble = AgentTrouble.NETWORK
    count = _COUNT.search(message[:80])
    return Retry(
        trouble=trouble,
        attempt=int(count.group(1)) if count is not None else None,
        most=int(count.group(2)) if count is not None else None,
        status=status,
        message=_plain(why),
        reset=why if trouble in _OF_LIMITS else None,
    )


def _in_brackets(message: str) -> str:
    """Return the text between the first bracket and the one at the end, else the whole message.

    No regular expression is used, because the message may be long.
    """
    _, opened, why = message.rstrip().partition("(")
    return why[:-1] if opened and why.endswith(")") else message


def build_failure(message: str) -> AgentFailure:
    trouble, status = _trouble(message)
    return AgentFailure(
        trouble=trouble,
        message=_plain(message),
        status=status,
        reset=_plain(message) if trouble in _OF_LIMITS else None,
    )


def _trouble(message: str) -> tuple[AgentTrouble, int | None]:
    error = _provider_error(message)
    said = _ADDRESS.sub("", _plain(message))
    for pattern, trouble in _OWN:
        if pattern.search(said):
            return trouble, None
    found = _STATUS.search(said)
    status = int(found.group(1)) if found is not None else None
    code = words(error.get("code")) or words(error.get("type"))
    trouble = classify_error(status=status, code=code, text=said)
    return (AgentTrouble.AUTH if trouble is AgentTrouble.OTHER and _LOGGED_OUT.search(said) else trouble), status


def _plain(message: str) -> str:
    """Return the text of the provider's own error if the message is nothing but that error, else the message."""
    return words(_provider_error(message).get("message")) or message


def _provider_error(message: str) -> dict[str, Any]:
    return as_object((parse_object(message) or {}).get("error"))


def parse_error_line(line: str) -> Sequence[AgentEvent]:
    """Return the events of a line of standard error.

    Standard error is a log, except for the last lines of a process that could not start.
    """
    if _LOST.search(line):
        return (AgentFailure(trouble=AgentTrouble.SESSION_LOST, message=line),)
    if _REFUSED.search(line):
        return (AgentFailure(trouble=AgentTrouble.REFUSED, message=line),)
    return (RawLine(text=line),)


def find_sandbox_failure(output: str) -> AgentFailure | None:
    """Return a failure if the only output of a command is the error of a sandbox that could not start."""
    said = output.strip()
    if not said.startswith("bwrap: ") or said.count("\n") > 2:
        return None
    way_out = "its sandbox needs user namespaces; `--permission full` needs none, if this place itself is isolated"
    return AgentFailure(trouble=AgentTrouble.REFUSED, message=f"{said[:200]} ({way_out})", is_fatal=False)


PROVIDER = "holdfast"  # name of the provider of an account with a `base_url`, in Codex's configuration
RETRIES = 1  # per request and per stream, so at most four requests: enough for a short failure; we handle longer ones
IDLE_MS = 240_000  # the longest time without an event in a stream
KEYS = ("CODEX_API_KEY", "OPENAI_API_KEY")
TEMPORARY = "tmp"  # directory for temporary files, in the run's own directory
NO_COMMITS = (
    "\n\n(Your sandbox does not let you write the git directory, so do not try to commit: "
    "whatever you leave in this directory is committed for you.)"
)
READ_RULES = "\n\n(If this directory has an AGENTS.md, read it first, and do as it says.)"
_QUIET = ("check_for_update_on_startup=false", "analytics.enabled=false", "features.plugins=false")
_TRUST = {Permission.EDIT: "untrusted", Permission.FULL: "trusted"}
_SANDBOX = {Permission.READ: "read-only", Permission.EDIT: "workspace-write"}


# -- starting it -------------------------------------------------------------------------------------------------------


def _arguments(order: WorkOrder) -> Sequence[str]:
    resume = ("resume", order.session_id) if order.session_id is not None else ()
    settings = [*_QUIET]
    mode = order_permission(order)
    if mode is not Permission.FULL:
        settings += [f"sandbox_mode={_quoted(_SANDBOX[mode])}", 'approval_policy="never"']
    if mode is Permission.EDIT:
        settings.append("sandbox_workspace_write.exclude_slash_tmp=true")
    if order.directory.isprintable() and order.directory and mode in _TRUST:
        settings.append(f"projects={{{_quoted(order.directory)}={{trust_level={_quoted(_TRUST[mode])}}}}}")
    if order.account.base_url:
        settings += [f"model_provider={_quoted(PROVIDER)}", f"model_providers.{PROVIDER}={_provider(order.account)}"]
    return (
        "exec",
        *resume,
        "--json",
        "--skip-git-repo-check",
        *(("--dangerously-bypass-approvals-and-sandbox",) if mode is Permission.FULL else ()),
        *(word for setting in settings for word in ("-c", setting)),
        *(("-m", model) if (model := format_option(order, "model")) else ()),
        "-",
    )


def _provider(account: Account) -> str:
    """Return the provider of an account as an inline table of TOML."""
    key = next((name for name in KEYS if name in account.env), KEYS[-1])
    fields = {
        "name": _quoted(PROVIDER),
        "base_url": _quoted(account.base_url or ""),
        "env_key": _quoted(key),
        "wire_api": '"responses"',
        "request_max_retries": str(RETRIES),
        "stream_max_retries": str(RETRIES),
        "stream_idle_timeout_ms": str(IDLE_MS),
    }
    return "{" + ",".join(f"{name}={value}" for name, value in fields.items()) + "}"


def _quoted(text: str) -> str:
    """Return a string of TOML. TOML reads the escapes of JSON in the same way, except for surrogate pairs."""
    return json.dumps(text, ensure_ascii=False)


def _environment(order: WorkOrder) -> Mapping[str, str]:
    place = {"CODEX_HOME": order.account.config_dir} if order.account.config_dir else {}
    return place | ({"TMPDIR": os.path.join(order.files_directory, TEMPORARY)} if _has_own_tmpdir(order) else {})


def _files(order: WorkOrder) -> Mapping[str, str]:
    return {f"{TEMPORARY}/.keep": ""} if _has_own_tmpdir(order) else {}


def _has_own_tmpdir(order: WorkOrder) -> bool:
    return order_permission(order) is Permission.EDIT and bool(order.files_directory)


def _standard_input(order: WorkOrder) -> str:
    return full_prompt(order) + (READ_RULES + NO_COMMITS if order_permission(order) is Permission.EDIT else "")


def _refusal(options: Mapping[str, object], surroundings: HostFacts) -> str | None:
    mode = permission_of(options)
    if mode is Permission.FULL or surroundings.has_namespaces:
        return None
    return (
        f"Codex cannot keep its commands to what permission `{mode}` allows here, because its sandbox needs user "
        "namespaces, and there are none (in a container, or switched off). Choose `--permission full` if this place "
        "is isolated well enough, or run it elsewhere"
    )


# -- reading its output ------------------------------------------------------------------------------------------------


def _parse(line: str, stream: Stream) -> Sequence[AgentEvent]:
    if stream is Stream.ERR:
        return parse_error_line(line)
    event = parse_object(line)
    if event is None:
        return (RawLine(text=line),)
    match event.get("type"):
        case "thread.started":
            return (SessionStarted(id=words(event.get("thread_id"))),)
        case "item.started" | "item.updated" | "item.completed" as kind:
            return _item(kind, as_object(event.get("item"))) or (RawLine(text=line),)
        case "turn.completed":
            return (*_usage(event.get("usage")), AgentResult(ok=True))
        case "turn.failed":
            return (build_failure(words(as_object(event.get("error")).get("message"))),)
        case "error":
            message = words(event.get("message"))
            return (find_retry(message) or build_failure(message),)
    return (RawLine(text=line),)


def _usage(value: object) -> Sequence[Usage]:
    if not isinstance(value, dict):
        return ()
    return (
        Usage(
            input=as_count(value.get("input_tokens")),
            output=as_count(value.get("output_tokens")),
            cached=as_count(value.get("cached_input_tokens")),
            reasoning=as_count(value.get("reasoning_output_tokens")),
            is_total=True,
        ),
    )


def _item(kind: str, item: Mapping[str, Any]) -> Sequence[AgentEvent]:
    match item.get("type"):
        case "agent_message" if kind == "item.completed":
            return (AgentText(text=words(item.get("text"))),)
        case "reasoning" if kind == "item.completed":
            return (AgentText(text=words(item.get("text")), is_thought=True),)
        case "todo_list":
            return (AgentText(text="\n".join(map(_step, as_objects(item.get("items")))), is_thought=True),)
        case "error":  # a warning: turns with such an item succeed
            return (AgentFailure(trouble=AgentTrouble.OTHER, message=words(item.get("message")), is_fatal=False),)
        case "agent_message" | "reasoning" | None:
            return ()
        case _:
            return _tool(kind, item)


def _step(step: Mapping[str, Any]) -> str:
    return f"[{'x' if step.get('completed') else ' '}] {words(step.get('text'))}"


def _tool(kind: str, item: Mapping[str, Any]) -> Sequence[AgentEvent]:
    """Return the events of a tool: a command, a change of files, an MCP call, a search, or a kind not known yet."""
    key, (name, given, output) = words(item.get("id")), _tool_words(item)
    if kind == "item.started":
        return (ToolStarted(id=key, name=name, input=given),)
    if kind == "item.updated":
        return ()
    status, code = item.get("status"), item.get("exit_code")
    ok = None if status is None else status == "completed" and code in (None, 0)
    finished = ToolFinished(id=key, name=name, ok=ok, output=output)
    if status == "declined":
        return (finished, ToolRefused(name=name, input=given))
    hindrance = find_sandbox_failure(output) if item.get("type") == "command_execution" and ok is False else None
    return (finished,) if hindrance is None else (finished, hindrance)


def _change(change: Mapping[str, Any]) -> str:
    return f"{words(change.get('kind'))} {words(change.get('path'))}"


def _tool_words(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the name, the input and the output of a tool."""
    match item.get("type"):
        case "command_execution":
            return "shell", words(item.get("command")), words(item.get("aggregated_output"))
        case "file_change":
            changes = ", ".join(
                f"{words(one.get('kind'))} {words(one.get('path'))}" for one in as_objects(item.get("changes"))
            )
            return "edit", changes, changes
        case "mcp_tool_call":
            name = f"{words(item.get('server'))}.{words(item.get('tool'))}"
            gave = as_object(item.get("error")).get("message") or item.get("result") or ""
            return name, format_one_line(item.get("arguments")), format_one_line(gave)
        case "web_search":
            return "web_search", words(item.get("query")), words(item.get("query"))
        case kind:
            rest = {key: value for key, value in item.items() if key not in ("id", "type", "status")}
            return words(kind), format_one_line(rest), format_one_line(rest)


# `key=` is a setting that -c would set. `permissions.allow` needs no argument: every command runs in the sandbox.
_OWN_ARGUMENTS = (
    *("--json", "--experimental-json", "--sandbox", "-s", "--ask-for-approval", "-a", "--full-auto", "--yolo"),
    *("--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "--model", "-m", "--cd", "-C", "--last"),
    *("--ephemeral", "--profile", "-p", "--oss", "--help", "-h", "--version", "-V"),
    *("sandbox_mode=", "approval_policy=", "projects=", "sandbox_workspace_write=", "model=", "model_provider="),
    *("model_providers=", "profile=", "permissions=", "default_permissions="),
)


CODEX = CliAgent(
    name="codex",
    provider_name="openai",
    title="Codex",
    binary="codex",
    install="npm install -g @openai/codex",
    tested=("0.166.0", "0.166.0"),
    arguments=_arguments,
    parse_line=_parse,
    environment=_environment,
    files=_files,
    standard_input=_standard_input,
    refusal=_refusal,
    own_arguments=_OWN_ARGUMENTS,
    login_variables=("CODEX_HOME", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "CODEX_CA_CERTIFICATE", "OPENAI_API_KEY"),
    longest_quiet_answer=600.0,
    capabilities=Capabilities(reset_time=True, session_usage=True),
    login=Login(
        config_variable="CODEX_HOME",
        config_directory="~/.codex",
        files=("{config}/auth.json",),
        variables=("CODEX_API_KEY",),  # its built-in provider does not read OPENAI_API_KEY
        keys_of_address=KEYS,
        command="codex login",
    ),
    by_hand=("resume", "{session}"),
    transcript=lambda session, config, _workspace: f"{config}/sessions/*/*/*/rollout-*-{session}.jsonl",
    reads_errors=True,
)
