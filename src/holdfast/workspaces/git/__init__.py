"""Git: the hardened call of git, and the reading and writing of refs, branches, locks and worktree entries.

Only `git.py` starts git processes. The other modules use it, or read and write the files of a repository directly.
"""
