"""A cheap check for worktrees with nothing to save: two git processes instead of a dozen.

A crash storm leaves hundreds of such worktrees. The check answers yes only if nothing can be hidden. Anything unusual
is left to the salvage itself.
"""

from __future__ import annotations

import os

from holdfast.base.concurrency import run_in_thread
from holdfast.base.files import open_regular_file
from holdfast.core.model import Repo, Workspace
from holdfast.core.task_settings import SalvageRules
from holdfast.workspaces.git import git_state, refs
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.index_entries import LIST_ENTRIES, find_touched_entries, parse_entries
from holdfast.workspaces.git.worktree_entries import find_entry
from holdfast.workspaces.snapshots.collect_files import is_sparse

# An agent may have changed these settings so that git misses changes, so we override them. A config file with one of
# the words in _UNUSUAL makes this check give up.
_SETTINGS = (
    "core.trustctime=true",
    "core.checkStat=default",
    "core.ignoreStat=false",
    "core.fileMode=true",
    "core.symlinks=true",
    "core.ignoreCase=false",
    "core.untrackedCache=false",
    "core.preloadIndex=true",
)
_UNUSUAL = (b"filter", b"include", b"excludesfile", b"attributesfile", b"precompose")
_LARGEST_CONFIG = 1024 * 1024


async def has_nothing_to_save(git: Git, repo: Repo, workspace: Workspace, rules: SalvageRules) -> bool:
    """True if a worktree holds nothing that its branch does not. False also means that this check cannot decide."""
    entry = find_entry(repo.common_dir, workspace.path)
    if entry is None or rules.ignored or not _is_plain(workspace.path, entry, repo.common_dir):
        return False
    try:
        head = refs.read_ref(entry, repo.common_dir, f"refs/heads/{workspace.branch}")
        if head is None or refs.read_head_ref(entry) != f"refs/heads/{workspace.branch}":
            return False
        known = {head, *([workspace.base_commit] if workspace.base_commit else [])}  # the base is the user's
        return await _is_clean(git, workspace.path, entry) and not await _has_commit_history(git, repo, entry, known)
    except (refs.UnusualRef, OSError, GitFailed):
        return False


def _is_plain(tree: str, entry: str, common_dir: str) -> bool:
    """True without a nested repository, an operation under way, or a setting that could hide files."""
    if os.path.islink(tree) or os.path.isdir(os.path.join(tree, ".git")) or not os.path.isdir(tree):
        return False
    if os.path.lexists(os.path.join(tree, ".gitmodules")) or os.path.isdir(os.path.join(entry, "modules")):
        return False
    if git_state.find_operation(entry) is not None or is_sparse(entry, common_dir):
        return False
    return not any(
        _is_unusual(os.path.join(folder, name))
        for folder, name in ((common_dir, "config"), (common_dir, "config.worktree"), (entry, "config.worktree"))
    )


def _is_unusual(path: str) -> bool:
    try:
        with open(path, "rb", opener=open_regular_file) as file:
            content = file.read(_LARGEST_CONFIG + 1)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return len(content) > _LARGEST_CONFIG or any(word in content.lower() for word in _UNUSUAL)


async def _is_clean(git: Git, tree: str, entry: str) -> bool:
    """True if nothing is staged, changed, deleted or untracked, and no file is hidden from git.

    The index is read first. `status` would enter a repository to which the index links, and run its commands.
    """
    env = {
        "GIT_DIR": entry,
        "GIT_WORK_TREE": tree,
        **git_state.READ_ONLY_ENV,
    }  # never a parent's, whatever `.git` names
    code, out, complaints = await git.ask(*LIST_ENTRIES, cwd=tree, env=env)
    found = parse_entries(out)
    if code != 0 or complaints or not all(entry.is_plain for entry in found):
        return False
    status = ("status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=dirty", "--no-renames")
    code, out, complaints = await git.ask(*status, cwd=tree, env=env, settings=_SETTINGS)
    if code != 0 or out or complaints:  # git complains about directories that it could not open
        return False
    return not await run_in_thread(find_touched_entries, tree, found)


async def _has_commit_history(git: Git, repo: Repo, entry: str, known: set[str]) -> bool:
    mentioned = git_state.list_mentioned_objects(entry)
    return bool(await git_state.find_unreferenced_commits(git, repo.common_dir, mentioned - known, known))
