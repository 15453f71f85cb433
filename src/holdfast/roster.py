"""The agents that this version knows. Separate from wiring.py, which imports far more: a command that only looks an
agent up has to start fast, and imports only that one.

The real CLIs are registered by their names in CLI_AGENTS (docs/howto/add-an-agent.md): `agents/codex.py` has CODEX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
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
        return (name for name in NAMES if name in self)

    def __len__(self) -> int:
        return sum(1 for _name in self)

    def __contains__(self, name: object) -> bool:
        return name in NAMES and find_spec(f"holdfast.agents.{name}") is not None


AGENTS: Mapping[str, AgentAdapter] = Roster()
