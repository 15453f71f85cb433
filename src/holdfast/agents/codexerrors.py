"""What Codex's errors mean: texts in its `error` and `turn.failed` events, its last words on standard error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from holdfast.agents.common.cli_agent import json_object, table, words
from holdfast.agents.common.provider_errors import trouble_of
from holdfast.core.agents.events import AgentEvent, Failure, Raw, Retry, Trouble

_OF_LIMITS = frozenset({Trouble.USAGE_LIMIT, Trouble.RATE_LIMIT})
# "Reconnecting... 2/5 (why)", "Reconnecting... waiting for network (why)", "stream error: why; retrying 2/5 in …"
_TRIES_AGAIN = re.compile(r"^(?:reconnecting|retrying)\b|^stream error\b.*; retrying\b", re.IGNORECASE | re.DOTALL)
_COUNT = re.compile(r"\b(\d{1,4})/(\d{1,4})\b")
_STATUS = re.compile(r"\bstatus:? (\d{3})\b")
_ADDRESS = re.compile(r"\b(?:https?|wss?)://\S+")
_SPENT = re.compile(r"chatgpt plan, upgrade|spend cap", re.IGNORECASE)
_INTERRUPTED = re.compile(r"^(?:interrupted\b|turn (?:was )?(?:aborted|interrupted)\b)", re.IGNORECASE)
_BUDGET = re.compile(r"token budget exhausted", re.IGNORECASE)
_UNFIT = re.compile(r"incomplete response returned, reason: content_filter", re.IGNORECASE)  # no cut, a refusal
_LOGGED_OUT = re.compile(
    r"could not be refreshed|sign(?:ed)? (?:in|out)\b|missing environment variable|not logged in", re.IGNORECASE
)
_LOST = re.compile(r"^error\b.*\b(?:no rollout found for|thread not found)\b", re.IGNORECASE)
_NO_TOOLS = re.compile(r"^required MCP servers? failed", re.IGNORECASE)  # what follows is of that server
_REFUSED = re.compile(
    r"^error: |^Error: error loading |^Not inside a trusted directory"
    r"|^Error (?:loading|finding|parsing) |^Error: (?:Model provider|failed to load)"
)


_OWN = (
    (_SPENT, Trouble.BILLING),
    (_INTERRUPTED, Trouble.INTERRUPTED),
    (_BUDGET, Trouble.BUDGET),
    (_UNFIT, Trouble.OTHER),
    (_NO_TOOLS, Trouble.OTHER),
)


def retry_in(message: str) -> Retry | None:
    if not _TRIES_AGAIN.search(message[:4096]):
        return None
    why = _in_brackets(message)
    trouble, status = _trouble(why)
    if "waiting for network" in message[:80].lower():
        trouble = Trouble.NETWORK
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
    """What stands between its first bracket and the one at its end, else all of it. No pattern: it may be long."""
    _, opened, why = message.rstrip().partition("(")
    return why[:-1] if opened and why.endswith(")") else message


def failure_of(message: str) -> Failure:
    trouble, status = _trouble(message)
    return Failure(
        trouble=trouble,
        message=_plain(message),
        status=status,
        reset=_plain(message) if trouble in _OF_LIMITS else None,
    )


def _trouble(message: str) -> tuple[Trouble, int | None]:
    error = _provider_error(message)
    said = _ADDRESS.sub("", _plain(message))
    for pattern, trouble in _OWN:
        if pattern.search(said):
            return trouble, None
    found = _STATUS.search(said)
    status = int(found.group(1)) if found is not None else None
    code = words(error.get("code")) or words(error.get("type"))
    trouble = trouble_of(status=status, code=code, text=said)
    return (Trouble.AUTH if trouble is Trouble.OTHER and _LOGGED_OUT.search(said) else trouble), status


def _plain(message: str) -> str:
    """What the provider's own error says, where the message is nothing but that."""
    return words(_provider_error(message).get("message")) or message


def _provider_error(message: str) -> dict[str, Any]:
    return table((json_object(message) or {}).get("error"))


def events_of_errors(line: str) -> Sequence[AgentEvent]:
    """Standard error is a log, but for the last words of a process that could not begin."""
    if _LOST.search(line):
        return (Failure(trouble=Trouble.SESSION_LOST, message=line),)
    if _REFUSED.search(line):
        return (Failure(trouble=Trouble.REFUSED, message=line),)
    return (Raw(text=line),)


def hindrance_in(output: str) -> Failure | None:
    """A command whose only words are those of the sandbox that could not start."""
    said = output.strip()
    if not said.startswith("bwrap: ") or said.count("\n") > 2:
        return None
    way_out = "its sandbox needs user namespaces; where the place itself is isolated, `--permission full` does without"
    return Failure(trouble=Trouble.REFUSED, message=f"{said[:200]} ({way_out})", is_fatal=False)
