"""Workspaces: isolated directories for agents. No workspace is leaked, and no work is lost when one is removed.

This package touches the directories of the home, the user's repositories, and git. It never touches the store.
"""
