"""Paths that a living agent exchanges while its files are copied: what is not the agent's is neither read nor written.

The agent's instants are played: each step of ours is a place where it may act.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.integration.conftest import Workshop

from holdfast.api.work import diff
from holdfast.base import faults
from holdfast.base.errors import Refused, WorkspaceProblem
from holdfast.checker import evidence
from holdfast.core.model import Strategy
from holdfast.core.task_settings import SalvageRules
from holdfast.workspaces.git.clone_git_dir import LARGEST_GIT_FILE
from holdfast.workspaces.git.index_entries import IndexEntry, find_touched_entries
from holdfast.workspaces.snapshots import collect_files
from holdfast.workspaces.snapshots.checkpoint import take_checkpoint
from holdfast.workspaces.snapshots.private_index import (
    PrivateIndex,
    TreeDifferences,
    _copy_files,
    copy_plain,
)
from holdfast.workspaces.strategies.clone import CloneStrategy

NO_LIMIT = 1 << 40


def on_step(monkeypatch: pytest.MonkeyPatch, name: str, acts: Sequence[Callable[[], object]]) -> None:
    """The agent's next act at each step of that name."""
    waiting, effect = list(acts), faults.effect

    def step(point: str) -> None:
        effect(point)
        if point == name and waiting:
            waiting.pop(0)()

    monkeypatch.setattr(faults, "effect", step)


@contextlib.contextmanager
def soon() -> Iterator[None]:
    """What happens in here is done within seconds."""

    def late(_number: int, _frame: object) -> None:
        raise AssertionError("it waits")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def nothing() -> None:
    pass


class Swapper:
    """`f`, which the agent makes a directory with a file, or a link to a directory of the user."""

    def __init__(self, tree: Path, victim: Path) -> None:
        self.tree, self.spare = tree, tree.parent / "spare"
        (tree / "f").unlink(missing_ok=True)
        (tree / "f").mkdir()
        (tree / "f" / "start").write_text("from the agent")
        self.spare.symlink_to(victim)
        victim.mkdir()
        (victim / "start").write_text("precious")

    def back(self) -> None:
        if (self.tree / "f").is_symlink():
            self.swap()

    def swap(self) -> None:
        (self.tree / "f").rename(self.tree.parent / "aside")
        self.spare.rename(self.tree / "f")
        (self.tree.parent / "aside").rename(self.spare)


def test_a_copy_never_goes_through_our_copy_of_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`f` is a link when it is copied, and a directory when `f/start` is copied."""
    tree, ours, victim = tmp_path / "tree", tmp_path / "ours", tmp_path / "victim"
    tree.mkdir()
    swapper = Swapper(tree, victim)
    on_step(monkeypatch, "desk.stage", [swapper.swap, swapper.swap])
    assert _copy_files(str(tree), str(ours), ["f", "f/start", "f/new"], NO_LIMIT) == (["f"], [])
    assert (victim / "start").read_text() == "precious"
    assert os.listdir(victim) == ["start"]


def test_a_copied_directory_does_not_become_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same list the other way round: the file below it is first."""
    tree, ours, victim = tmp_path / "tree", tmp_path / "ours", tmp_path / "victim"
    tree.mkdir()
    swapper = Swapper(tree, victim)
    on_step(monkeypatch, "desk.stage", [nothing, swapper.swap])
    assert _copy_files(str(tree), str(ours), ["f/start", "f"], NO_LIMIT) == (["f/start"], [])
    assert (ours / "f" / "start").read_text() == "from the agent"


@pytest.mark.parametrize("path", ["../victim", "f/../../victim", "/../victim"])
def test_a_path_that_leads_out_is_not_copied(tmp_path: Path, path: str) -> None:
    """git names none; a damaged index could."""
    (tmp_path / "tree" / "f").mkdir(parents=True)
    (tmp_path / "ours").mkdir()
    (tmp_path / "victim").write_text("precious")
    assert _copy_files(str(tmp_path / "tree"), str(tmp_path / "ours" / "taken"), [path], NO_LIMIT) == ([], [])
    assert sorted(os.listdir(tmp_path / "ours")) == ["taken"]


def test_a_file_that_became_too_large_is_not_copied(tmp_path: Path) -> None:
    """It was small when it was measured. A hole costs an agent nothing, and a copy of it would fill the disk."""
    (tmp_path / "tree").mkdir()
    os.truncate(os.open(tmp_path / "tree" / "f", os.O_CREAT | os.O_WRONLY), 1 << 40)
    assert _copy_files(str(tmp_path / "tree"), str(tmp_path / "ours"), ["f"], 1 << 20) == ([], ["f"])
    os.truncate(tmp_path / "tree" / "f", 1 << 30)
    assert _copy_files(str(tmp_path / "tree"), str(tmp_path / "again"), ["f"], 1 << 30) == (["f"], [])
    copy = os.stat(tmp_path / "again" / "f")
    assert (copy.st_size, copy.st_blocks < 1000) == (1 << 30, True), "holes stay holes"


def test_a_checkpoint_writes_nothing_through_the_link_of_an_agent(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the red team did it: git lists `f` as changed and `f/start` as new, then `f` is a link, then a directory."""
    git = workshop.fleet.git
    workspace, path = workshop.made()
    (path / "f").write_text("a file")
    git("add", "f", cwd=path)
    git("commit", "--quiet", "-m", "f", cwd=path)
    victim = workshop.fleet.root / "victim"
    swapper = Swapper(path, victim)
    listing = PrivateIndex.list_differences
    swaps = [swapper.swap]

    async def list_differences(self: PrivateIndex, litter: Sequence[str] = ()) -> TreeDifferences:
        found = await listing(self, litter)
        if swaps:
            swaps.pop()()
        return found

    monkeypatch.setattr(PrivateIndex, "list_differences", list_differences)
    on_step(monkeypatch, "desk.stage", [nothing, swapper.back])
    on_step(monkeypatch, "desk.take", [swapper.back])
    kept = workshop.run(
        take_checkpoint(workshop.git, workshop.home, workshop.repo, workspace, "refs/checkpoint/t/1", SalvageRules())
    )
    assert (victim / "start").read_text() == "precious"
    assert os.listdir(victim) == ["start"]
    assert kept is not None
    assert not swaps, "the agent had its chance"
    assert workshop.shadow("show", f"{kept.commit}:f/start") == "from the agent"


def test_a_file_behind_a_link_is_gone(tmp_path: Path) -> None:
    """A file of the user does not count as one of the agent's, or for its size."""
    tree, victim = tmp_path / "tree", tmp_path / "victim"
    tree.mkdir()
    swapper = Swapper(tree, victim)
    swapper.swap()
    found = collect_files._sort_paths(str(tree), ["f", "f/start"])
    assert (found.present, found.gone) == (["f"], ["f/start"])


@pytest.mark.parametrize("kind", ["pipe", "link", "way"])
def test_a_file_that_turns_into_something_else_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It was a plain file when it was looked at. A pipe was waited for by a thread, for ever."""
    tree, outside, lstat = tmp_path / "tree", tmp_path / "outside", os.lstat
    for folder in (tree / "d", outside):
        folder.mkdir(parents=True)
        (folder / "f").write_text("the same" if kind != "way" or folder.name == "d" else "of the user")
    oid = hashlib.sha1(b"blob 8\0the same", usedforsecurity=False).hexdigest()
    entry = IndexEntry("100644", oid, 0, "d/f", hidden=False, absent=False, times=(1, 1))
    assert find_touched_entries(str(tree), [entry]) == []

    def swap(path: str) -> os.stat_result:
        seen = lstat(path)
        if kind == "way":
            (tree / "d").rename(tree / "was")
            (tree / "d").symlink_to(outside)
        else:
            (tree / "d" / "f").unlink()
            os.mkfifo(tree / "d" / "f") if kind == "pipe" else (tree / "d" / "f").symlink_to(outside / "f")
        return seen

    monkeypatch.setattr(os, "lstat", swap)
    with soon():
        found = find_touched_entries(str(tree), [entry])
    assert found == ([] if kind == "way" else [entry])  # a file that is not there is not read again


def test_an_index_of_any_length_is_not_copied(tmp_path: Path) -> None:
    """A hole costs its agent nothing, and a copy of it would fill the disk of the home."""
    index, copy = tmp_path / "index", tmp_path / "copy"
    index.touch()
    os.truncate(index, LARGEST_GIT_FILE)
    copy_plain(str(index), str(copy))
    assert (os.stat(copy).st_size, os.stat(copy).st_blocks) == (LARGEST_GIT_FILE, 0)
    os.truncate(index, LARGEST_GIT_FILE + 1)
    with pytest.raises(WorkspaceProblem, match="larger than 1 GiB"):
        copy_plain(str(index), str(copy))


@pytest.mark.parametrize("kind", ["link", "giant"])
def test_a_diff_reads_a_plain_index_only(workshop: Workshop, kind: str) -> None:
    """A link to /dev/zero would fill the disk of the person who compares."""
    workspace, path = workshop.made()
    [index] = (Path(workshop.repo.common_dir) / "worktrees").glob("*/index")
    if kind == "link":
        index.rename(index.with_name("aside"))
        index.symlink_to(index.with_name("aside"))
    else:
        os.truncate(index, LARGEST_GIT_FILE + 1)
    folder = workshop.fleet.root / "folder"
    folder.mkdir()
    with pytest.raises(Refused, match="not a plain index"):
        diff._diff_worktree(str(folder), str(path), str(workspace.base_commit), diff.DiffForm(()))


def test_a_lock_behind_a_link_is_not_removed(workshop: Workshop) -> None:
    """A clone whose `refs/heads` its agent made a link."""
    strategy = CloneStrategy(workshop.home, workshop.git)
    workspace = workshop.workspace("task1", Strategy.CLONE)
    workshop.run(strategy.prepare(workshop.repo, workspace, None))
    git_dir, victim = Path(workspace.path) / ".git", workshop.fleet.root / "victim"
    (git_dir / "refs" / "heads").rename(victim)
    lock = victim / f"{workspace.branch}.lock"
    for path in (lock, git_dir / "index.lock"):
        path.write_text("")
    (git_dir / "refs" / "heads").symlink_to(victim)
    workshop.run(strategy.drop_stale_locks(workshop.repo, workspace))
    assert (lock.exists(), (git_dir / "index.lock").exists()) == (True, False)


def test_the_checker_waits_for_no_pipe(tmp_path: Path) -> None:
    """`doctor --invariants` reads a repository that agents could write."""
    entry = tmp_path / "worktrees" / "task1"
    entry.mkdir(parents=True)
    for name in ("HEAD", "config", "commondir", "packed-refs", "shallow", "worktrees/task1/gitdir"):
        os.mkfifo(tmp_path / name)
    seen = evidence.Evidence.__new__(evidence.Evidence)
    seen.home = str(tmp_path / "home")
    (tmp_path / "view").mkdir()
    with soon():
        evidence._fill_view(str(tmp_path / "view"), str(tmp_path))
        assert list(seen.worktree_entries(str(tmp_path))) == [("task1", "")]
        assert evidence.git(str(tmp_path), "for-each-ref") == ""
