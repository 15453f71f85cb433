"""The disk side of the sweep: one look at disk and repositories, then the removal of single leftovers.

Each leftover is checked again before its removal. Nothing is removed that a living Holdfast could be creating at this
moment. Git entries are created and dropped under the repository's lock. A marker is dropped only if its content is
unchanged and its workspace does not exist.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from holdfast.base import faults
from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import WorkspaceProblem
from holdfast.core.cleanup.compare import Finding, SweepAction
from holdfast.core.cleanup.observed import ObservedBranch, ObservedState
from holdfast.core.model import Repo
from holdfast.workspaces import names
from holdfast.workspaces.git import worktree_entries
from holdfast.workspaces.git.branch_files import delete_branch
from holdfast.workspaces.git.git import Git, GitFailed, run_sync
from holdfast.workspaces.git.repo_lock import hold_repo_lock
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.removal.inventory import HALF_WRITTEN_SUFFIX, DiskInventory, read_mark
from holdfast.workspaces.removal.trash import delete_tree, is_needed_marker

_LIST_BRANCHES = ("for-each-ref", "--format=%(objectname) %(refname:short)", f"refs/heads/{names.BRANCH_PREFIX}")
PATIENCE = 20.0  # seconds for the list of branches of one repository


class DiskSweeper:
    """The WorkspaceSweeper port, for the disk and the repositories."""

    def __init__(self, home: str, git: Git) -> None:
        self._home = home
        self._git = git

    async def look(self, repos: Sequence[Repo]) -> ObservedState:
        there = [repo for repo in repos if os.path.isdir(repo.common_dir)]
        branches: list[ObservedBranch] = []
        unseen: list[tuple[str, str]] = []
        for repo in there:
            try:
                listed = await self._git.run(*_LIST_BRANCHES, cwd=repo.common_dir, timeout=PATIENCE)
                branches += _parse_branches(repo, listed)
            except (GitFailed, OSError) as error:
                unseen.append((repo.common_dir, str(error)))
        return await run_in_thread(_build_scene, self._home, there, branches, unseen)

    def is_still_true(self, finding: Finding) -> bool:
        path = finding.where
        if finding.action is SweepAction.TAKE_IN:
            return os.path.isdir(path) and read_mark(path + names.OWNER_SUFFIX) == finding.mark
        if finding.action is SweepAction.LET_GO:
            return not os.path.lexists(path) and read_mark(path + names.OWNER_SUFFIX) is not None
        return True

    async def carry_out(self, finding: Finding, repo: Repo | None) -> bool:
        if finding.action is SweepAction.DROP_MARKER:
            return self._drop_marker(finding)
        if finding.action is SweepAction.MARK and finding.workspace is not None:
            await run_in_thread(
                owner_marker.write_marker, finding.workspace
            )  # it calls fsync, and there may be hundreds
            return True
        if finding.action is SweepAction.DROP_TRASH:
            return await self._drop_trash(finding.where)
        if repo is None or not os.path.isdir(repo.common_dir):
            return False
        if finding.action is SweepAction.DROP_ENTRY:
            async with hold_repo_lock(repo.common_dir):
                return await run_in_thread(self._drop_entry, repo, finding.where)
        if finding.action is SweepAction.DROP_BRANCH:
            return await self._drop_branch(repo, *finding.where.split(" "))
        raise WorkspaceProblem(f"The sweep does not know how to {finding.action}.")

    def _drop_marker(self, finding: Finding) -> bool:
        path = finding.where
        if os.path.lexists(path) or read_mark(path + names.OWNER_SUFFIX) != finding.mark:
            return False  # the workspace or its marker was written again since the look
        dropped = False
        for target in (path + names.OWNER_SUFFIX, path + HALF_WRITTEN_SUFFIX):
            faults.effect("sweep.marker")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target)
                dropped = True
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(path))  # the repository's folder, if this was the last marker in it
        return dropped

    async def _drop_trash(self, path: str) -> bool:
        if not os.path.lexists(path) or is_needed_marker(path):
            return False
        await run_in_thread(delete_tree, path)
        return True

    def _drop_entry(self, repo: Repo, folder: str) -> bool:
        """Drop an entry without a tree. The caller holds the repository's lock, so no workspace is half-made."""
        tree = worktree_entries.read_worktree_path(folder)
        if not os.path.isdir(folder) or (tree is not None and os.path.lexists(tree)):
            return False
        worktree_entries.drop_known_entry(repo.common_dir, folder)
        return True

    async def _drop_branch(self, repo: Repo, branch: str, tip: str) -> bool:
        """Delete the branch, if it is not checked out and still at the tip that was seen."""
        if worktree_entries.is_checked_out(repo.common_dir, branch):
            return False
        faults.effect("sweep.branch")
        await delete_branch(self._git, repo.common_dir, f"refs/heads/{branch}", tip)
        return True


def observe_now(home: str, repos: Sequence[Repo]) -> ObservedState:
    """Return the state that `DiskSweeper.look` returns, for a command that has no event loop."""
    there = [repo for repo in repos if os.path.isdir(repo.common_dir)]
    branches: list[ObservedBranch] = []
    unseen: list[tuple[str, str]] = []
    for repo in there:
        code, out, err = run_sync(*_LIST_BRANCHES, cwd=repo.common_dir, timeout=PATIENCE)
        if code == 0:
            branches += _parse_branches(repo, out)
        else:
            unseen.append((repo.common_dir, err.strip()))
    return _build_scene(home, there, branches, unseen)


def _parse_branches(repo: Repo, listed: str) -> list[ObservedBranch]:
    pairs = [line.split(" ", 1) for line in listed.splitlines() if " " in line]
    return [ObservedBranch(repo=repo.id, name=name, tip=tip) for tip, name in pairs]


def _build_scene(
    home: str, repos: Sequence[Repo], branches: list[ObservedBranch], unseen: list[tuple[str, str]]
) -> ObservedState:
    inventory = DiskInventory(home)
    places, entries, trash = tuple(inventory.places()), tuple(inventory.entries(repos)), inventory.trash()
    return ObservedState(
        places=places,
        entries=entries,
        branches=tuple(branches),
        trash=tuple(trash),
        odd=tuple(inventory.odd),
        unseen=(*unseen, *inventory.unseen),
    )
