"""The agents that this version knows. Separate from wiring.py, which imports far more: a command that only looks an
agent up has to start fast."""

from __future__ import annotations

from holdfast.agents.codex import CODEX
from holdfast.agents.command import CommandAgent
from holdfast.agents.gemini import GEMINI
from holdfast.agents.port import AgentAdapter
from holdfast.agents.scripted import ScriptedAgent

AGENTS: dict[str, AgentAdapter] = {
    agent.name: agent
    for agent in (
        CommandAgent(),
        ScriptedAgent(),
        CODEX,
        GEMINI,
    )
}
