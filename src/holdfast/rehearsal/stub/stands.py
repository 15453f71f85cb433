"""How each agent's CLI is pointed at the stub LLM server: the account that a rehearsal or a test gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
