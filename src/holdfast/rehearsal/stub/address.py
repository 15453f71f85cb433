"""Addresses of the stub: the scenario, protocol and call that a URL means.

`STANDS` holds, per agent CLI, the account settings with which a rehearsal or test points the CLI at the stub.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from urllib.parse import unquote, urlsplit

from holdfast.base.dataclass import dataclass
from holdfast.rehearsal.stub import anthropic, gemini, openai_chat, openai_responses
from holdfast.rehearsal.stub.messages import Dialect

_MODEL = r"(?P<model>[^/:]+)"
# The provider's own path after the scenario: dialect, kind of request, stream or not (None: the body decides).
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
    path: str  # scenario and arguments as in the URL
    scenario: str
    arguments: tuple[str, ...]
    dialect: Dialect
    asked: str  # answer, count or models
    stream: bool | None
    model: str | None


def parse_url(url: str) -> Address | None:
    """Return the address of a URL, or None if its path belongs to no protocol."""
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


KEY = "stub-key"  # the stub accepts any key


@dataclass(frozen=True, kw_only=True, slots=True)
class StubAccount:
    """The settings that an account needs besides its `base_url`, which is the URL of a scenario plus `path`."""

    env: Mapping[str, str] = field(default_factory=dict)
    plan: Mapping[str, str] = field(default_factory=dict)  # instead of `env`, for a login with a plan and its limits
    path: str = ""
    model: str = ""  # empty: the CLI's own choice
    first: Sequence[str] = ()  # arguments for a first start that makes the CLI's files; parallel first starts collide


STUB_ACCOUNTS: dict[str, StubAccount] = {
    "claude": StubAccount(env={"ANTHROPIC_API_KEY": KEY}, plan={"CLAUDE_CODE_OAUTH_TOKEN": KEY}),
    "codex": StubAccount(env={"OPENAI_API_KEY": KEY}, path="/v1", model="gpt-5"),
    "gemini": StubAccount(
        env={"GEMINI_API_KEY": KEY}, model="gemini-2.5-flash"
    ),  # without it, another model is asked first
    "qwen": StubAccount(env={"OPENAI_API_KEY": KEY}, path="/v1", model="stub-model"),
    # opencode also reports the cost if it knows the model.
    "opencode": StubAccount(
        env={"OPENAI_API_KEY": KEY}, path="/v1", model="openai/gpt-5-mini", first=("session", "list")
    ),
    "copilot": StubAccount(env={"COPILOT_PROVIDER_API_KEY": KEY}, path="/v1", model="gpt-5"),
    "aider": StubAccount(env={"OPENAI_API_KEY": KEY}, path="/v1", model="openai/stub-model"),
}
