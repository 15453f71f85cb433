"""aider: plain text, and exit code 0 whatever happens.

Seen with 0.86.2:
- Success is its line "Tokens: N sent, M received", printed after a complete answer, without an error after that line.
  The model may print such lines too, but only before the real one. The model's answer comes in one piece
  (`--no-stream`), and no text of the model follows (no suggested shell commands, no commit messages:
  `--no-auto-commits`).
- aider's own retries cannot be set: nine, over a minute, of three requests each. An error counts until an answer comes.
  An error ends a run only after `health.retry_patience`, because the text could be the model's.
- aider has no sessions. The next run continues from the files in the workspace.
- With `--yes-always` aider still refuses actions that need an explicit yes. So it never runs a command unattended, and
  `full` and `edit` are the same for it. It edits files itself, without a sandbox.
- aider reads a message that begins with `/` or `!` as a command.
- aider's map of the repository is a cache in the work tree (`.aider.tags.cache*`), which must not be committed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.agents.common.cli_agent import Capabilities, CliAgent, Login, format_option, full_prompt, order_permission
from holdfast.agents.common.provider_errors import classify_error
from holdfast.agents.port import Permission, Stream, WorkOrder
from holdfast.core.agents.events import (
    AgentEvent,
    AgentFailure,
    AgentResult,
    AgentText,
    AgentTrouble,
    RawLine,
    ToolFinished,
    Usage,
)

PROMPT = "prompt.md"
LONGEST = 4096  # characters of a line that aider itself prints
_ALWAYS = (
    "--yes-always",
    "--no-check-update",
    "--no-show-release-notes",
    "--no-analytics",
    "--no-show-model-warnings",
    "--no-pretty",
    "--no-stream",
    "--no-fancy-input",
    "--no-detect-urls",
    "--no-suggest-shell-commands",
    "--no-auto-commits",
    "--no-dirty-commits",
    "--no-gitignore",
)
_OF_ANTHROPIC = re.compile(r"^(?:anthropic/|claude|sonnet|opus|haiku)", re.IGNORECASE)


# -- starting it -------------------------------------------------------------------------------------------------------


def _arguments(order: WorkOrder) -> Sequence[str]:
    model = format_option(order, "model")
    return (
        *_ALWAYS,
        *(("--chat-mode", "ask", "--dry-run") if order_permission(order) is Permission.READ else ()),
        *(("--model", model) if model else ()),
        *(("--env-file", os.path.join(order.account.config_dir, ".env")) if order.account.config_dir else ()),
        "--chat-history-file",
        os.path.join(order.files_directory, "chat.md"),
        "--input-history-file",
        os.path.join(order.files_directory, "input"),
        "--message-file",
        os.path.join(order.files_directory, PROMPT),
    )


def _files(order: WorkOrder) -> Mapping[str, str]:
    prompt = full_prompt(order)
    is_command = prompt.lstrip()[:1] in ("/", "!")
    return {PROMPT: f"The task:\n\n{prompt}" if is_command else prompt}


def _environment(order: WorkOrder) -> Mapping[str, str]:
    env = {"COLUMNS": str(LONGEST)}  # the width at which it wraps its lines
    if order.account.base_url:
        is_anthropic = _OF_ANTHROPIC.search(format_option(order, "model") or "") is not None
        env["ANTHROPIC_API_BASE" if is_anthropic else "OPENAI_API_BASE"] = order.account.base_url
    return env


# -- reading its output ------------------------------------------------------------------------------------------------

_COUNT = r"(\d[\d.,]*[kM]?)"
_TOKENS = re.compile(
    rf"^Tokens: {_COUNT} sent(?:, {_COUNT} cache write)?(?:, {_COUNT} cache hit)?, {_COUNT} received\."
    r"(?: Cost: \$(\d[\d.,]*) (?:message|request), \$\d[\d.,]* session\.)?\s*$"
)
_RETRIES = re.compile(r"^Retrying in [\d.]+ seconds\.\.\.|^The API provider\b")  # also its explanation of an error
_BANNER = re.compile(
    r"^(?:Aider v\d+\.\d+\S*|(?:(?:Main|Weak|Editor) m|M)odel: .+|Git repo: .+ with [\d,]+ files|Repo-map: .+"
    r"|Added \S+ to the chat\.|Detected dumb terminal, .+)$"
)
_EDITED = re.compile(r"^Applied edit to (.+)$")
_ERROR = re.compile(r"^litellm\.(?:exceptions\.)?([A-Z]\w+)\b:?\s*(.*)$", re.DOTALL)
_BY_CLASS = {
    "AuthenticationError": AgentTrouble.AUTH,
    "PermissionDeniedError": AgentTrouble.AUTH,
    "ContextWindowExceededError": AgentTrouble.CONTEXT,
    "BudgetExceededError": AgentTrouble.BILLING,
    "RateLimitError": AgentTrouble.RATE_LIMIT,
    "RouterRateLimitError": AgentTrouble.RATE_LIMIT,
    "InternalServerError": AgentTrouble.OVERLOADED,
    "ServiceUnavailableError": AgentTrouble.OVERLOADED,
    "BadGatewayError": AgentTrouble.OVERLOADED,
    "APIConnectionError": AgentTrouble.NETWORK,
    "Timeout": AgentTrouble.NETWORK,
}
_SPENT = re.compile(r"\busage limit has\b", re.IGNORECASE)  # "… been reached", perhaps on the next line
_UNREACHED = re.compile(
    r"\bconnection\b|\btimed out\b|\bempty or invalid response\b", re.IGNORECASE
)  # litellm reports these as errors of the server
# Lines that aider itself prints for a failure, complete or by their beginning.
_FAILED: tuple[tuple[AgentTrouble, re.Pattern[str]], ...] = (
    (AgentTrouble.CONTEXT, re.compile(r"^Model \S+ has hit a token limit!")),
    (AgentTrouble.OTHER, re.compile(r"^Only \d+ reflections allowed, stopping\.")),
    (AgentTrouble.OTHER, re.compile(r"^Traceback \(most recent call last\):")),
    (AgentTrouble.AUTH, re.compile(r"^No LLM model was specified and no API keys were provided\.")),
    (AgentTrouble.REFUSED, re.compile(r"^(?:Message file not found: |Error reading message file: )")),
    (
        AgentTrouble.REFUSED,
        re.compile(r"^(?:Unable to read git repository|The git repo does not seem to have a working tree)"),
    ),
    (AgentTrouble.REFUSED, re.compile(r"^Aider only works with git repos ")),
)


def _parse(line: str, stream: Stream) -> Sequence[AgentEvent]:
    if stream is Stream.ERR:
        if line.startswith("aider: error: "):
            return (AgentFailure(trouble=AgentTrouble.REFUSED, message=line[:LONGEST]),)
        return (RawLine(text=line),)
    if not line.strip():
        return ()
    own = line[:LONGEST]
    if (found := _TOKENS.match(own)) is not None:
        spent = _usage(found)
        return (
            (spent, AgentResult(ok=True)) if spent.output else (spent,)
        )  # without received tokens there was no answer
    if (found := _ERROR.match(own)) is not None:
        return (_error(found.group(1), found.group(2)),)
    if _RETRIES.match(own):
        return (AgentFailure(trouble=AgentTrouble.OTHER, message=own.strip(), is_fatal=False),)
    if (found := _EDITED.match(own)) is not None:
        return (ToolFinished(id="", name="edit", ok=True, output=found.group(1)),)
    for trouble, pattern in _FAILED:
        if pattern.search(own):
            return (AgentFailure(trouble=trouble, message=own.strip()),)
    return (AgentText(text=line),)


def _join_wrapped_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, with a wrapped error or token count joined into one line.

    If the width cannot be set, it is 80, and lines are wrapped between words. Then the decisive text ("exceeded your /
    current quota") is split over two lines.
    """
    begun = ""
    for line in lines:
        if begun and len(begun) < LONGEST and line.strip() and not _is_aider_line(line):
            begun = f"{begun.rstrip()} {line.strip()}"
            if _TOKENS.match(begun):
                yield begun
                begun = ""
            continue
        if begun:
            yield begun
        begun = line if _may_be_wrapped(line[:LONGEST]) else ""
        if not begun:
            yield line
    if begun:
        yield begun


def _may_be_wrapped(line: str) -> bool:
    return _ERROR.match(line) is not None or (line.startswith("Tokens: ") and _TOKENS.match(line) is None)


def _is_aider_line(line: str) -> bool:
    """True if aider begins a new line here, so that the line does not continue the one before."""
    own = line[:LONGEST]
    return any(pattern.match(own) for pattern in (_TOKENS, _RETRIES, _EDITED, _ERROR, *(one for _, one in _FAILED)))


def _usage(found: re.Match[str]) -> Usage:
    sent, _written, hit, received, cost = found.groups()
    return Usage(
        input=_number(sent),
        output=_number(received),
        cached=_number(hit),
        cost_usd=None if cost is None else float(cost.replace(",", "").rstrip(".") or 0),
    )


def _number(said: str | None) -> int:
    """Parse a number like 1,234 or 2.3k or 12k."""
    if said is None:
        return 0
    unit = {"k": 1_000, "M": 1_000_000}.get(said[-1], 1)
    return round(float(said.rstrip("kM").replace(",", "")) * unit)


def _error(name: str, text: str) -> AgentFailure:
    """Return the failure of a line like `litellm.RateLimitError: RateLimitError: OpenAIException - text`.

    The text is the provider's. aider may still retry.
    """
    trouble = _trouble(name, text)
    is_limit = trouble in (AgentTrouble.RATE_LIMIT, AgentTrouble.USAGE_LIMIT)
    return AgentFailure(trouble=trouble, message=f"{name}: {text}".strip(": "), reset=text if is_limit else None)


def _trouble(name: str, text: str) -> AgentTrouble:
    if _SPENT.search(text):
        return AgentTrouble.USAGE_LIMIT
    by_class = _BY_CLASS.get(name)
    if by_class is AgentTrouble.OVERLOADED and _UNREACHED.search(text):
        return AgentTrouble.NETWORK
    if by_class is AgentTrouble.RATE_LIMIT or by_class is None:
        by_text = classify_error(text=text)
        if by_class is None or by_text in (AgentTrouble.USAGE_LIMIT, AgentTrouble.BILLING):
            return by_text
    return by_class


KEYS = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "OPENROUTER_API_KEY",
    "DEEPSEEK_API_KEY",
    "GROQ_API_KEY",
    "XAI_API_KEY",
    "MISTRAL_API_KEY",
)
_OWN_ARGUMENTS = (
    *(*_ALWAYS, "--chat-mode", "--dry-run", "--model", "-m", "--env-file", "--chat-history-file"),
    *("--input-history-file", "--message-file", "-f", "--message", "--msg", "--yes", "--load", "--apply", "--gui"),
    *("--browser", "--exit", "--commit", "--lint", "--test", "--watch-files", "--help", "-h", "--version"),
    *("--config", "-c", "--edit-format", "--show-prompts", "--verbose", "-v", "--multiline"),
)


AIDER = CliAgent(
    name="aider",
    title="aider",
    binary="aider",
    install="uv tool install aider-chat",
    tested=("0.86.2", "0.86.2"),
    arguments=_arguments,
    own_arguments=_OWN_ARGUMENTS,
    abbreviates=True,
    runs_commands=False,
    parse_line=_parse,
    environment=_environment,
    files=_files,
    standard_input=lambda _order: "",
    login_variables=(*KEYS, "OPENAI_API_BASE", "ANTHROPIC_API_BASE", "OLLAMA_API_BASE", "AZURE_API_*", "AIDER_*"),
    longest_quiet_answer=600.0,
    capabilities=Capabilities(resume=False, cost=False),
    login=Login(
        config_directory="~",
        files=("{config}/.aider.conf.yml", "{config}/.aider/oauth-keys.env"),
        variables=KEYS,
        command="export OPENAI_API_KEY=… (or the key of another provider)",
    ),
    litter=("/.aider.tags.cache*", "/.aider.tags.cache*/**"),
    join_lines=_join_wrapped_lines,
    is_banner=lambda line: _BANNER.match(line[:LONGEST]) is not None,
    plain_text=True,
    reads_errors=True,
    longest_quiet_retry=75.0,  # not in silence, but its output could be text of the model
)
