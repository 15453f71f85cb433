"""What is asked and what is answered, in no provider's words: the dialects translate from and to these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool that the CLI offers to the model."""

    name: str
    schema: Json = field(default_factory=dict)
    freeform: bool = False  # takes plain text, no JSON (codex's apply_patch)


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One request, as far as an answer depends on it."""

    model: str = "stub-model"
    stream: bool = False
    tools: tuple[Tool, ...] = ()
    system: str = ""
    prompts: tuple[str, ...] = ()  # what the user's side said, in order
    calls: tuple[str, ...] = ()  # the tool calls in the history: the strings of their arguments
    results: int = 0  # how many tool results the history holds
    client: str = ""  # who asks, as it calls itself


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True, kw_only=True)
class Call:
    tool: Tool
    arguments: Json  # of a freeform tool: {"input": text}
    number: int  # the how manieth call of the conversation: makes its id


@dataclass(frozen=True)
class Failure:
    """The provider refuses: one of the names of `scenarios.FAILURES`."""

    kind: str
    seconds: int = 0  # until it is worth another try, where the kind says so


class Manner(Enum):
    """How the answer gets onto the wire."""

    WHOLE = "whole"
    RESET = "reset"
    SILENT = "silent"  # not even headers
    STALLED = "stalled"  # headers and the beginning, then nothing
    CUT = "cut"  # closed midway
    ERROR_EVENT = "error event"  # an error inside the stream
    SLOW = "slow"  # whole, but spread over a time


@dataclass(frozen=True, kw_only=True)
class Answer:
    reply: Text | Call | Failure
    manner: Manner = Manner.WHOLE
    warning: bool = False  # the headers warn that the limit is near
    seconds: float = 0.0  # that a slow one takes


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An HTTP error as the provider words it; `frames` instead of a status if it says so inside a stream."""

    status: int
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)
    frames: tuple[bytes, ...] = ()


class Dialect(Protocol):
    """One provider's protocol."""

    name: str

    def read(self, body: Json, *, stream: bool | None) -> Conversation: ...

    def whole(self, reply: Text | Call, conversation: Conversation) -> Json: ...

    def frames(self, reply: Text | Call, conversation: Conversation) -> list[bytes]: ...

    def error_frame(self) -> bytes: ...

    def problem(self, failure: Failure, conversation: Conversation, now: int) -> Problem: ...

    def headers(self, *, warning: bool, now: int) -> Mapping[str, str]: ...


def texts_of(content: object) -> list[str]:
    """The plain texts of a message's content, whatever its shape."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, Mapping):
        text = content.get("text")
        return [text] if isinstance(text, str) else texts_of(content.get("parts"))
    if isinstance(content, list):
        return [text for part in content for text in texts_of(part)]
    return []


def strings_of(value: object) -> str:
    """Every string inside `value`, one a line: enough to find a call again whatever its tool's schema."""
    if isinstance(value, str):
        return value
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return "\n".join(text for part in parts if (text := strings_of(part)))


def dicts(value: object) -> list[Json]:
    """The JSON objects in a list; nothing if it is none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
