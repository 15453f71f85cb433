"""Removal of workspaces: markers, locks, trash, deletion and the inventory for the sweep.

Only paths that carry our owner marker, and our own entries in the user's repositories, are deleted.
"""
