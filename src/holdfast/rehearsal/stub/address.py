"""Which scenario, which protocol and which of its calls an address means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from holdfast.rehearsal.stub import anthropic, chat, gemini, openai
from holdfast.rehearsal.stub.messages import Dialect

_MODEL = r"(?P<model>[^/:]+)"
# The provider's own path behind the scenario: dialect, what is asked, whether it streams (None: the body says).
_ENDPOINTS: tuple[tuple[str, Dialect, str, bool | None], ...] = (
    (r"(/v1)?/messages/count_tokens", anthropic, "count", None),
    (r"(/v1)?/messages", anthropic, "answer", None),
    (r"(/v1)?/responses", openai, "answer", None),
    (r"(/v1)?/chat/completions", chat, "answer", None),
    (rf"(/v1(beta|alpha)?)?/models/{_MODEL}:streamGenerateContent", gemini, "answer", True),
    (rf"(/v1(beta|alpha)?)?/models/{_MODEL}:generateContent", gemini, "answer", False),
    (rf"(/v1(beta|alpha)?)?/models/{_MODEL}:countTokens", gemini, "count", None),
    (rf"(/v1(beta|alpha)?)?/models(/{_MODEL})?", chat, "models", None),
)


@dataclass(frozen=True, kw_only=True)
class Address:
    path: str  # scenario and arguments as they stand in the URL
    scenario: str
    arguments: tuple[str, ...]
    dialect: Dialect
    asked: str  # answer, count or models
    stream: bool | None
    model: str | None


def parse(url: str) -> Address | None:
    """None if no protocol has such a path."""
    path = urlsplit(url).path
    for pattern, dialect, asked, stream in _ENDPOINTS:
        if found := re.fullmatch(rf"/(?P<base>[^/]+(?:/.*?)??){pattern}/?", path):
            scenario, *arguments = found["base"].split("/")
            return Address(
                path=found["base"],
                scenario=unquote(scenario),
                arguments=tuple(unquote(argument) for argument in arguments),
                dialect=dialect,
                asked=asked,
                stream=stream,
                model=found.groupdict().get("model"),
            )
    return None
