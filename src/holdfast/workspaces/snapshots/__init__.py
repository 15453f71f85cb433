"""Snapshots: salvages and checkpoints of workspaces, kept as commits in a private shadow repository.

A snapshot reads the agent's workspace and git directory. Only restoring a checkpoint writes to them.
"""
