"""Nested repositories. A commit holds only a link to one, so a workspace with unsaved work in one is preserved."""

from __future__ import annotations

import os
from collections.abc import Iterable

from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import WorkspaceProblem
from holdfast.base.files import listed
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.git_state import READ_ONLY_ENV
from holdfast.workspaces.git.index_entries import LIST_ENTRIES, find_touched_entries, parse_entries


def refuse_own_history(tree: str) -> None:
    if os.path.isdir(os.path.join(tree, ".git")):
        raise WorkspaceProblem(f"{tree} is a repository of its own, whose history a commit cannot hold")


def refuse_nested(tree: str, untracked: Iterable[str]) -> None:
    """Raise WorkspaceProblem for a nested repository. git lists it among untracked files with a trailing slash."""
    for path in untracked:
        if path.endswith("/"):
            raise WorkspaceProblem(
                f"{os.path.join(tree, path[:-1])} is a repository of its own, which a commit cannot hold"
            )


async def refuse_changed_submodules(git: Git, tree: str, git_dir: str | None, links: dict[str, str]) -> None:
    """Raise WorkspaceProblem unless every submodule is at its recorded commit, clean and published.

    `links`: path → the recorded commit.
    """
    for path, commit in links.items():
        folder = os.path.join(tree, path)
        if os.path.islink(folder) or not os.path.isdir(folder) or not os.listdir(folder):
            continue  # not checked out, or replaced by something that a commit can hold
        if not os.path.lexists(os.path.join(folder, ".git")):
            raise WorkspaceProblem(f"{folder} has files in the place of a submodule, which a commit cannot hold")
        if why := await _find_change(git, folder, commit):
            raise WorkspaceProblem(f"the submodule {folder} {why}, which a commit cannot hold")
    for module in _list_submodule_repos(git_dir):
        if await _has_own_commits(git, module, list(links.values())):
            raise WorkspaceProblem(f"the submodule repository {module} has commits of its own")


async def _find_change(git: Git, folder: str, commit: str) -> str | None:
    try:
        top = (await git.run("rev-parse", "--show-toplevel", cwd=folder, env=READ_ONLY_ENV)).strip()
        if os.path.realpath(top) != os.path.realpath(folder):
            return "is not a repository that git can read"
        if (await git.run("rev-parse", "HEAD", cwd=folder, env=READ_ONLY_ENV)).strip() != commit:
            return "is at another commit than the one recorded"
        found = parse_entries(await git.run(*LIST_ENTRIES, cwd=folder, env=READ_ONLY_ENV))
        if not all(entry.is_plain for entry in found):
            return "has submodules, conflicts or hidden files of its own"  # `status` would enter the submodules
        env = {**await git.disable_filters(folder, all_of_them=True), **READ_ONLY_ENV}
        status = ("status", "--porcelain", "--untracked-files=all", "--ignore-submodules=dirty")
        if await git.run(*status, cwd=folder, env=env) != "":
            return "has uncommitted changes"
        if await run_in_thread(find_touched_entries, folder, found):
            return "has uncommitted changes"
        if await _has_own_commits(git, folder, [commit]):
            return "has commits of its own"
    except GitFailed as error:
        if not error.answered:
            raise
        return f"cannot be read ({error})"
    return None


async def _has_own_commits(git: Git, folder: str, recorded: list[str]) -> bool:
    """True if commits or stashes, including unreferenced ones, are neither in its remotes nor in a recorded link."""
    ours = ["--branches", "--glob=refs/stash", "--reflog"]
    beyond = ["--not", "--remotes", *recorded]
    try:
        out = await git.run(
            "rev-list", "--max-count=1", "--ignore-missing", *ours, *beyond, cwd=folder, env=READ_ONLY_ENV
        )
    except GitFailed as error:
        if not error.answered:
            raise
        return True  # unknown, so assume that it has some
    return bool(out.strip())


def _list_submodule_repos(git_dir: str | None) -> list[str]:
    """Return the submodule repositories inside a worktree's git directory. They are deleted together with it."""
    found: list[str] = []
    waiting = [] if git_dir is None else [os.path.join(git_dir, "modules")]
    while waiting:
        folder = waiting.pop()
        for name in listed(folder):
            path = os.path.join(folder, name)
            if os.path.isfile(os.path.join(path, "HEAD")):
                found.append(path)
                waiting.append(os.path.join(path, "modules"))
            elif os.path.isdir(path) and not os.path.islink(path):
                waiting.append(path)
    return found
