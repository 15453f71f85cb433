"""Making and removing worktrees: half-made ones heal, the user's own things are never touched."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Workshop

from holdfast.base.errors import LaunchError, WorkspaceProblem, is_transient
from holdfast.core.cleanup.compare import Finding, SweepAction
from holdfast.core.model import Strategy
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperRunner
from holdfast.processes.open_files import is_git_lock_in_use
from holdfast.workspaces.git import worktree_entries
from holdfast.workspaces.git.branch_files import delete_branch, drop_deletion_locks
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.worktree_entries import find_entry
from holdfast.workspaces.names import DELETING_NOTE
from holdfast.workspaces.removal import owner_marker, trash
from holdfast.workspaces.removal.sweeper import DiskSweeper


def add_by_hand(workshop: Workshop, path: Path, *options: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    workshop.fleet.git("worktree", "add", "--quiet", *options, str(path))


def test_a_locked_half_made_worktree_is_made_again(workshop: Workshop) -> None:
    """R-TREE-07: what a killed `git worktree add -b` leaves (locked entry, branch, some files) heals by itself."""
    workspace = workshop.workspace()
    path = Path(workspace.path)
    add_by_hand(workshop, path, "--no-checkout", "--lock", "--reason", "initializing", "-b", "holdfast/task1")
    (path / "half").write_text("x")
    workshop.run(workshop.worktrees.prepare(workshop.repo, workspace, None))
    assert sorted(item.name for item in path.iterdir()) == [".git", "README.md", "src"]
    assert workshop.fleet.worktrees() == [str(path)]


def test_a_lock_stays_while_somebody_elses_git_is_at_work(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-TREE-15: the user's gc may hold it and wait for the processor. Without its lock it would delete a branch file
    that was written meanwhile, and the branch would be back at its packed, older commit."""
    monkeypatch.setattr(worktree_entries, "HELD_PATIENCE", 0.2)
    git = Git(HelperRunner(Children()), is_git_lock_in_use)
    common = workshop.repo.common_dir
    lock = Path(common) / "refs" / "heads" / "holdfast" / "task1.lock"
    lock.parent.mkdir()
    lock.touch()
    os.utime(lock, (1, 1))
    with workshop.git_at_work():
        workshop.run(worktree_entries.drop_branch_lock(git, common, "holdfast/task1"))
        assert lock.exists()
    workshop.run(worktree_entries.drop_branch_lock(git, common, "holdfast/task1"))
    assert not lock.exists()


def test_a_branch_lock_that_a_killed_git_left_does_not_stop_anything(workshop: Workshop) -> None:
    """R-TREE-15: making, committing leftovers and removing continue; found by the await walker."""
    workspace = workshop.workspace()
    lock = Path(workshop.repo.common_dir) / "refs" / "heads" / "holdfast" / "task1.lock"
    lock.parent.mkdir()
    lock.touch()
    workshop.run(workshop.worktrees.prepare(workshop.repo, workspace, None))
    (Path(workspace.path) / "work").write_text("precious")
    lock.touch()
    workshop.run(workshop.worktrees.drop_stale_locks(workshop.repo, workspace))
    assert workshop.run(workshop.worktrees.commit_leftovers(workshop.repo, workspace, "all", "Leftovers"))
    workshop.fleet.git("update-ref", "refs/heads/holdfast/task1", "main")
    lock.touch()
    workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    assert workshop.run(workshop.worktrees.drop_empty_branch(workshop.repo, workspace))


def test_a_branch_lock_that_is_held_for_a_moment_is_left_to_its_holder(workshop: Workshop) -> None:
    """R-TREE-15: the user's gc locks our branches too. Found by a user who collects garbage while 64 tasks end: we
    removed its lock, it removed ours, and the leftovers were not committed."""
    workspace, _path = workshop.made()
    lock = Path(workshop.repo.common_dir) / "refs" / "heads" / "holdfast" / "task1.lock"
    lock.touch()
    was_there = []

    def let_go() -> None:
        was_there.append(lock.exists())
        lock.unlink(missing_ok=True)

    timer = threading.Timer(0.2, let_go)
    timer.start()
    workshop.run(workshop.worktrees.drop_stale_locks(workshop.repo, workspace))
    timer.join()
    assert was_there == [True]


@pytest.mark.parametrize("left", ["entry only", "directory only", "directory without .git"])
def test_every_half_of_a_worktree_heals(workshop: Workshop, left: str) -> None:
    """R-TREE-07: entry without directory, directory without entry, directory without its link."""
    workspace, path = workshop.made()
    if left == "entry only":
        shutil.rmtree(path)
    elif left == "directory only":
        shutil.rmtree(Path(workshop.repo.common_dir) / "worktrees")
    else:
        (path / ".git").unlink()
    assert not workshop.run(workshop.worktrees.is_intact(workshop.repo, workspace))
    workshop.run(workshop.worktrees.prepare(workshop.repo, workspace, None))
    assert workshop.run(workshop.worktrees.is_intact(workshop.repo, workspace))
    assert workshop.fleet.git("status", "--porcelain", cwd=path) == ""


@pytest.mark.parametrize("link", [None, ""])
def test_an_entry_that_leads_nowhere_yet_heals(workshop: Workshop, link: str | None) -> None:
    """R-TREE-07: git was killed between making its entry and writing where it leads; found by killing git at each of
    its system calls. The user's own half-made ones are not ours to judge."""
    workspace = workshop.workspace()
    entries = Path(workshop.repo.common_dir) / "worktrees"
    for name, lock in (("task1", "holdfast task=task1"), ("12", "initializing"), ("task1-mine", "initializing")):
        (entries / name).mkdir(parents=True)
        (entries / name / "locked").write_text(lock)
    if link is not None:
        (entries / "task1" / "gitdir").write_text(link)
    workshop.run(workshop.worktrees.prepare(workshop.repo, workspace, None))
    assert sorted(entry.name for entry in entries.iterdir()) == ["12", "task1", "task1-mine"]
    assert workshop.fleet.git("status", "--porcelain", cwd=Path(workspace.path)) == ""
    assert workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    assert sorted(entry.name for entry in entries.iterdir()) == ["12", "task1-mine"]


def test_an_entry_that_names_its_tree_by_a_relative_path_is_ours(workshop: Workshop) -> None:
    """As a newer git writes it with worktree.useRelativePaths, relative to the entry."""
    workspace, path = workshop.made()
    entry = find_entry(workshop.repo.common_dir, workspace.path)
    assert entry is not None
    Path(entry, "gitdir").write_text(f"{os.path.relpath(path / '.git', entry)}\n")
    assert find_entry(workshop.repo.common_dir, workspace.path) == entry
    assert workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    assert not os.path.exists(entry)


def test_removal_leaves_nothing_and_an_empty_branch_goes(workshop: Workshop) -> None:
    """R-TREE-04: directory, admin entry, marker, trash and the branch without commits are gone."""
    workspace, path = workshop.made()
    assert workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    assert not path.exists()
    assert workshop.fleet.worktrees() == []
    assert workshop.run(workshop.worktrees.drop_empty_branch(workshop.repo, workspace))
    workshop.run(workshop.worktrees.delete_trash(workspace))
    assert workshop.fleet.branches() == []
    left = [str(item.relative_to(workshop.home)) for item in Path(workshop.home).rglob("*")]
    assert left == ["workspaces", "workspaces/.trash"]
    assert not workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))  # again: a quiet no-op


def test_a_deletion_that_was_killed_stands_in_nobodys_way(workshop: Workshop) -> None:
    """R-TREE-07, R-TREE-15: `git update-ref -d` was killed and left all packed refs locked; our note says that it was
    ours. Without it the lock is somebody else's, and stays. Found by killing git at each of its system calls."""
    workspace, _path = workshop.made()
    workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    workshop.fleet.git("pack-refs", "--all")
    common = Path(workshop.repo.common_dir)
    left = [common / "packed-refs.lock", common / "packed-refs.new"]
    for path in left:
        path.touch()
        os.utime(path, (0, 0))
    (common / DELETING_NOTE).write_text("refs/heads/holdfast/task1\n")
    os.utime(common / DELETING_NOTE, (0, 0))
    assert workshop.run(workshop.worktrees.drop_empty_branch(workshop.repo, workspace))
    assert workshop.fleet.branches() == []
    assert not any(path.exists() for path in (*left, common / DELETING_NOTE))
    left[0].touch()
    os.utime(left[0], (0, 0))
    workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    assert left[0].exists()


def test_a_refused_deletion_claims_no_lock_of_the_users(workshop: Workshop) -> None:
    """Git came to its end and left nothing: a lock on all packed refs is the user's from then on, however old."""
    common = Path(workshop.repo.common_dir)
    workshop.fleet.git("branch", "holdfast/task1")
    workshop.fleet.git("pack-refs", "--all")
    with pytest.raises(WorkspaceProblem):
        workshop.run(delete_branch(workshop.git, str(common), "refs/heads/holdfast/task1", "1" * 40))
    lock = common / "packed-refs.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    workshop.run(drop_deletion_locks(workshop.git, str(common)))
    assert lock.exists()


def test_the_sweep_deletes_a_branch_so_that_a_kill_stands_in_nobodys_way(workshop: Workshop) -> None:
    """A note says whose the lock on all packed refs is; a branch that is a file of its own needs no such lock."""
    common, git = Path(workshop.repo.common_dir), workshop.fleet.git
    git("branch", "holdfast/packed")
    git("pack-refs", "--all")
    git("branch", "holdfast/loose")
    notes: list[bool] = []

    async def watched(argv: Sequence[str], **options: Any) -> tuple[int, bytes, bytes]:
        notes.extend([(common / DELETING_NOTE).exists()] if "update-ref" in argv else [])
        return await HelperRunner(Children())(argv, **options)

    for name in ("loose", "packed"):
        where = f"holdfast/{name} {git('rev-parse', 'HEAD')}"
        finding = Finding(action=SweepAction.DROP_BRANCH, what="branch", where=where, why="test")
        assert workshop.run(DiskSweeper(workshop.home, Git(watched)).carry_out(finding, workshop.repo))
    assert notes == [True]
    assert git("branch", "--list", "holdfast/*") == ""


def test_the_lock_of_a_killed_deletion_stops_no_later_one(workshop: Workshop) -> None:
    """R-TREE-07: found by the matrix: the sweep, killed with the branch's lock in its hands, failed for ever."""
    tip = workshop.fleet.git("rev-parse", "HEAD")
    workshop.fleet.git("branch", "holdfast/task1")
    lock = Path(workshop.repo.common_dir) / "refs" / "heads" / "holdfast" / "task1.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    workshop.run(delete_branch(workshop.git, workshop.repo.common_dir, "refs/heads/holdfast/task1", tip))
    assert workshop.fleet.branches() == []
    assert not lock.exists()


def test_a_branch_with_a_commit_stays(workshop: Workshop) -> None:
    workspace, path = workshop.made()
    workshop.fleet.git("commit", "--quiet", "--allow-empty", "-m", "work", cwd=path)
    workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    assert not workshop.run(workshop.worktrees.drop_empty_branch(workshop.repo, workspace))
    assert workshop.fleet.branches() == ["holdfast/task1"]


def test_a_directory_without_our_record_is_left_alone(workshop: Workshop) -> None:
    """R-TREE-07: no marker of this workspace, no removal."""
    workspace, path = workshop.made()
    owner_marker.remove_marker(workspace)
    with pytest.raises(WorkspaceProblem, match="no record of ours"):
        workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    assert (path / "README.md").exists()


def test_the_users_own_worktree_on_an_unmounted_disk_survives(workshop: Workshop) -> None:
    """R-TREE-04: we never prune; an entry whose directory is missing now is not ours to judge."""
    theirs = workshop.fleet.root / "disk" / "mine"
    add_by_hand(workshop, theirs, "--detach")
    shutil.move(workshop.fleet.root / "disk", workshop.fleet.root / "unmounted")
    workspace, _path = workshop.made()
    workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    workshop.run(workshop.worktrees.delete_trash(workspace))
    shutil.move(workshop.fleet.root / "unmounted", workshop.fleet.root / "disk")
    assert workshop.fleet.worktrees() == [str(theirs)]
    assert workshop.fleet.git("status", "--porcelain", cwd=theirs) == ""


def test_many_worktrees_of_one_repository_at_once(workshop: Workshop) -> None:
    """Parallel `git worktree add` fails; the repository's lock makes them wait."""
    workspaces = [workshop.workspace(f"task{number}") for number in range(16)]

    async def all_at_once() -> None:
        await asyncio.gather(*(workshop.worktrees.prepare(workshop.repo, one, None) for one in workspaces))

    workshop.run(all_at_once())
    assert sorted(workshop.fleet.worktrees()) == sorted(workspace.path for workspace in workspaces)


def test_preparation_that_is_cancelled_leaves_no_git_behind(workshop: Workshop) -> None:
    """A killed `git worktree add` continues through its child; ours ends its whole group before it returns."""
    workspace = workshop.workspace()

    async def cancelled_soon() -> None:
        task = asyncio.create_task(workshop.worktrees.prepare(workshop.repo, workspace, None))
        while not os.path.exists(workspace.path):  # noqa: ASYNC110 - a directory rings no bell
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    workshop.run(cancelled_soon())
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert workspace.path not in listed
    workshop.run(workshop.worktrees.prepare(workshop.repo, workspace, None))
    assert workshop.run(workshop.worktrees.is_intact(workshop.repo, workspace))


def test_hooks_and_filters_of_the_repository_do_not_run(workshop: Workshop) -> None:
    """An agent can write the shared config: what it plants there must not run as us at the next checkout."""
    canary = workshop.fleet.root / "canary"
    hook = Path(workshop.repo.common_dir) / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {canary}\n")
    hook.chmod(0o755)
    (workshop.fleet.repo / ".gitattributes").write_text("*.py filter=evil\n")
    workshop.fleet.git("add", ".")
    workshop.fleet.git("commit", "--quiet", "-m", "attributes")
    workshop.fleet.git("config", "filter.evil.smudge", f"touch {canary}; cat")
    workshop.fleet.git("config", "filter.evil.clean", f"touch {canary}; cat")
    workspace, path = workshop.made()
    (path / "more.py").write_text("x = 1\n")
    assert workshop.run(workshop.worktrees.commit_leftovers(workshop.repo, workspace, "all", "Leftovers"))
    assert not canary.exists()


def test_a_work_tree_that_the_shared_config_names_is_not_touched(workshop: Workshop) -> None:
    """R-TREE-13: with an extension, `core.worktree` counts for worktrees too: the next task's checkout threw away what
    the user had not committed, and its leftovers were not committed."""
    mine = workshop.fleet.repo / "README.md"
    mine.write_text("mine, uncommitted")
    workshop.fleet.git("config", "extensions.worktreeConfig", "true")
    workshop.fleet.git("config", "core.worktree", str(workshop.fleet.repo))
    workspace, path = workshop.made()
    assert mine.read_text() == "mine, uncommitted"
    assert (path / "README.md").exists()
    (path / "new").write_text("work")
    assert workshop.run(workshop.worktrees.commit_leftovers(workshop.repo, workspace, "all", "Leftovers"))
    assert workshop.fleet.git("show", "holdfast/task1:new") == "work"


def test_an_entry_that_is_a_file_does_not_stop_the_removal(workshop: Workshop) -> None:
    """R-CLEAN-06: an agent put a file in its place, and the clean-up failed again and again."""
    workspace, path = workshop.made()
    entry = Path(workshop.repo.common_dir) / "worktrees" / path.name
    shutil.rmtree(entry)
    entry.write_text("x")
    assert workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    assert not path.exists()


def test_a_base_that_does_not_exist_is_refused_with_a_remedy(workshop: Workshop) -> None:
    """R-TREE-05: fails closed."""
    with pytest.raises(LaunchError, match="--base"):
        workshop.run(workshop.worktrees.plan(workshop.repo, "task1", "no-such-branch", None, 0))


# -- deleting ----------------------------------------------------------------------------------------------------------


def test_deleting_follows_no_symlink_and_opens_closed_directories(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    tree = tmp_path / "tree"
    (tree / "closed" / "deep").mkdir(parents=True)
    (tree / "closed" / "deep" / "file").write_text("x")
    (tree / "out").symlink_to(outside)
    (tree / "name\nwith newline").write_text("x")
    (tree / "closed" / "deep").chmod(0)
    (tree / "closed").chmod(0o555)
    trash.delete_tree(str(tree))
    assert not tree.exists()
    assert (outside / "precious").read_text() == "mine"
    trash.delete_tree(str(tree))  # again: a quiet no-op


def test_deleting_stops_at_a_mount(tmp_path: Path) -> None:
    """`st_dev` is the same across a bind mount; the mount id is not. What is behind it survives."""
    precious, tree = tmp_path / "precious", tmp_path / "tree"
    precious.mkdir()
    (precious / "file").write_text("mine")
    (tree / "mounted").mkdir(parents=True)
    mounted = subprocess.run(["mount", "--bind", precious, tree / "mounted"], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"NOT RUN: bind mounts need root here: {mounted.stderr.decode().strip()}")
    try:
        with pytest.raises(WorkspaceProblem, match="mount point"):
            trash.delete_tree(str(tree))
        assert (precious / "file").read_text() == "mine"
    finally:
        subprocess.run(["umount", tree / "mounted"], check=True)
    trash.delete_tree(str(tree))
    assert not tree.exists()


def test_a_very_deep_tree_is_deleted(tmp_path: Path) -> None:
    """D8: 3,000 levels, more than open files or a recursion may be, are removed whole, and nothing stays beside."""
    tree = tmp_path / "tree"
    tree.mkdir()
    here = os.open(tree, os.O_RDONLY)
    for level in range(3000):
        os.mkdir("deeper", dir_fd=here)
        if level % 100 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        trash.delete_tree(str(tree))
        assert list(tmp_path.iterdir()) == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)  # pytest's own removal cannot go that deep


def test_a_making_that_was_cancelled_cannot_harm_the_next_one(workshop: Workshop) -> None:
    """Found by the await walker: a thread deleted on for a cancelled caller, and took the directory made after it."""
    workspace = workshop.workspace(strategy=Strategy.DIRECTORY)

    async def cancelled_then_again() -> None:
        for _ in range(10):
            for number in range(60):
                (Path(workspace.path) / f"half{number}" / "made").mkdir(parents=True)
            first = asyncio.create_task(workshop.directories.prepare(workshop.repo, workspace, None))
            await asyncio.sleep(0.001)
            first.cancel()
            await asyncio.wait([first])
            await workshop.directories.prepare(workshop.repo, workspace, None)
            await asyncio.sleep(0.02)  # what is to be excluded rings no bell: a deletion that comes late
            assert os.path.isdir(workspace.path)

    workshop.run(cancelled_then_again())


def test_an_empty_branch_stays_while_the_user_is_on_it(workshop: Workshop) -> None:
    """R-TREE-13: the same for another worktree of theirs; once they left it, it goes."""
    workspace, _path = workshop.made()
    strategy, branch = workshop.worktrees, f"{workspace.branch}"
    workshop.run(strategy.put_away(workshop.repo, workspace))
    workshop.fleet.git("switch", "--quiet", branch)
    assert not workshop.run(strategy.drop_empty_branch(workshop.repo, workspace))
    workshop.fleet.git("switch", "--quiet", "main")
    workshop.fleet.git("worktree", "add", "--quiet", str(workshop.fleet.root / "theirs"), branch)
    assert not workshop.run(strategy.drop_empty_branch(workshop.repo, workspace))
    workshop.fleet.git("worktree", "remove", str(workshop.fleet.root / "theirs"))
    assert workshop.run(strategy.drop_empty_branch(workshop.repo, workspace))
    assert workshop.fleet.branches() == []


@pytest.mark.parametrize(
    "words",
    [
        "fatal: couldn't write '/r/.git/refs/heads/holdfast/x.lock'",
        "error: write error. Out of diskspace",
        "error: unable to write file 'README.md'\nfatal: Could not reset index file to revision 'HEAD'.",
        "fatal: unable to write new index file: No space left on device",
    ],
)
def test_gits_words_for_a_full_disk_are_trouble_of_the_machine(words: str) -> None:
    """Second attack N1: a full disk of the repository failed every queued task for good within seconds."""
    assert is_transient(GitFailed(["branch"], 128, words))
    assert not is_transient(GitFailed(["branch"], 128, "fatal: not a valid object name: 'main'"))


def test_a_locked_config_file_is_trouble_that_passes() -> None:
    """Found by the family `usurped`: a replaced supervisor made the same clone, and the task failed for good."""
    assert is_transient(GitFailed(["config"], 255, "error: could not lock config file .git/config: File exists"))
    assert not is_transient(GitFailed(["config"], 255, "error: invalid key: x"))
