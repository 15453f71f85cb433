"""Agents: data and pure functions that say how a CLI is started and what its output means."""
