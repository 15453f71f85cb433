"""The agents that this version knows.

This module is separate from the wiring, which imports far more. A command that only looks up an agent has to start
fast, and imports only that adapter. Real CLIs are registered by name in CLI_AGENTS (docs/howto/add-an-agent.md). The
adapter of `codex` is the constant CODEX in `agents/codex.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.config.settings import CLI_AGENTS

if TYPE_CHECKING:
    from holdfast.agents.port import AgentAdapter

NAMES = ("command", "scripted", *CLI_AGENTS)


class AgentRegistry(Mapping[str, "AgentAdapter"]):
    """A mapping of agent names to adapters. Each adapter is imported when it is first used."""

    def __getitem__(self, name: str) -> AgentAdapter:
        if name not in NAMES:
            raise KeyError(name)
        adapter: AgentAdapter = getattr(import_module(f"holdfast.agents.{name}"), name.upper())
        return adapter

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def __contains__(self, name: object) -> bool:
        return name in NAMES


AGENTS: Mapping[str, AgentAdapter] = AgentRegistry()
