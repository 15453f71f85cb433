"""Bringing the commits of a clone into the user's repository, under our prefix.

The clone belongs to an agent, which may have written anything into it. Only git's transport looks inside: it verifies
what comes over, and runs nothing that the clone's own configuration names.
"""

from __future__ import annotations

import os

from holdfast.base import faults
from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import Repo, Workspace
from holdfast.workspaces import names
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.repolock import repo_lock

MOST_REFS = 200  # branches, tags and stashes of one clone; with more, it is preserved instead
_MOST_LOG = 1 << 20
_SETTINGS = (
    "protocol.version=2",  # lets us name commits as well as branches
    "protocol.file.allow=always",
    "core.fsync=all",
    "core.fsyncMethod=batch",
    "core.logAllRefUpdates=true",
)


def git_dir_of(workspace: Workspace) -> str | None:
    """The clone's own `.git`; None when its agent removed it. Raises when it is not what we made."""
    path = os.path.join(workspace.path, ".git")
    if not os.path.lexists(path):
        return None
    for name in ("", "objects", "objects/pack", "objects/info", "refs"):
        if os.path.islink(os.path.join(path, name)):
            raise WorkspaceProblem(f"{os.path.join(path, name)} is a link to another place, so it is not trusted")
    if not os.path.isdir(path):
        raise WorkspaceProblem(f"{path} points to another repository, so it is not trusted")
    for name in ("commondir", "objects/info/alternates"):
        if os.path.lexists(os.path.join(path, name)):
            raise WorkspaceProblem(f"{os.path.join(path, name)} names another repository, so it is not trusted")
    return path


async def bring(git: Git, into: str, source: str, *options: str, refs: tuple[str, ...]) -> None:
    """Fetch `refs` of one repository into another. No hook, no tag that was not asked for, no FETCH_HEAD. Not quiet:
    what it says is how a refusal is told from a failure."""
    await git.run(
        "fetch", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", *options, source, *refs,
        cwd=into, settings=_SETTINGS, timeout=3600,
    )  # fmt: skip


async def deliver(git: Git, repo: Repo, workspace: Workspace) -> None:
    """The task's branch, and every commit that other branches, tags and stashes of the clone hold and no ref of the
    user's repository reaches. Repeating it changes nothing."""
    git_dir = git_dir_of(workspace)
    if git_dir is None:
        return
    if not os.path.isdir(repo.common_dir):
        raise WorkspaceProblem(names.gone(repo.path, workspace.task_id))
    wanted = await _wanted(git, repo, workspace, git_dir)
    if not wanted:
        return
    async with repo_lock(repo.common_dir):
        faults.effect("clone.deliver")
        for branch, commit in wanted.items():
            await _deliver_one(git, repo, git_dir, branch, commit)
        faults.passed("clone.delivered")


async def _wanted(git: Git, repo: Repo, workspace: Workspace, git_dir: str) -> dict[str, str]:
    """Which branch in the user's repository gets which commit."""
    found = await _refs(git, git_dir)
    if len(found) > MOST_REFS:
        raise WorkspaceProblem(f"it has {len(found)} branches, tags and stashes of its own; {MOST_REFS} are brought in")
    wanted = {}
    tip = found.pop(f"refs/heads/{workspace.branch}", None)
    is_empty = ("merge-base", "--is-ancestor", str(tip), str(workspace.base_commit))
    if tip is not None and not await git.ok(*is_empty, cwd=repo.common_dir):
        wanted[str(workspace.branch)] = tip  # even if another branch has the same commit: it is this task's result
    for ref, commit in found.items():
        if commit not in wanted.values() and not await _is_reached(git, repo, commit):
            wanted[_branch_for(workspace, ref)] = commit
    return wanted


async def _refs(git: Git, git_dir: str) -> dict[str, str]:
    """Every ref of the clone (those of its remotes aside) with its commit, and all stashes."""
    listed = await git.run("ls-remote", "--quiet", git_dir, cwd="/", settings=_SETTINGS)
    found = {}
    for line in listed.splitlines():
        commit, _, ref = line.partition("\t")
        if ref.startswith("refs/") and not ref.startswith("refs/remotes/") and ref != "refs/stash":
            found[ref.removesuffix("^{}")] = commit  # an annotated tag's commit comes after the tag
    for number, commit in enumerate(_stashes(git_dir)):
        found[f"refs/stash-{number}"] = commit
    return found


def _stashes(git_dir: str) -> list[str]:
    """The stack of stashes is a log, newest last; only the newest is a ref."""
    path = os.path.join(git_dir, "logs", "refs", "stash")
    if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > _MOST_LOG:
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        return [words[1] for words in (line.split() for line in file) if len(words) > 1][::-1]


async def _is_reached(git: Git, repo: Repo, commit: str) -> bool:
    try:
        return not (await git.run("rev-list", "--max-count=1", commit, "--not", "--all", cwd=repo.common_dir)).strip()
    except GitFailed as error:
        if not error.answered:
            raise
        return False  # the user's repository does not know it


def _branch_for(workspace: Workspace, ref: str) -> str:
    """Where another branch (tag, stash) of the clone goes: beside the task's own branch, never over it."""
    name = ref.removeprefix("refs/").removeprefix("heads/")
    return f"{names.BRANCH_PREFIX}{workspace.task_id}-also/{name}"


async def _deliver_one(git: Git, repo: Repo, git_dir: str, branch: str, commit: str) -> None:
    ref = f"refs/heads/{branch}"
    try:
        await bring(git, repo.common_dir, git_dir, refs=(f"{commit}:{ref}",))
    except GitFailed as error:
        if "non-fast-forward" not in error.err:
            raise WorkspaceProblem(f"its branch could not be brought into {repo.path}: {error}") from error
        # Rewritten since it was brought in the last time: what it was then keeps a name.
        old = (await git.run("rev-parse", "--verify", ref, cwd=repo.common_dir)).strip()
        faults.effect("clone.keep_before")
        await git.run("update-ref", f"{ref}-before-{old[:12]}", old, cwd=repo.common_dir)
        await bring(git, repo.common_dir, git_dir, refs=(f"+{commit}:{ref}",))
