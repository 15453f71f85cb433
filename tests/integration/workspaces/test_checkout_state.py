"""A worktree that nobody touched is known without git, and each touch is noticed, however it hides."""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.conftest import Workshop

from holdfast.core.model import Workspace
from holdfast.workspaces.git.git import Git
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.snapshots import checkout_state
from holdfast.workspaces.strategies.worktree import WorktreeStrategy


def _write_same_size(path: Path, _workshop: Workshop) -> None:
    file = path / "README.md"
    before = file.stat()
    file.write_text(file.read_text().replace("T", "R"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _write_mapped(path: Path, _workshop: Workshop) -> None:
    with (path / "README.md").open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        content[0:1] = b"R"


def _write_through_link(path: Path, workshop: Workshop) -> None:
    outside = workshop.fleet.root / "outside"
    os.link(path / "README.md", outside)
    outside.write_text("# Rest\n")
    outside.unlink()


def _ignored_file(path: Path, workshop: Workshop) -> None:
    exclude = Path(workshop.repo.common_dir, "info", "exclude")
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("*\n")
    (path / "src" / "secret").write_text("ignored")


def _empty_commit(path: Path, workshop: Workshop) -> None:
    workshop.fleet.git("commit", "--quiet", "--allow-empty", "-m", "empty", cwd=path)


def _detached_commit(path: Path, workshop: Workshop) -> None:
    workshop.fleet.git("checkout", "--quiet", "--detach", cwd=path)
    _empty_commit(path, workshop)
    workshop.fleet.git("checkout", "--quiet", "holdfast/task1", cwd=path)


def _moved_branch(path: Path, workshop: Workshop) -> None:
    tree = workshop.fleet.git("rev-parse", "HEAD^{tree}", cwd=path)
    made = workshop.fleet.git("commit-tree", tree, "-p", "HEAD", "-m", "hidden", cwd=path)
    workshop.fleet.git("update-ref", "refs/heads/holdfast/task1", made)


def _staged(path: Path, workshop: Workshop) -> None:
    made = workshop.fleet.git("hash-object", "-w", "src/app.py", cwd=path)
    workshop.fleet.git("update-index", "--add", "--cacheinfo", f"100644,{made},staged", cwd=path)


def _replace_by_link(path: Path, _workshop: Workshop) -> None:
    (path / "README.md").unlink()
    (path / "README.md").symlink_to("src")


TOUCHES: dict[str, Callable[[Path, Workshop], object]] = {
    "the same size and time": _write_same_size,
    "through a mapping": _write_mapped,
    "through another name": _write_through_link,
    "an ignored file": _ignored_file,
    "a file removed": lambda path, _workshop: (path / "src" / "app.py").unlink(),
    "a file replaced by a link": _replace_by_link,
    "an empty directory": lambda path, _workshop: (path / "src" / "new").mkdir(),
    "the mode of a file": lambda path, _workshop: (path / "README.md").chmod(0o755),
    "`.git` is gone": lambda path, _workshop: (path / ".git").unlink(),
    "a commit": _empty_commit,
    "a commit on no branch": _detached_commit,
    "the branch moved from outside": _moved_branch,
    "staged only": _staged,
    "the tree is gone": lambda path, _workshop: path.rename(path.with_name("elsewhere")),
}


def _is_untouched(workshop: Workshop, workspace: Workspace) -> bool:
    return workshop.run(workshop.worktrees._is_untouched(workshop.repo, workspace))


@pytest.mark.parametrize("touch", TOUCHES)
def test_each_touch_is_noticed(workshop: Workshop, touch: str) -> None:
    """R-TREE-13: what counts as untouched is thrown away."""
    workspace, path = workshop.made()
    assert _is_untouched(workshop, workspace)
    TOUCHES[touch](path, workshop)
    assert not _is_untouched(workshop, workspace)


def test_a_tree_that_is_only_read_is_untouched(workshop: Workshop) -> None:
    workspace, path = workshop.made()
    (path / "README.md").read_text()
    subprocess.run(["grep", "-r", "hello", "."], cwd=path, check=True, capture_output=True)
    assert _is_untouched(workshop, workspace)


def test_an_untouched_tree_costs_no_git(workshop: Workshop) -> None:
    """Leftovers, salvage, removal and the branch: decided without a process."""
    workspace, _path = workshop.made()

    async def refused(*_words: object, **_options: object) -> tuple[int, bytes, bytes]:
        raise AssertionError("git was asked")

    strategy = workshop.worktrees
    strategy._git = Git(refused)
    assert workshop.run(strategy.commit_leftovers(workshop.repo, workspace, "all", "work")) is None
    assert workshop.run(strategy.salvage(workshop.repo, workspace, "test")) is None
    assert workshop.run(strategy.put_away(workshop.repo, workspace))
    assert workshop.run(strategy.drop_empty_branch(workshop.repo, workspace))
    assert workshop.fleet.branches() == []
    assert not strategy._notes


def test_a_supervisor_that_started_again_knows_nothing(workshop: Workshop) -> None:
    """Notes are in memory, where no agent can write them."""
    workspace, _path = workshop.made()
    other = WorktreeStrategy(workshop.home, workshop.git)
    assert not workshop.run(other._is_untouched(workshop.repo, workspace))


def test_no_note_is_older_than_what_it_tells_of(workshop: Workshop) -> None:
    """A file that is written in the same tick as its note would look the same: then there is no note yet."""
    workspace, path = workshop.made()
    marker, file = owner_marker.path_of(workspace), path / "README.md"
    git_dir = str(workshop.fleet.repo / ".git" / "worktrees" / path.name)
    noted = 0
    for number in range(200):
        file.write_text("before\n")
        times = file.stat()
        note = checkout_state.note_checkout(str(path), git_dir, marker)
        file.write_text("after!\n")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        if note is not None:
            noted += 1
            assert not checkout_state.is_untouched(note, str(path), git_dir), number
    assert noted


def test_what_cannot_be_proven_is_not_noted(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time in the future (the clock was set back), too many files, a git directory with a pipe in it."""
    workspace, path = workshop.made()
    marker = owner_marker.path_of(workspace)
    entry = workshop.fleet.repo / ".git" / "worktrees" / path.name
    assert checkout_state.note_checkout(str(path), str(entry), marker)
    os.utime(path / "README.md", (2**33, 2**33))
    assert checkout_state.note_checkout(str(path), str(entry), marker) is None
    os.utime(path / "README.md", (1, 1))
    assert checkout_state.note_checkout(str(path), str(entry), marker)
    with monkeypatch.context() as patch:
        patch.setattr(checkout_state, "MOST_ENTRIES", 2)
        assert checkout_state.note_checkout(str(path), str(entry), marker) is None
    os.mkfifo(entry / "pipe")
    assert checkout_state.note_checkout(str(path), str(entry), marker) is None
