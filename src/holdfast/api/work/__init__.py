"""The work of tasks, for interfaces: workspaces, diffs, checkpoints, salvages, branches, merges and pull requests.
These modules may touch the store, workspaces and git repositories."""
