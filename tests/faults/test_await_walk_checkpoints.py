"""Checkpoints, cancelled at every await: no git lives on, nothing is locked, and doing it again ends where it would
have."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.faults.test_await_walk_workspaces import FEW, Trees
from tests.harness.await_walker import Ended, walk
from tests.integration.conftest import Workshop

from holdfast.core.model import Workspace
from holdfast.core.task_settings import SalvageRules
from holdfast.workspaces.names import checkpoint_ref
from holdfast.workspaces.port import CheckpointResult

RULES = SalvageRules()


def test_keeping_a_tree(workshop: Workshop) -> None:
    """R-RES-11: a stop ends one that is under way; the tree is as it was, and the next one is whole."""
    trees = Trees(workshop, "worktree")
    workspace = trees.made(dirty=True)
    tree, ref = Path(workspace.path), checkpoint_ref("task1", 1)
    workshop.fleet.git("add", "work.txt", cwd=tree)
    (tree / "work.txt").write_text("more precious")
    before = workshop.fleet.git("status", "--porcelain=v2", cwd=tree)

    def make() -> Coroutine[Any, Any, CheckpointResult | None]:
        return trees.strategy.checkpoint(workshop.repo, workspace, ref, RULES)

    def check(_ended: Ended[CheckpointResult | None]) -> None:
        trees.assert_calm()
        assert workshop.fleet.git("status", "--porcelain=v2", cwd=tree) == before
        kept = workshop.run(trees.strategy.checkpoint(workshop.repo, workspace, ref, RULES))
        assert kept is not None
        assert workshop.shadow("rev-parse", ref) == kept.commit
        assert workshop.run(trees.strategy.readable(workshop.repo, kept.commit)) is None

    walk(make, check, second=True, most=FEW)


def test_going_back(workshop: Workshop) -> None:
    """R-RES-11: cancelled anywhere, going back again brings the very state."""
    trees = Trees(workshop, "worktree")
    workspace = trees.made(dirty=True)
    tree = Path(workspace.path)
    workshop.fleet.git("add", "work.txt", cwd=tree)
    (tree / "work.txt").write_text("more precious")
    (tree / "README.md").unlink()
    before = workshop.fleet.git("status", "--porcelain=v2", "--branch", cwd=tree)
    kept = workshop.run(trees.strategy.checkpoint(workshop.repo, workspace, checkpoint_ref("task1", 1), RULES))
    assert kept is not None

    def go_back(where: Workspace) -> Coroutine[Any, Any, str]:
        assert kept is not None
        return trees.strategy.go_back(workshop.repo, where, kept.commit, RULES)

    def make() -> Coroutine[Any, Any, str]:
        (tree / "work.txt").write_text("something else")
        (tree / "new.txt").write_text("new")
        workshop.fleet.git("add", "--all", cwd=tree)
        workshop.fleet.git("commit", "--quiet", "-m", "later", cwd=tree)
        return go_back(workspace)

    def check(_ended: Ended[str]) -> None:
        trees.assert_calm()
        workshop.run(trees.strategy.drop_stale_locks(workshop.repo, workspace))
        workshop.run(go_back(workspace))
        assert workshop.fleet.git("status", "--porcelain=v2", "--branch", cwd=tree) == before
        assert (tree / "work.txt").read_text() == "more precious"

    walk(make, check, second=True, most=FEW)
