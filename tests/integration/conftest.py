"""A workshop for workspace tests: real git, real directories, no supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.fleet import Fleet

from holdfast.core.model import Repo, Strategy, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperRunner
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.names import workspace_path
from holdfast.workspaces.strategies.directory import DirectoryStrategy
from holdfast.workspaces.strategies.worktree import WorktreeStrategy

T = TypeVar("T")


class Workshop:
    """Makes, dirties, saves and removes workspaces of one repository."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.home = str(fleet.home)
        fleet.home.mkdir()
        runner = HelperRunner(Children())
        self.git = Git(runner)
        self.repo = Repo(id="repo1", path=str(fleet.repo), common_dir=str(fleet.repo / ".git"))
        self.worktrees = WorktreeStrategy(self.home, self.git)
        self.directories = DirectoryStrategy(self.home, self.git, runner, copy=False)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """One coroutine to its end, with the test's own git configuration."""
        before = os.environ.get("HOME")
        os.environ["HOME"] = self.fleet.env["HOME"]
        try:
            return asyncio.run(work)
        finally:
            if before is not None:
                os.environ["HOME"] = before

    def workspace(self, task: str = "task1", strategy: Strategy = Strategy.WORKTREE) -> Workspace:
        is_tree = strategy in (Strategy.WORKTREE, Strategy.CLONE)
        return Workspace(
            id=f"ws-{task}",
            task_id=task,
            repo_id=self.repo.id,
            strategy=strategy,
            path=workspace_path(self.home, self.repo.id, task),
            branch=f"holdfast/{task}" if is_tree else None,
            base_commit=self.fleet.git("rev-parse", "HEAD") if is_tree else None,
            state=WorkspaceState.READY,
            disposition=None,
        )

    def made(self, task: str = "task1") -> tuple[Workspace, Path]:
        workspace = self.workspace(task)
        self.run(self.worktrees.prepare(self.repo, workspace, None))
        return workspace, Path(workspace.path)

    @contextlib.contextmanager
    def holding(self, path: str) -> Iterator[None]:
        """Another process that has that file open."""
        with open(path, "ab") as held, subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=held) as process:
            yield
            process.communicate()

    @contextlib.contextmanager
    def git_at_work(self) -> Iterator[None]:
        """Somebody's git in the repository, which waits for more input. Not our child: that would be one of ours."""
        command = ["sh", "-c", "git cat-file --batch; true"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=self.fleet.repo, stdin=pipe, stdout=pipe) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"HEAD\n")
            process.stdin.flush()
            process.stdout.readline()  # it is at work
            yield
            process.communicate()

    def shadow(self, *arguments: str) -> str:
        return self.fleet.git(*arguments, cwd=Path(self.home) / "shadows" / f"{self.repo.id}.git")


@pytest.fixture
def workshop(fleet: Fleet) -> Workshop:
    return Workshop(fleet)
