"""Our entries under `<common dir>/worktrees`. Dropped one by one, never with `git worktree prune`: that would delete
the entries of the user's own worktrees on disks that happen to be unmounted."""

from __future__ import annotations

import contextlib
import os

from holdfast import faults
from holdfast.workspaces.names import BRANCH_PREFIX
from holdfast.workspaces.trash import delete_tree


def entry_of(common_dir: str, path: str) -> str | None:
    """The admin directory whose worktree is at `path`, or None."""
    folder = os.path.join(common_dir, "worktrees")
    likely = os.path.basename(path)
    try:
        names = sorted(os.listdir(folder), key=lambda name: (not name.startswith(likely), name))
    except FileNotFoundError:
        return None
    for name in names:
        entry = os.path.join(folder, name)
        if worktree_of(entry) == os.path.realpath(path):
            return entry
    return None


def worktree_of(entry: str) -> str | None:
    """The path of the worktree that an admin directory stands for."""
    try:
        with open(os.path.join(entry, "gitdir"), encoding="utf-8", errors="surrogateescape") as file:
            return os.path.realpath(os.path.dirname(file.read().rstrip("\n")))
    except (FileNotFoundError, NotADirectoryError):
        return None


def drop_branch_lock(common_dir: str, branch: str | None) -> None:
    """R-TREE-15: what a killed git left. Only called when no process of the task lives and no helper of ours is on it:
    nobody else writes branches with our prefix."""
    if branch is not None and branch.startswith(BRANCH_PREFIX):
        with contextlib.suppress(OSError):
            faults.effect("branch.unlock")
            os.unlink(os.path.join(common_dir, "refs", "heads", f"{branch}.lock"))


def drop_entry(common_dir: str, path: str) -> bool:
    """Remove our admin entry, locked or not, whole or half made. The caller holds the repo lock."""
    entry = entry_of(common_dir, path)
    if entry is None:
        return _drop_empty(common_dir, path)
    drop(common_dir, entry)
    return True


def drop(common_dir: str, entry: str) -> None:
    """Remove an admin entry, of which it is known that it is ours. The caller holds the repo lock."""
    faults.effect("admin.drop")
    # `gitdir` goes last: while it is there a repetition finds the entry.
    for name in os.listdir(entry):
        if name != "gitdir":
            delete_tree(os.path.join(entry, name))
    delete_tree(entry)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.join(common_dir, "worktrees"))  # as git does, when it was the last
    faults.passed("admin.dropped")


def is_checked_out(common_dir: str, branch: str) -> bool:
    """Whether the checkout itself or any worktree, whoever's, is on that branch."""
    heads = [common_dir, *(os.path.join(common_dir, "worktrees", name) for name in _names(common_dir))]
    for folder in heads:
        with (
            contextlib.suppress(OSError),
            open(os.path.join(folder, "HEAD"), encoding="utf-8", errors="replace") as file,
        ):
            if file.read().strip() == f"ref: refs/heads/{branch}":
                return True
    return False


def _names(common_dir: str) -> list[str]:
    try:
        return os.listdir(os.path.join(common_dir, "worktrees"))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _drop_empty(common_dir: str, path: str) -> bool:
    """An entry whose files are gone and whose directory is not: we were interrupted between the two. Its name is the
    workspace's, and `rmdir` removes nothing but an empty directory."""
    folder = os.path.join(common_dir, "worktrees")
    dropped = False
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if name.startswith(os.path.basename(path)):
            with contextlib.suppress(OSError):
                faults.effect("admin.rmdir")
                os.rmdir(os.path.join(folder, name))
                dropped = True
    return dropped
