"""Workspaces: isolated places for agents, made and removed without leaking one or losing a byte."""
