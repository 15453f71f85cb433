"""The agents that this version knows. Separate from wiring.py, which imports far more: a command that only looks an
agent up has to start fast, and imports only that one.

The real CLIs are registered by their names in CLI_AGENTS (docs/howto/add-an-agent.md): `agents/codex.py` has CODEX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.config.settings import CLI_AGENTS

if TYPE_CHECKING:
    from holdfast.agents.port import AgentAdapter

NAMES = ("command", "scripted", *CLI_AGENTS)


class Roster(Mapping[str, "AgentAdapter"]):
    """Each adapter is imported when it is first asked for."""

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


AGENTS: Mapping[str, AgentAdapter] = Roster()
