"""Workspaces of tasks in the supervisor: prepare, set up, save, remove, sweep. They use the store's ledger and the
workspace strategies."""
