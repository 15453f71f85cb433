"""The agents that this version knows. Separate from wiring.py, which imports far more: a command that only looks an
agent up has to start fast."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from holdfast.agents.command import CommandAgent
from holdfast.agents.port import AgentAdapter
from holdfast.agents.scripted import ScriptedAgent
from holdfast.config.settings import CLI_AGENTS


def _cli(name: str) -> AgentAdapter:
    """`agents/codex.py` has CODEX, and so on."""
    agent: AgentAdapter = getattr(import_module(f"holdfast.agents.{name}"), name.upper())
    return agent


# The real CLIs are registered by their names in CLI_AGENTS (docs/howto/add-an-agent.md).
AGENTS: dict[str, AgentAdapter] = {
    "command": CommandAgent(),
    "scripted": ScriptedAgent(),
    **{name: _cli(name) for name in CLI_AGENTS if find_spec(f"holdfast.agents.{name}") is not None},
}
