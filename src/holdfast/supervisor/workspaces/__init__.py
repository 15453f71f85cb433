"""Workspaces of tasks in the supervisor: prepare, set up, save, remove, sweep. The package uses the store's ledger and
the workspace strategies."""
