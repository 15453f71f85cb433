"""A standalone clone per task, with its own `.git`: nothing that the agent does reaches the user's repository.

The objects come through git's own transport, not by hard links or alternates. A hard link is the same file, so an
agent that writes to it would damage the user's history. Alternates would be missing in a container. Hooks, templates
and configuration of the user's repository are not copied. Branches, tags and the user's identity are.

Delivery brings the clone's commits into the user's repository, under our prefix. The agent may have written anything
into its clone. So only git's transport reads the clone: it verifies what it transfers, and runs nothing that the
clone's own configuration names.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Mapping

from holdfast.base import faults
from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import WorkspaceProblem
from holdfast.base.files import unlink_beneath
from holdfast.core.model import Repo, Workspace
from holdfast.core.task_settings import DEFAULT_SALVAGE, SalvageRules
from holdfast.workspaces import names
from holdfast.workspaces.git.clone_git_dir import find_clone_git_dir, trust_clone_git_dir
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.git_state import READ_ONLY_ENV
from holdfast.workspaces.git.reflogs import read_log
from holdfast.workspaces.git.repo_lock import hold_repo_lock
from holdfast.workspaces.git.worktree_entries import drop_branch_lock
from holdfast.workspaces.port import SalvageResult
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.removal.trash import delete_tree, move_to_trash
from holdfast.workspaces.snapshots.salvage import restore_salvage, salvage_workspace
from holdfast.workspaces.strategies.worktree import WorktreeStrategy

MOST_REFS = 200  # branches, tags and stashes that the agent of one clone made; more are saved as a salvage instead
_SETTINGS = (
    "protocol.version=2",  # allows fetching commits by id, not only branches
    "protocol.file.allow=always",
    "core.fsync=all",
    "core.fsyncMethod=batch",
    "core.logAllRefUpdates=true",
)


async def fetch_refs(git: Git, into: str, source: str, *options: str, refs: tuple[str, ...]) -> None:
    """Fetch `refs` of one repository into another: without hooks, extra tags or a FETCH_HEAD file.

    The fetch is not quiet, because its output distinguishes a refused update from a failure.
    """
    await git.run(
        "fetch", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", *options, source, *refs,
        cwd=into, settings=_SETTINGS, timeout=3600,
    )  # fmt: skip


async def deliver_commits(git: Git, repo: Repo, workspace: Workspace) -> None:
    """Bring the clone's commits into the user's repository. Repeating this changes nothing.

    These are the task's branch, and every commit that only other branches, tags and stashes of the clone reach.
    """
    git_dir = await run_in_thread(trust_clone_git_dir, workspace)
    if git_dir is None:
        return
    if not os.path.isdir(repo.common_dir):
        gone = WorkspaceProblem(names.repo_gone_message(repo.path, f"holdfast workspaces clean {workspace.task_id}"))
        gone.passing = True
        raise gone
    wanted = await _branches_to_deliver(git, repo, workspace, git_dir)
    if not wanted:
        return
    async with hold_repo_lock(repo.common_dir):
        faults.effect("clone.deliver")
        await _deliver_all(git, repo, git_dir, wanted)
        faults.passed("clone.delivered")


async def _branches_to_deliver(git: Git, repo: Repo, workspace: Workspace, git_dir: str) -> dict[str, str]:
    """Return branch → commit: the branches to write in the user's repository.

    The number of git processes does not depend on the number of refs. If the agent made more than MOST_REFS, only the
    task's own branch is delivered: the salvage holds the others.
    """
    found = await _list_clone_refs(git, git_dir)
    tip = found.pop(f"refs/heads/{workspace.branch}", None)
    new = await _find_new_commits(git, repo, workspace, {*found.values(), *([tip] if tip else [])})
    wanted = {str(workspace.branch): tip} if tip is not None and await _has_result(git, repo, workspace, tip) else {}
    others = {ref: commit for ref, commit in found.items() if commit in new and commit not in wanted.values()}
    if len(others) <= MOST_REFS:
        wanted |= {_branch_for(workspace, ref): commit for ref, commit in others.items()}
    return wanted


async def _has_result(git: Git, repo: Repo, workspace: Workspace, tip: str) -> bool:
    """True if the task's branch has a commit beyond its base, even if another branch has the same commit."""
    return not await git.ok("merge-base", "--is-ancestor", tip, str(workspace.base_commit), cwd=repo.common_dir)


async def _find_new_commits(git: Git, repo: Repo, workspace: Workspace, commits: set[str]) -> set[str]:
    """Return the commits that neither a ref of the user's repository nor the base of the task reaches.

    A clone is born with all branches and tags of the user's repository. Only what the agent made or moved is new.
    """
    text = "".join(f"{commit}\n" for commit in sorted(commits)).encode()
    listed = await git.run("cat-file", "--batch-check=%(objectname)", cwd=repo.common_dir, stdin=text)
    missing = {line.split()[0] for line in listed.splitlines() if line.endswith(" missing")}
    text = "".join(f"{commit}\n" for commit in sorted(commits - missing)).encode()
    known = ("--not", "--all", *([workspace.base_commit] if workspace.base_commit else []))
    unreached = await git.run("rev-list", "--ignore-missing", "--stdin", *known, cwd=repo.common_dir, stdin=text)
    return missing | (set(unreached.split()) & commits)


async def _list_clone_refs(git: Git, git_dir: str) -> dict[str, str]:
    """Return ref → commit for every ref of the clone except those of its remotes, and for all stashes."""
    listed = await git.run("ls-remote", "--quiet", git_dir, cwd="/", settings=_SETTINGS)
    found = {}
    for line in listed.splitlines():
        commit, _, ref = line.partition("\t")
        if ref.startswith("refs/") and not ref.startswith("refs/remotes/") and ref != "refs/stash":
            found[ref.removesuffix("^{}")] = commit  # the commit of an annotated tag follows the tag itself
    for number, commit in enumerate(_list_stashes(git_dir)):
        found[f"refs/stash-{number}"] = commit
    return found


def _list_stashes(git_dir: str) -> list[str]:
    """Return all stashes, newest first. Only the newest stash is a ref. The others are in the reflog."""
    return [new for _old, new, _message in reversed(read_log(os.path.join(git_dir, "logs", "refs", "stash")))]


def _branch_for(workspace: Workspace, ref: str) -> str:
    """Return a branch name for another ref of the clone: next to the task's own branch, never the same."""
    name = ref.removeprefix("refs/").removeprefix("heads/")
    return f"{names.BRANCH_PREFIX}{workspace.task_id}-also/{name}"


async def _deliver_all(git: Git, repo: Repo, git_dir: str, wanted: Mapping[str, str]) -> None:
    """Deliver all branches with one fetch. If a branch is refused, deliver each one alone."""
    if len(wanted) > 1:
        try:
            refs = tuple(f"{commit}:refs/heads/{branch}" for branch, commit in wanted.items())
            await fetch_refs(git, repo.common_dir, git_dir, refs=refs)
            return
        except GitFailed as error:
            if not error.answered:
                raise
    for branch, commit in wanted.items():
        await _deliver_one(git, repo, git_dir, branch, commit)


async def _deliver_one(git: Git, repo: Repo, git_dir: str, branch: str, commit: str) -> None:
    ref = f"refs/heads/{branch}"
    try:
        await fetch_refs(git, repo.common_dir, git_dir, refs=(f"{commit}:{ref}",))
    except GitFailed as error:
        if "non-commit object" in error.err:  # a tag on a file or a directory: a branch cannot name that
            await fetch_refs(git, repo.common_dir, git_dir, refs=(f"{commit}:refs/tags/{branch}-{commit[:12]}",))
            return
        if "non-fast-forward" not in error.err:
            problem = WorkspaceProblem(f"its branch could not be brought into {repo.path}: {error}")
            problem.passing = error.passing
            raise problem from error
        # The branch was rewritten since its last delivery. Its old commit keeps a name.
        old = (await git.run("rev-parse", "--verify", ref, cwd=repo.common_dir)).strip()
        faults.effect("clone.keep_before")
        await git.run("update-ref", f"{ref}-before-{old[:12]}", old, cwd=repo.common_dir)
        await fetch_refs(git, repo.common_dir, git_dir, refs=(f"+{commit}:{ref}",))


_PASSED_ON = ("user.name", "user.email", "core.autocrlf", "core.eol", "core.ignoreCase")  # values, never commands
_LOCKS = ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock")
_REFS = (
    "+refs/heads/*:refs/heads/*",
    f"^refs/heads/{names.BRANCH_PREFIX}*",
    "+refs/remotes/origin/*:refs/remotes/origin/*",
    "+refs/tags/*:refs/tags/*",
)


class CloneStrategy(WorktreeStrategy):
    """A worktree strategy with its own way to create, save and remove. Plans, leftovers and branches are inherited."""

    own_git = True

    def __init__(self, home: str, git: Git) -> None:
        super().__init__(home, git)
        self._home = home
        self._git = git

    async def prepare(self, repo: Repo, workspace: Workspace, restore: str | None) -> None:
        """Create the clone. A failure raises: an agent never works in the user's checkout instead (R-TREE-05)."""
        owner_marker.write_marker(workspace)
        await self._clear(workspace)
        await self._fetch_all(repo, workspace)
        await self._configure(repo, workspace)
        filters = await self._git.disable_filters(workspace.path)
        workers = f"checkout.workers={min(4, os.cpu_count() or 1)}"
        faults.effect("clone.checkout")
        await self._git.run(
            "reset", "--quiet", "--hard", cwd=workspace.path, env=filters, settings=(workers,), timeout=3600
        )
        faults.passed("clone.ready")
        if restore is not None:
            await restore_salvage(self._git, self._home, repo, workspace, restore)

    async def _clear(self, workspace: Workspace) -> None:
        """Remove a half-made clone of a killed supervisor. No agent has worked in it, so there is nothing to save."""
        if os.path.lexists(workspace.path):
            leftover = names.half_made_path(self._home, workspace.id)
            await run_in_thread(delete_tree, leftover)
            move_to_trash(workspace.path, leftover)
            await run_in_thread(delete_tree, leftover)

    async def _fetch_all(self, repo: Repo, workspace: Workspace) -> None:
        """Fetch branches and tags. The task's own branch starts at its delivered commit, else at the base."""
        assert workspace.branch is not None
        ours = f"refs/heads/{workspace.branch}"
        known = await self._git.run("for-each-ref", "--format=%(objectname)", ours, cwd=repo.common_dir)
        start = known.strip() or str(workspace.base_commit)  # by id, because _REFS excludes our branches
        style = (await self._git.run("rev-parse", "--show-object-format", cwd=repo.common_dir)).strip()
        faults.effect("clone.init")
        await self._git.run(
            "init", "--quiet", "--template=", f"--object-format={style}", f"--initial-branch={workspace.branch}",
            workspace.path, cwd="/",
        )  # fmt: skip
        faults.effect("clone.fetch")
        await fetch_refs(
            self._git, workspace.path, repo.common_dir, "--update-head-ok", "--update-shallow",
            refs=(*_REFS, f"+{start}:{ours}"),
        )  # fmt: skip
        faults.passed("clone.fetched")

    async def _configure(self, repo: Repo, workspace: Workspace) -> None:
        """Copy the user's identity, the URL of `origin` (never with a login) and the private excludes.

        A user without an identity gets ours: in a container git finds no other, and would refuse the agent's commits.
        """
        settings = {key: await self._git.setting(key.lower(), repo.common_dir) for key in _PASSED_ON}
        if not settings["user.email"]:
            settings |= {"user.name": settings["user.name"] or names.OUR_NAME, "user.email": names.OUR_EMAIL}
        url = await self._git.setting("remote.origin.url", repo.common_dir)
        origin = _shareable_url(url or "", repo.path)
        if origin:
            settings["remote.origin.url"] = origin
            settings["remote.origin.fetch"] = "+refs/heads/*:refs/remotes/origin/*"
        config = os.path.join(workspace.path, ".git", "config")
        faults.effect("clone.configure")
        for key, value in settings.items():
            if value:
                await self._git.run("config", "--file", config, key, value, cwd="/")
        excludes = os.path.join(repo.common_dir, "info", "exclude")
        if os.path.isfile(excludes):
            os.makedirs(os.path.join(workspace.path, ".git", "info"), exist_ok=True)
            shutil.copyfile(excludes, os.path.join(workspace.path, ".git", "info", "exclude"))

    async def drop_stale_locks(self, repo: Repo, workspace: Workspace) -> None:
        """Remove locks that a killed git left (R-TREE-15). No process of the task lives, so the locks are unused."""
        await drop_branch_lock(self._git, repo.common_dir, workspace.branch)
        git_dir = _trusted_git_dir(workspace)
        if git_dir is None:
            return
        for name in (*_LOCKS, f"refs/heads/{workspace.branch}.lock"):
            with contextlib.suppress(OSError):
                faults.effect("clone.tidy")
                unlink_beneath(git_dir, name)

    async def is_intact(self, repo: Repo, workspace: Workspace) -> bool:
        git_dir = _trusted_git_dir(workspace)
        return git_dir is not None and os.path.isfile(os.path.join(git_dir, "HEAD"))

    async def bring_base(self, repo: Repo, workspace: Workspace, base_ref: str) -> None:
        """Fetch the branch as `holdfast/BRANCH` of a remote: the agent's own branches stay as they are."""
        git_dir = await run_in_thread(trust_clone_git_dir, workspace)
        if git_dir is None:
            return
        ref = f"+refs/heads/{base_ref}:refs/remotes/holdfast/{base_ref}"
        faults.effect("clone.base")
        await self._git.run(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow", "--no-auto-maintenance",
            "--no-recurse-submodules", repo.common_dir, ref, cwd=git_dir, settings=_SETTINGS,
            # a clone's settings could redirect to another URL
            env={**READ_ONLY_ENV, "GIT_ALLOW_PROTOCOL": "file"},
        )  # fmt: skip
        faults.passed("clone.base_there")

    async def deliver(self, repo: Repo, workspace: Workspace) -> None:
        await deliver_commits(self._git, repo, workspace)

    async def salvage(
        self,
        repo: Repo,
        workspace: Workspace,
        reason: str,
        rules: SalvageRules = DEFAULT_SALVAGE,
        *,
        over: str | None = None,
    ) -> SalvageResult | None:
        """Deliver the clone's commits first, then save the rest as for any other workspace.

        Nothing is delivered if a checkpoint is about to be restored (`over`): the discarded state is not a result of
        the task.
        """
        if over is None:
            await self.deliver(repo, workspace)
        own_git = await self._trusted_git(workspace)
        return await salvage_workspace(self._git, self._home, repo, workspace, reason, rules, own_git, over=over)

    def _own_git(self, workspace: Workspace) -> str | None:
        return find_clone_git_dir(workspace)

    async def _trusted_git(self, workspace: Workspace) -> str | None:
        return await run_in_thread(trust_clone_git_dir, workspace)

    async def put_away(self, repo: Repo, workspace: Workspace) -> bool:
        target = names.trash_path(self._home, workspace.id)
        await drop_branch_lock(self._git, repo.common_dir, workspace.branch)
        if not os.path.lexists(workspace.path):
            return os.path.lexists(target)
        if owner_marker.read_owner(workspace.path) != workspace.id:
            raise WorkspaceProblem(f"{workspace.path} carries no record of ours; it was left alone")
        return move_to_trash(workspace.path, target)


def _trusted_git_dir(workspace: Workspace) -> str | None:
    try:
        return find_clone_git_dir(workspace)
    except WorkspaceProblem:
        return None  # not as we made it; the salvage raises the same problem, and the workspace is preserved


def _shareable_url(url: str, base: str) -> str:
    """Return the URL of `origin` without a login, which the agent must not see. Relative paths become absolute.

    A token is often the user of an `https` address. Only ssh needs its user, and then without a password.
    """
    if re.match(r"\.\.?/", url):
        return os.path.normpath(os.path.join(base, url))
    scheme, is_address, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    login, at, host = authority.rpartition("@")
    if not is_address or not at:
        return url
    user = f"{login.partition(':')[0]}@" if "ssh" in scheme.lower() else ""
    return f"{scheme}://{user}{host}{slash}{path}"
