"""What every workspace strategy must do, whatever it is made of: one suite, all strategies."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fleet import Fleet
from tests.integration.conftest import Workshop

from holdfast.base import faults
from holdfast.base.errors import WorkspaceProblem, is_transient
from holdfast.core.model import Strategy, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperRunner
from holdfast.workspaces.port import WorkspaceStrategy
from holdfast.workspaces.strategies.clone import CloneStrategy
from holdfast.workspaces.strategies.directory import DirectoryStrategy
from holdfast.workspaces.strategies.none import NoneStrategy
from holdfast.workspaces.strategies.worktree import WorktreeStrategy

KINDS = {
    "worktree": Strategy.WORKTREE,
    "clone": Strategy.CLONE,
    "directory": Strategy.DIRECTORY,
    "directory:copy": Strategy.DIRECTORY,
    "none": Strategy.NONE,
}
MADE_BY_US = [kind for kind in KINDS if kind != "none"]
ON_A_BRANCH = ["worktree", "clone"]


@pytest.fixture
def workshop(fleet: Fleet) -> Workshop:
    return Workshop(fleet)


class Bench:
    """One strategy, and one workspace planned by it."""

    def __init__(self, workshop: Workshop, kind: str) -> None:
        self.shop = workshop
        self.run = workshop.run
        self.repo = workshop.repo
        self.fleet = workshop.fleet
        home, git, runner = workshop.home, workshop.git, HelperRunner(Children())
        builders: dict[str, Callable[[], WorkspaceStrategy]] = {
            "worktree": lambda: WorktreeStrategy(home, git),
            "clone": lambda: CloneStrategy(home, git),
            "directory": lambda: DirectoryStrategy(home, git, runner, copy=False),
            "directory:copy": lambda: DirectoryStrategy(home, git, runner, copy=True),
            "none": NoneStrategy,
        }
        self.strategy = builders[kind]()
        plan = self.run(self.strategy.plan(self.repo, "task1", "HEAD", None, 0))
        self.workspace = Workspace(
            id="ws1",
            task_id="task1",
            repo_id=self.repo.id,
            strategy=KINDS[kind],
            path=plan.path,
            branch=plan.branch,
            base_commit=plan.base_commit,
            state=WorkspaceState.READY,
            disposition=None,
        )
        self.path = Path(plan.path)

    def make(self, restore: str | None = None) -> None:
        self.run(self.strategy.prepare(self.repo, self.workspace, restore))

    def remove(self) -> None:
        self.run(self.strategy.put_away(self.repo, self.workspace))
        self.run(self.strategy.drop_empty_branch(self.repo, self.workspace))
        self.run(self.strategy.delete_trash(self.workspace))

    def users_view(self) -> tuple[str, str, str]:
        """What the user would see of the repository: state of the checkout, refs, configuration."""
        return (
            self.fleet.git("status", "--porcelain", "--ignored"),
            self.fleet.git("for-each-ref"),
            (self.fleet.repo / ".git" / "config").read_text(),
        )


@pytest.mark.parametrize("kind", KINDS)
def test_made_used_saved_and_removed(workshop: Workshop, kind: str) -> None:
    """R-CLEAN-05, R-TREE-13: it is made whole, its work is saved byte for byte, and nothing of it stays behind; the
    user's checkout, refs and configuration are as they were. `none` has nothing to clean and touches nothing."""
    bench = Bench(workshop, kind)
    before = bench.users_view()
    bench.make()
    assert bench.run(bench.strategy.is_intact(bench.repo, bench.workspace))
    if kind == "none":
        bench.remove()
        assert bench.users_view() == before
        assert bench.path.is_dir()
        return
    assert bench.path != bench.fleet.repo
    assert (bench.path / "README.md").exists() == (kind != "directory")
    (bench.path / "work.bin").write_bytes(b"\x00precious\r\n")
    bench.run(bench.strategy.drop_stale_locks(bench.repo, bench.workspace))
    bench.run(bench.strategy.deliver(bench.repo, bench.workspace))
    saved = bench.run(bench.strategy.salvage(bench.repo, bench.workspace, "contract"))
    assert saved is not None
    assert workshop.shadow("cat-file", "-s", f"{saved.commit}:work.bin") == "11"
    bench.remove()
    assert not bench.path.exists()
    left = [str(item.relative_to(bench.fleet.home)) for item in bench.fleet.home.glob("workspaces/**/*")]
    assert left in ([], ["workspaces/.trash"])
    assert bench.users_view() == before
    bench.remove()  # again: a quiet no-op
    bench.make(saved.commit)
    assert (bench.path / "work.bin").read_bytes() == b"\x00precious\r\n"
    bench.remove()


@pytest.mark.parametrize("kind", ["directory", "directory:copy"])
def test_a_directory_that_another_makes_meanwhile_is_tried_again(
    workshop: Workshop, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the family `usurped`: a replaced supervisor made it at the same moment, and the task failed."""
    bench = Bench(workshop, kind)
    with monkeypatch.context() as patched:
        rival = lambda point: bench.path.mkdir(parents=True) if point == "directory.make" else None  # noqa: E731
        patched.setattr(faults, "effect", rival)
        with pytest.raises(WorkspaceProblem) as problem:
            bench.make()
    assert is_transient(problem.value)
    bench.make()
    bench.remove()


@pytest.mark.parametrize("kind", MADE_BY_US)
def test_half_made_heals_and_without_our_record_nothing_is_removed(workshop: Workshop, kind: str) -> None:
    """R-TREE-07."""
    bench = Bench(workshop, kind)
    bench.path.mkdir(parents=True)
    (bench.path / "half").write_text("x")
    bench.make()
    assert not (bench.path / "half").exists()
    Path(f"{bench.path}.owner.json").unlink()
    with pytest.raises(WorkspaceProblem, match="no record of ours"):
        bench.run(bench.strategy.put_away(bench.repo, bench.workspace))
    assert bench.path.exists()


@pytest.mark.parametrize("kind", ON_A_BRANCH)
def test_what_was_committed_is_a_branch_of_the_users_repository(workshop: Workshop, kind: str) -> None:
    """R-TREE-13: the agent's commit, the leftovers as another; the branch outlives the workspace, and a second attempt
    continues from it."""
    bench = Bench(workshop, kind)
    bench.make()
    (bench.path / "one.txt").write_text("committed by the agent\n")
    bench.fleet.git("add", ".", cwd=bench.path)
    bench.fleet.git("commit", "--quiet", "-m", "one", cwd=bench.path)
    (bench.path / "two.txt").write_text("left\n")
    assert bench.run(bench.strategy.commit_leftovers(bench.repo, bench.workspace, "all", "Leftovers"))
    bench.run(bench.strategy.deliver(bench.repo, bench.workspace))
    assert bench.run(bench.strategy.salvage(bench.repo, bench.workspace, "contract")) is None
    bench.remove()
    assert bench.fleet.branches() == ["holdfast/task1"]
    assert bench.fleet.file_on_branch("holdfast/task1", "one.txt") == "committed by the agent"
    assert bench.fleet.file_on_branch("holdfast/task1", "two.txt") == "left"
    bench.make()
    assert (bench.path / "two.txt").read_text() == "left\n"
    assert bench.fleet.git("symbolic-ref", "HEAD", cwd=bench.path) == "refs/heads/holdfast/task1"
    shutil.rmtree(bench.path / ".git") if kind == "clone" else (bench.path / ".git").unlink()
    assert not bench.run(bench.strategy.is_intact(bench.repo, bench.workspace))
