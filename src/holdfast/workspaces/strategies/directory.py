"""A plain directory: empty, or a copy of the checkout without its `.git`. It is salvaged before its removal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from holdfast.base import faults
from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import LaunchError, WorkspaceProblem
from holdfast.core.model import Repo, Workspace
from holdfast.core.task_settings import DEFAULT_SALVAGE, SalvageRules
from holdfast.workspaces import names
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.git.hardening import environment
from holdfast.workspaces.port import (
    NO_EDITS,
    BaseComparison,
    CheckpointResult,
    CommandRunner,
    SalvageResult,
    WorkspacePlan,
)
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.removal.trash import delete_remains, delete_tree, move_to_trash
from holdfast.workspaces.snapshots.checkpoint import take_checkpoint
from holdfast.workspaces.snapshots.checkpoint_restore import fits, go_back, unreadable
from holdfast.workspaces.snapshots.salvage import restore_salvage, salvage_checkpoint, salvage_workspace
from holdfast.workspaces.strategies import copy_checkout


class MadeByAnother(WorkspaceProblem):
    """The directory appeared while we made it: a supervisor that was replaced was at the same step. Try again."""

    passing = True


class DirectoryStrategy:
    """A plain directory per task, without git. `copy`: it begins as a copy of the user's checkout."""

    def __init__(self, home: str, git: Git, runner: CommandRunner, *, copy: bool) -> None:
        self._home = home
        self._git = git
        self._runner = runner
        self._copy = copy

    async def plan(self, repo: Repo, task_id: str, base_ref: str, branch: str | None, fresh_name: int) -> WorkspacePlan:
        if self._copy and not os.path.isdir(repo.path):
            raise LaunchError(names.repo_gone_message(repo.path, f"holdfast retry {task_id}") + ".")
        return WorkspacePlan(path=names.workspace_path(self._home, repo.id, task_id), branch=None, base_commit=None)

    async def prepare(self, repo: Repo, workspace: Workspace, restore: str | None) -> None:
        owner_marker.write_marker(workspace)
        if os.path.lexists(workspace.path):
            await run_in_thread(delete_tree, workspace.path)  # half-made: no agent has worked in it yet
        faults.effect("directory.make")
        if self._copy and restore is None:
            await self._copy_checkout(repo.path, workspace.path)
        else:
            try:
                os.makedirs(workspace.path, mode=0o700)
            except FileExistsError as error:
                raise MadeByAnother(f"Another process made {workspace.path} at the same moment.") from error
        faults.passed("directory.made")
        if restore is not None:
            await restore_salvage(self._git, self._home, repo, workspace, restore)

    async def _copy_checkout(self, source: str, target: str) -> None:
        argv = [sys.executable, "-I", "-X", "utf8", copy_checkout.__file__, source, target]
        code, _out, err = await self._runner(argv, cwd="/", env=environment(), timeout=3600)
        if code == copy_checkout.TARGET_EXISTS:
            raise MadeByAnother(f"Another process made {target} at the same moment.")
        if code != 0:
            last = err.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise WorkspaceProblem(f"{source} could not be copied: {last[0]}")

    async def drop_stale_locks(self, repo: Repo, workspace: Workspace) -> None:
        return  # a plain directory has no git entry

    async def is_intact(self, repo: Repo, workspace: Workspace) -> bool:
        return os.path.isdir(workspace.path)

    async def identity(self, workspace: Workspace) -> Mapping[str, str]:
        return {}  # no branch of ours, so no commit either

    async def commit_leftovers(
        self,
        repo: Repo,
        workspace: Workspace,
        mode: str,
        message: str,
        leave: Sequence[str] = (),
        rules: SalvageRules = DEFAULT_SALVAGE,
        own_edits: Mapping[str, str] = NO_EDITS,
        author: Mapping[str, str] = NO_EDITS,
        later: str = "",
    ) -> str | None:
        return None  # there is no branch: a salvage saves the result with all other files

    async def deliver(self, repo: Repo, workspace: Workspace) -> None:
        return  # a plain directory has no branch

    async def salvage(
        self,
        repo: Repo,
        workspace: Workspace,
        reason: str,
        rules: SalvageRules = DEFAULT_SALVAGE,
        *,
        over: str | None = None,
    ) -> SalvageResult | None:
        return await salvage_workspace(self._git, self._home, repo, workspace, reason, rules, over=over)

    async def list_missing(self, repo: Repo, commits: Sequence[str]) -> list[str]:
        return []  # there are no commits of ours

    async def has_delivered(self, repo: Repo, workspace: Workspace) -> bool:
        return False  # there is no branch

    async def bring_base(self, repo: Repo, workspace: Workspace, base_ref: str) -> None:
        return  # there is no branch to rebase

    async def compare_with_base(self, repo: Repo, workspace: Workspace, base_ref: str) -> BaseComparison | None:
        return None  # there is no branch

    async def salvage_checkpoint(
        self, repo: Repo, workspace: Workspace, checkpoint: CheckpointResult, reason: str
    ) -> SalvageResult | None:
        return await salvage_checkpoint(self._git, self._home, repo, workspace, checkpoint, reason)

    async def checkpoint(
        self, repo: Repo, workspace: Workspace, ref: str, rules: SalvageRules, unless: str | None = None
    ) -> CheckpointResult | None:
        return await take_checkpoint(self._git, self._home, repo, workspace, ref, rules, unless)

    async def readable(self, repo: Repo, commit: str) -> str | None:
        return await unreadable(self._git, self._home, repo, commit)

    async def keeps_branch_commits(self, repo: Repo, workspace: Workspace, commit: str) -> bool:
        return await fits(self._git, self._home, repo, workspace, commit)

    async def go_back(self, repo: Repo, workspace: Workspace, commit: str, rules: SalvageRules) -> str:
        return await go_back(self._git, self._home, repo, workspace, commit, rules)

    async def put_away(self, repo: Repo, workspace: Workspace) -> bool:
        target = names.trash_path(self._home, workspace.id)
        if not os.path.lexists(workspace.path):
            return os.path.lexists(target)
        if owner_marker.read_owner(workspace.path) != workspace.id:
            raise WorkspaceProblem(f"{workspace.path} carries no record of ours; it was left alone")
        return move_to_trash(workspace.path, target)

    async def drop_empty_branch(self, repo: Repo, workspace: Workspace) -> bool:
        return False

    async def delete_trash(self, workspace: Workspace) -> None:
        await delete_remains(self._home, workspace)
