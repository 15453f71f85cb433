"""The agents that this version knows. Separate from wiring.py, which imports far more: a command that only looks an
agent up has to start fast, and imports only that one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.agents.port import AgentAdapter

ENTRIES = {  # name → module of `holdfast.agents`, and what in it is the adapter
    "command": "command:COMMAND",
    "scripted": "scripted:SCRIPTED",
}


class Roster(Mapping[str, "AgentAdapter"]):
    """Each adapter is imported when it is first asked for."""

    def __getitem__(self, name: str) -> AgentAdapter:
        module, _, value = ENTRIES[name].partition(":")
        adapter: AgentAdapter = getattr(import_module(f"holdfast.agents.{module}"), value)
        return adapter

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)

    def __contains__(self, name: object) -> bool:
        return name in ENTRIES


AGENTS: Mapping[str, AgentAdapter] = Roster()
