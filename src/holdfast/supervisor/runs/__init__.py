"""Runs and attempts: everything from a claimed task to its settlement. The package may touch agents, processes,
workspaces and the store, through the supervisor's context."""
