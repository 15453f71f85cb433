"""Which scenario, which protocol and which of its calls an address means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from holdfast.rehearsal.stub import anthropic, gemini, openai_chat, openai_responses
from holdfast.rehearsal.stub.messages import Dialect

_MODEL = r"(?P<model>[^/:]+)"
# The provider's own path behind the scenario: dialect, what is asked, whether it streams (None: the body says).
_ENDPOINTS: tuple[tuple[str, Dialect, str, bool | None], ...] = (
    (r"(/v1)?/messages/count_tokens", anthropic, "count", None),
    (r"(/v1)?/messages", anthropic, "answer", None),
    (r"(/v1)?/responses", openai_responses, "answer", None),
    (r"(/v1)?/chat/completions", openai_chat, "answer", None),
    (rf"(/v1(beta|alpha)?)?/models/{_MODEL}:streamGenerateContent", gemini, "answer", True),
    (rf"(/v1(beta|alpha)?)?/models/{_MODEL}:generateContent", gemini, "answer", False),
    (rf"(/v1(beta|alpha)?)?/models/{_MODEL}:countTokens", gemini, "count", None),
    (rf"(/v1(beta|alpha)?)?/models(/{_MODEL})?", openai_chat, "models", None),
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


KEY = "stub-key"  # the stub takes any


@dataclass(frozen=True, kw_only=True, slots=True)
class Stand:
    """What an account needs beside its `base_url`, which is the URL of a scenario and `path`."""

    env: Mapping[str, str] = field(default_factory=dict)
    plan: Mapping[str, str] = field(default_factory=dict)  # instead of `env`, for a login with a plan and its limits
    path: str = ""
    model: str = ""  # empty: the CLI's own choice
    first: Sequence[str] = ()  # what has the CLI make its files; several first starts at once would disturb each other


STANDS: dict[str, Stand] = {
    "claude": Stand(env={"ANTHROPIC_API_KEY": KEY}, plan={"CLAUDE_CODE_OAUTH_TOKEN": KEY}),
    "codex": Stand(env={"OPENAI_API_KEY": KEY}, path="/v1", model="gpt-5"),
    "gemini": Stand(env={"GEMINI_API_KEY": KEY}, model="gemini-2.5-flash"),  # its own choice asks another model first
    "qwen": Stand(env={"OPENAI_API_KEY": KEY}, path="/v1", model="stub-model"),
    # of a model that it knows it also tells the price
    "opencode": Stand(env={"OPENAI_API_KEY": KEY}, path="/v1", model="openai/gpt-5-mini", first=("session", "list")),
    "copilot": Stand(env={"COPILOT_PROVIDER_API_KEY": KEY}, path="/v1", model="gpt-5"),
    "aider": Stand(env={"OPENAI_API_KEY": KEY}, path="/v1", model="openai/stub-model"),
}
