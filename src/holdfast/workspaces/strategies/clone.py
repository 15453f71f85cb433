"""A standalone clone per task, with a `.git` of its own: nothing that its agent does reaches the user's repository.

Its objects come through git's own transport, not by links into the user's: a hard link is the same file (an agent that
writes to it damages the user's history), and alternates would be missing in a container. Hooks, templates and
configuration of the user's repository do not come along; branches, tags and who the user is do.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from urllib.parse import urlsplit

from holdfast.base import faults
from holdfast.base.concurrency import in_thread
from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import Repo, Workspace
from holdfast.core.task_settings import DEFAULT_SALVAGE, SalvageRules
from holdfast.workspaces import names
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.worktree_entries import drop_branch_lock
from holdfast.workspaces.port import Saved
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.removal.trash import delete_tree, move_away
from holdfast.workspaces.snapshots.salvage import restore_into, salvage
from holdfast.workspaces.strategies.delivery import bring, deliver, git_dir_of
from holdfast.workspaces.strategies.worktree import WorktreeStrategy

_PASSED_ON = ("user.name", "user.email", "core.autocrlf", "core.eol", "core.ignoreCase")  # data; none is a command
_LOCKS = ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock")
_REFS = (
    "+refs/heads/*:refs/heads/*",
    f"^refs/heads/{names.BRANCH_PREFIX}*",
    "+refs/remotes/origin/*:refs/remotes/origin/*",
    "+refs/tags/*:refs/tags/*",
)


class CloneStrategy(WorktreeStrategy):
    """Plans, commits leftovers and drops empty branches as worktrees do; makes, saves and removes its own way."""

    own_git = True

    def __init__(self, home: str, git: Git) -> None:
        super().__init__(home, git)
        self._home = home
        self._git = git

    async def prepare(self, repo: Repo, workspace: Workspace, restore: str | None) -> None:
        """Creation fails closed: an agent never falls back to the user's checkout (R-TREE-05)."""
        owner_marker.write(workspace)
        await self._clear(workspace)
        await self._fetch_all(repo, workspace)
        await self._configure(repo, workspace)
        filters = await self._git.filters_off(workspace.path)
        workers = f"checkout.workers={min(4, os.cpu_count() or 1)}"
        faults.effect("clone.checkout")
        await self._git.run(
            "reset", "--quiet", "--hard", cwd=workspace.path, env=filters, settings=(workers,), timeout=3600
        )
        faults.passed("clone.ready")
        if restore is not None:
            await restore_into(self._git, self._home, repo, workspace, restore)

    async def _clear(self, workspace: Workspace) -> None:
        """What an earlier try left when it was killed. No agent has worked in it yet, so there is nothing to save."""
        if os.path.lexists(workspace.path):
            leftover = names.half_made_path(self._home, workspace.id)
            await in_thread(delete_tree, leftover)
            move_away(workspace.path, leftover)
            await in_thread(delete_tree, leftover)

    async def _fetch_all(self, repo: Repo, workspace: Workspace) -> None:
        """Branches, tags and the start of the task's own branch: what it left earlier, else its base."""
        assert workspace.branch is not None
        ours = f"refs/heads/{workspace.branch}"
        known = await self._git.run("for-each-ref", "--format=%(objectname)", ours, cwd=repo.common_dir)
        start = known.strip() or str(workspace.base_commit)  # by its id: our names are left out below
        style = (await self._git.run("rev-parse", "--show-object-format", cwd=repo.common_dir)).strip()
        faults.effect("clone.init")
        await self._git.run(
            "init", "--quiet", "--template=", f"--object-format={style}", f"--initial-branch={workspace.branch}",
            workspace.path, cwd="/",
        )  # fmt: skip
        faults.effect("clone.fetch")
        await bring(
            self._git, workspace.path, repo.common_dir, "--update-head-ok", "--update-shallow",
            refs=(*_REFS, f"+{start}:{ours}"),
        )  # fmt: skip
        faults.passed("clone.fetched")

    async def _configure(self, repo: Repo, workspace: Workspace) -> None:
        """Who the user is, where `origin` is (never with a password in it), what is excluded privately."""
        settings = {key: await self._value(repo, key) for key in _PASSED_ON}
        origin = _shareable(await self._value(repo, "remote.origin.url"), repo.path)
        if origin:
            settings["remote.origin.url"] = origin
            settings["remote.origin.fetch"] = "+refs/heads/*:refs/remotes/origin/*"
        faults.effect("clone.configure")
        for key, value in settings.items():
            if value:
                await self._git.run("config", "--local", key, value, cwd=workspace.path)
        excludes = os.path.join(repo.common_dir, "info", "exclude")
        if os.path.isfile(excludes):
            os.makedirs(os.path.join(workspace.path, ".git", "info"), exist_ok=True)
            shutil.copyfile(excludes, os.path.join(workspace.path, ".git", "info", "exclude"))

    async def _value(self, repo: Repo, key: str) -> str:
        try:
            return (await self._git.run("config", "--includes", "--get", key, cwd=repo.common_dir)).rstrip("\n")
        except GitFailed as error:
            if not error.answered:
                raise
            return ""

    async def tidy(self, repo: Repo, workspace: Workspace) -> None:
        """R-TREE-15: locks that a killed git left; the tree is proven empty, so nobody holds them."""
        await drop_branch_lock(self._git, repo.common_dir, workspace.branch)
        git_dir = _trusted_git_dir(workspace)
        if git_dir is None:
            return
        for name in (*_LOCKS, f"refs/heads/{workspace.branch}.lock"):
            with contextlib.suppress(OSError):
                faults.effect("clone.tidy")
                os.unlink(os.path.join(git_dir, name))

    async def is_intact(self, repo: Repo, workspace: Workspace) -> bool:
        git_dir = _trusted_git_dir(workspace)
        return git_dir is not None and os.path.isfile(os.path.join(git_dir, "HEAD"))

    async def deliver(self, repo: Repo, workspace: Workspace) -> None:
        await deliver(self._git, repo, workspace)

    async def salvage(
        self,
        repo: Repo,
        workspace: Workspace,
        reason: str,
        rules: SalvageRules = DEFAULT_SALVAGE,
        *,
        over: str | None = None,
    ) -> Saved | None:
        """Commits go to branches of the user's repository first; what is left is saved as for any other tree. Not where
        the clone stays and goes back (`over`): what it goes back from is no result of the task."""
        if over is None:
            await self.deliver(repo, workspace)
        own_git = self._own_git(workspace)
        return await salvage(self._git, self._home, repo, workspace, reason, rules, own_git, over=over)

    def _own_git(self, workspace: Workspace) -> str | None:
        return git_dir_of(workspace)

    async def put_away(self, repo: Repo, workspace: Workspace) -> bool:
        target = names.trash_path(self._home, workspace.id)
        await drop_branch_lock(self._git, repo.common_dir, workspace.branch)
        if not os.path.lexists(workspace.path):
            return os.path.lexists(target)
        if owner_marker.owner(workspace.path) != workspace.id:
            raise WorkspaceProblem(f"{workspace.path} carries no record of ours; it was left alone")
        return move_away(workspace.path, target)


def _trusted_git_dir(workspace: Workspace) -> str | None:
    try:
        return git_dir_of(workspace)
    except WorkspaceProblem:
        return None  # not what we made; saving its work says so, and the workspace is preserved


def _shareable(url: str, base: str) -> str:
    """`origin` as an agent may have it: a password in it is not for the agent; a relative path gets its place."""
    if re.match(r"\.\.?/", url):
        return os.path.normpath(os.path.join(base, url))
    parts = urlsplit(url) if "://" in url else None
    if parts is None or parts.password is None:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
