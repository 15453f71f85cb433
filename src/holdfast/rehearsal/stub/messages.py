"""Requests and answers independent of a provider. The dialects translate between these and a provider's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, Protocol

from holdfast.base.dataclass import dataclass

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool that the CLI offers to the model."""

    name: str
    schema: Json = field(default_factory=dict)
    freeform: bool = False  # takes plain text, not JSON (codex's apply_patch)


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """The parts of a request on which the answer depends."""

    model: str = "stub-model"
    stream: bool = False
    tools: tuple[Tool, ...] = ()
    system: str = ""
    prompts: tuple[str, ...] = ()  # the texts of the user's side, in order
    calls: tuple[str, ...] = ()  # the tool calls in the history: the strings of their arguments
    results: int = 0  # how many tool results the history holds
    client: str = ""  # the client's User-Agent


@dataclass(frozen=True)
class TextReply:
    text: str


@dataclass(frozen=True, kw_only=True)
class ToolCallReply:
    tool: Tool
    arguments: Json  # for a freeform tool: {"input": text}
    number: int  # counts the calls of the conversation from 1; the call's id is made of it


@dataclass(frozen=True)
class ProviderFailure:
    """A refusal by the provider. `kind` is one of the names of `scenarios.FAILURES`."""

    kind: str
    seconds: int = 0  # the time to wait before another try, for the kinds that have one


class Manner(Enum):
    """The way in which an answer is sent."""

    WHOLE = "whole"
    RESET = "reset"
    SILENT = "silent"  # not even headers
    STALLED = "stalled"  # headers and the beginning, then nothing
    CUT = "cut"  # closed midway
    CUT_EARLY = "cut early"  # closed before the first word
    EMPTY = "empty"  # ended before the first word, without an error
    HTML = "html"  # a page, in the place of an answer
    ERROR_EVENT = "error event"  # an error inside the stream
    SLOW = "slow"  # complete, but spread over some time


@dataclass(frozen=True, kw_only=True)
class StubAnswer:
    reply: TextReply | ToolCallReply | ProviderFailure
    manner: Manner = Manner.WHOLE
    warning: bool = False  # the headers warn that the limit is near
    seconds: float = 0.0  # the time that a slow answer takes


@dataclass(frozen=True, kw_only=True)
class ProviderError:
    """An HTTP error in the provider's own format. `frames` is used instead of a status for errors inside a stream."""

    status: int
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)
    frames: tuple[bytes, ...] = ()


class Dialect(Protocol):
    """One provider's protocol."""

    name: str

    def read(self, body: Json, *, stream: bool | None) -> Conversation: ...

    def whole(self, reply: TextReply | ToolCallReply, conversation: Conversation) -> Json: ...

    def frames(self, reply: TextReply | ToolCallReply, conversation: Conversation) -> list[bytes]: ...

    def error_frame(self) -> bytes: ...

    def problem(self, failure: ProviderFailure, conversation: Conversation, now: int) -> ProviderError: ...

    def headers(self, *, warning: bool, now: int) -> Mapping[str, str]: ...


def texts_of(content: object) -> list[str]:
    """Return the plain texts of a message's content, whatever its shape."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, Mapping):
        text = content.get("text")
        return [text] if isinstance(text, str) else texts_of(content.get("parts"))
    if isinstance(content, list):
        return [text for part in content for text in texts_of(part)]
    return []


def strings_of(value: object) -> str:
    """Return every string inside `value`, one per line: enough to find a call again, whatever its tool's schema is."""
    if isinstance(value, str):
        return value
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return "\n".join(text for part in parts if (text := strings_of(part)))


def dicts(value: object) -> list[Json]:
    """Return the JSON objects in a list, or an empty list if `value` is not a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
