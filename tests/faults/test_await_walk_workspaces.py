"""Workspaces, cancelled at every await: no git lives on, no lock stays, and doing it again ends where it would have."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.conftest import assert_free, assert_no_process
from tests.harness.await_walker import Ended, walk
from tests.integration.conftest import Workshop
from tests.sampling import amount

from holdfast.core.model import Strategy, Workspace
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperRunner
from holdfast.workspaces.names import REPO_LOCK, salvage_ref
from holdfast.workspaces.port import SalvageResult, WorkspaceStrategy
from holdfast.workspaces.strategies.clone import CloneStrategy
from holdfast.workspaces.strategies.directory import DirectoryStrategy
from holdfast.workspaces.strategies.worktree import WorktreeStrategy


class Trees:
    """A workspace per case, of one strategy, and what must hold after each."""

    def __init__(self, workshop: Workshop, kind: str) -> None:
        self.workshop = workshop
        self.is_tree = kind in ("worktree", "clone")
        self.kind = Strategy(kind) if self.is_tree else Strategy.DIRECTORY
        runner = HelperRunner(Children())
        self.strategy: WorkspaceStrategy = (
            (CloneStrategy if kind == "clone" else WorktreeStrategy)(workshop.home, workshop.git)
            if self.is_tree
            else DirectoryStrategy(workshop.home, workshop.git, runner, copy=kind == "copy")
        )
        self._number = 0

    def next(self) -> Workspace:
        self._number += 1
        return self.workshop.workspace(f"task{self._number}", self.kind)

    def made(self, *, dirty: bool) -> Workspace:
        workspace = self.next()
        self.workshop.run(self.strategy.prepare(self.workshop.repo, workspace, None))
        if dirty:
            (Path(workspace.path) / "work.txt").write_text("precious")
        return workspace

    def assert_calm(self) -> None:
        """Right after the cancellation: nothing of ours runs, nothing is locked, no scratch is left."""
        assert_no_process(self.workshop.fleet)
        assert_free(Path(self.workshop.repo.common_dir) / REPO_LOCK)
        shadows = Path(self.workshop.home) / "shadows"
        assert_free(shadows / f"{self.workshop.repo.id}.git.lock")
        if shadows.exists():
            scratch = [item.name for item in shadows.iterdir() if item.name.startswith(("salvage-", "restore-"))]
            assert not scratch

    def remove(self, workspace: Workspace) -> None:
        run, repo = self.workshop.run, self.workshop.repo
        run(self.strategy.put_away(repo, workspace))
        run(self.strategy.drop_empty_branch(repo, workspace))
        run(self.strategy.delete_trash(workspace))
        self.assert_gone(workspace)

    def assert_gone(self, workspace: Workspace) -> None:
        """R-TREE-01: directory, admin entry, marker and trash."""
        assert not Path(workspace.path).exists()
        assert self.workshop.fleet.worktrees() == []
        assert not Path(workspace.path + ".owner.json").exists()
        assert list((Path(self.workshop.home) / "workspaces" / ".trash").glob("*")) == []


FEW = 4  # a clone costs twenty calls of git; `make faults` walks all of it
HALF_MADE = 40  # files: enough that deleting them takes its time


def half_make(trees: Trees, workspace: Workspace) -> None:
    """What a try leaves that was killed in the middle."""
    for number in range(HALF_MADE):
        folder = Path(workspace.path) / f"half{number}"
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        *((kind, before) for kind in ("worktree", "empty", "copy") for before in ("nothing", "half made")),
        ("clone", "half made"),
    ],
)
def test_making_a_workspace(workshop: Workshop, kind: str, before: str) -> None:
    """R-TREE-01, R-TREE-07: cancelled anywhere, it can be made again at once, and then it is whole."""
    trees = Trees(workshop, kind)
    current: list[Workspace] = []

    def make() -> Coroutine[Any, Any, None]:
        current[:] = [trees.next()]
        if before == "half made":
            half_make(trees, current[0])
        return trees.strategy.prepare(workshop.repo, current[0], None)

    def check(_ended: Ended[None]) -> None:
        trees.assert_calm()
        workshop.run(trees.strategy.prepare(workshop.repo, current[0], None))
        assert workshop.run(trees.strategy.is_intact(workshop.repo, current[0]))
        names = sorted(item.name for item in Path(current[0].path).iterdir())
        assert (
            names
            == {
                "worktree": [".git", "README.md", "src"],
                "clone": [".git", "README.md", "src"],
                "empty": [],
                "copy": ["README.md", "src"],
            }[kind]
        )
        trees.remove(current[0])
        assert workshop.fleet.branches() == []

    walk(make, check, second=True, most=FEW if kind == "clone" else amount(8, in_all=16))


@pytest.mark.parametrize("kind", ["worktree", "empty"])
@pytest.mark.parametrize("has_commit", [False, True])
def test_removing_a_workspace(workshop: Workshop, kind: str, has_commit: bool) -> None:
    """R-TREE-01: cancelled anywhere, removing again leaves nothing, and a branch with work stays."""
    trees = Trees(workshop, kind)
    current: list[Workspace] = []

    def make() -> Coroutine[Any, Any, None]:
        current[:] = [trees.made(dirty=False)]
        if has_commit and trees.is_tree:
            workshop.fleet.git("commit", "--quiet", "--allow-empty", "-m", "work", cwd=Path(current[0].path))
        return remove(current[0])

    async def remove(workspace: Workspace) -> None:
        await trees.strategy.put_away(workshop.repo, workspace)
        await trees.strategy.drop_empty_branch(workshop.repo, workspace)
        await trees.strategy.delete_trash(workspace)

    def check(_ended: Ended[None]) -> None:
        trees.assert_calm()
        trees.remove(current[0])
        expected = [current[0].branch] if has_commit and trees.is_tree else []
        assert workshop.fleet.branches() == expected
        for branch in workshop.fleet.branches():
            workshop.fleet.git("branch", "-D", branch)

    walk(make, check, second=True, most=amount(8, in_all=16))


@pytest.mark.parametrize(
    ("kind", "shadow"),
    [
        *((kind, shadow) for kind in ("worktree", "empty") for shadow in ("made before", "made now")),
        ("clone", "made before"),
    ],
)
def test_saving_work(workshop: Workshop, kind: str, shadow: str) -> None:
    """Cancelled anywhere, the tree is as it was, and saving again saves every byte."""
    trees = Trees(workshop, kind)
    current: list[Workspace] = []

    def make() -> Coroutine[Any, Any, SalvageResult | None]:
        if shadow == "made now":
            forget_shadow(workshop)
        current[:] = [trees.made(dirty=True)]
        if trees.is_tree:
            workshop.fleet.git("commit", "--quiet", "--allow-empty", "-m", "Delivered", cwd=Path(current[0].path))
            workshop.fleet.git("add", "work.txt", cwd=Path(current[0].path))
            (Path(current[0].path) / "work.txt").write_text("more precious")
        return trees.strategy.salvage(workshop.repo, current[0], "walked")

    def check(_ended: Ended[SalvageResult | None]) -> None:
        trees.assert_calm()
        expected = "more precious" if trees.is_tree else "precious"
        assert (Path(current[0].path) / "work.txt").read_text() == expected
        saved = workshop.run(trees.strategy.salvage(workshop.repo, current[0], "again"))
        assert saved is not None
        assert workshop.shadow("show", f"{saved.commit}:work.txt") == expected
        assert workshop.shadow("rev-parse", salvage_ref(current[0].task_id, current[0].id)) == saved.commit
        if trees.is_tree:
            assert workshop.shadow("show", f"{saved.commit}^2:work.txt") == "precious"  # the index
            assert workshop.fleet.git("log", "--format=%s", "-1", str(current[0].branch)) == "Delivered"
        trees.remove(current[0])

    walk(make, check, second=True, most=FEW if kind == "clone" else amount(6, in_all=12))


def forget_shadow(workshop: Workshop) -> None:
    for item in (Path(workshop.home) / "shadows").glob("*.git"):
        item.rename(workshop.fleet.root / f"old-shadow-{len(list(workshop.fleet.root.iterdir()))}")


def test_starting_from_saved_work(workshop: Workshop) -> None:
    """A restore that is cancelled is done again from the beginning: the tree then equals what was saved."""
    trees = Trees(workshop, "worktree")
    first = trees.made(dirty=True)
    saved = workshop.run(trees.strategy.salvage(workshop.repo, first, "to be restored"))
    assert saved is not None
    trees.remove(first)
    current: list[Workspace] = []

    def make() -> Coroutine[Any, Any, None]:
        current[:] = [replace(first, id=f"{trees.next().id}-again")]
        return trees.strategy.prepare(workshop.repo, current[0], saved.commit)

    def check(_ended: Ended[None]) -> None:
        trees.assert_calm()
        workshop.run(trees.strategy.prepare(workshop.repo, current[0], saved.commit))
        assert (Path(current[0].path) / "work.txt").read_text() == "precious"
        trees.remove(current[0])

    walk(make, check, second=True, most=amount(6, in_all=12))


def test_committing_leftovers(workshop: Workshop) -> None:
    """Cancelled anywhere, nothing is lost, and committing again (after the locks are tidied) holds everything once."""
    trees = Trees(workshop, "worktree")
    current: list[Workspace] = []
    commit: Callable[[], Coroutine[Any, Any, str | None]] = lambda: trees.strategy.commit_leftovers(  # noqa: E731
        workshop.repo, current[0], "all", "Leftovers"
    )

    def make() -> Coroutine[Any, Any, str | None]:
        current[:] = [trees.made(dirty=True)]
        return commit()

    def check(_ended: Ended[str | None]) -> None:
        trees.assert_calm()
        workshop.run(trees.strategy.drop_stale_locks(workshop.repo, current[0]))
        workshop.run(commit())
        branch = str(current[0].branch)
        assert workshop.fleet.file_on_branch(branch, "work.txt") == "precious"
        assert workshop.fleet.git("rev-list", "--count", f"main..{branch}") == "1"
        trees.remove(current[0])
        workshop.fleet.git("branch", "-D", branch)

    walk(make, check, second=True, most=amount(8, in_all=16))
