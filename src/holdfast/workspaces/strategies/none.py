"""No workspace: the agent works in the user's checkout. One task at a time uses a path, and nothing is cleaned up."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from holdfast.base.errors import LaunchError, WorkspaceProblem
from holdfast.core.model import Repo, Workspace
from holdfast.core.task_settings import DEFAULT_SALVAGE, SalvageRules
from holdfast.workspaces.names import repo_gone_message
from holdfast.workspaces.port import (
    NO_CHECKPOINTS,
    NO_EDITS,
    BaseComparison,
    CheckpointResult,
    SalvageResult,
    WorkspacePlan,
)


class NoneStrategy:
    """The user's own checkout. Nothing is created, saved or removed."""

    async def plan(self, repo: Repo, task_id: str, base_ref: str, branch: str | None, fresh_name: int) -> WorkspacePlan:
        if not os.path.isdir(repo.path):
            raise LaunchError(repo_gone_message(repo.path, f"holdfast retry {task_id}") + ".")
        return WorkspacePlan(path=repo.path, branch=None, base_commit=None)

    async def prepare(self, repo: Repo, workspace: Workspace, restore: str | None) -> None:
        return

    async def drop_stale_locks(self, repo: Repo, workspace: Workspace) -> None:
        return  # the checkout has no git entry of ours

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
        return None  # the files belong to the user, who decides what to commit

    async def deliver(self, repo: Repo, workspace: Workspace) -> None:
        return  # the task has no branch

    async def salvage(
        self,
        repo: Repo,
        workspace: Workspace,
        reason: str,
        rules: SalvageRules = DEFAULT_SALVAGE,
        *,
        over: str | None = None,
    ) -> SalvageResult | None:
        return None  # nothing is removed, so nothing can be lost

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
        return None  # there are no checkpoints

    async def checkpoint(
        self, repo: Repo, workspace: Workspace, ref: str, rules: SalvageRules, unless: str | None = None
    ) -> CheckpointResult | None:
        raise WorkspaceProblem(NO_CHECKPOINTS)

    async def readable(self, repo: Repo, commit: str) -> str | None:
        return NO_CHECKPOINTS

    async def keeps_branch_commits(self, repo: Repo, workspace: Workspace, commit: str) -> bool:
        return False

    async def go_back(self, repo: Repo, workspace: Workspace, commit: str, rules: SalvageRules) -> str:
        raise WorkspaceProblem(NO_CHECKPOINTS)

    async def put_away(self, repo: Repo, workspace: Workspace) -> bool:
        return False

    async def drop_empty_branch(self, repo: Repo, workspace: Workspace) -> bool:
        return False

    async def delete_trash(self, workspace: Workspace) -> None:
        return
