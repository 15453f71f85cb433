"""Workspace strategies: worktree, clone, plain directory and the user's own checkout, one module for each kind.

A strategy may write to the home and, under our branch prefix, to the user's repository.
"""
