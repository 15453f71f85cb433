"""Refs that we read from files are what git says they are; what is unusual is left to git."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.integration.conftest import Workshop

from holdfast.workspaces.git import refs
from holdfast.workspaces.git.branch_files import create_branch
from holdfast.workspaces.git.commit_history import descends_from


def test_what_we_read_is_what_git_says(workshop: Workshop) -> None:
    """Loose, packed, both, symbolic, deleted, a checkout that is a worktree itself."""
    git, common = workshop.fleet.git, workshop.repo.common_dir
    git("branch", "packed")
    git("branch", "both")
    git("pack-refs", "--all")
    git("commit", "--quiet", "--allow-empty", "-m", "More")
    git("branch", "--force", "both")
    git("branch", "loose/deep")
    git("symbolic-ref", "refs/heads/alias", "refs/heads/packed")
    other = workshop.fleet.root / "other"
    git("worktree", "add", "--quiet", "-b", "aside", str(other), "packed")
    for name in ("main", "packed", "both", "loose/deep", "alias", "aside"):
        assert refs.read_branch_tip(workshop.repo.path, common, name) == git("rev-parse", name), name
        assert workshop.run(refs.resolve_ref(workshop.git, common, f"refs/heads/{name}")) == git("rev-parse", name)
    for checkout in (workshop.fleet.repo, other):
        assert refs.read_branch_tip(str(checkout), common, "HEAD") == git("rev-parse", "HEAD", cwd=checkout)
    assert refs.find_git_dir(str(other)) == git("rev-parse", "--absolute-git-dir", cwd=other)
    assert refs.read_head_ref(str(refs.find_git_dir(str(other)))) == "refs/heads/aside"
    for missing in ("refs/heads/loose", "refs/heads/pack", "refs/heads/none", "refs/heads/main/below"):
        assert workshop.run(refs.resolve_ref(workshop.git, common, missing)) is None


def test_what_could_mean_something_else_is_asked_of_git(workshop: Workshop) -> None:
    """A tag of the same name, an id, an expression, a name of git's own, a broken ref, another storage."""
    git, common = workshop.fleet.git, workshop.repo.common_dir
    git("tag", "-a", "-m", "t", "main")
    Path(common, "refs", "heads", "broken").write_text("no commit\n")
    for name in ("main", git("rev-parse", "HEAD"), "HEAD~0", "main@{0}", "config", "broken", "-x", "a..b", ""):
        assert refs.read_branch_tip(workshop.repo.path, common, name) is None, name
    Path(common, "refs", "heads", "broken").unlink()
    Path(common, "reftable").mkdir()
    assert refs.read_branch_tip(workshop.repo.path, common, "HEAD") is None
    assert workshop.run(refs.resolve_ref(workshop.git, common, "refs/heads/main")) == git(
        "rev-parse", "refs/heads/main"
    )
    with pytest.raises(refs.UnusualRef):
        refs.read_ref(common, common, "HEAD")


def test_a_merge_under_way_is_not_concluded_for_the_agent(workshop: Workshop) -> None:
    """R-TREE-13: leftovers with conflict markers are no result: the salvage takes the tree as it is."""
    workspace, path = workshop.made()
    for branch, text in (("holdfast/task1", "ours"), ("main", "theirs")):
        where = path if branch != "main" else workshop.fleet.repo
        (where / "README.md").write_text(text)
        workshop.fleet.git("commit", "--quiet", "-am", text, cwd=where)
    workshop.fleet.git("merge", "main", cwd=path, check=False)
    assert "<<<<<<<" in (path / "README.md").read_text()
    assert workshop.run(workshop.worktrees.commit_leftovers(workshop.repo, workspace, "all", "Leftovers")) is None
    assert workshop.fleet.git("log", "-1", "--format=%s", "holdfast/task1") == "ours"
    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "merging"))
    assert saved is not None
    assert "<<<<<<<" in workshop.shadow("show", f"{saved.commit}:README.md")


def test_a_branch_that_we_make_is_one_of_gits(workshop: Workshop) -> None:
    git, common, tip = workshop.fleet.git, workshop.repo.common_dir, workshop.fleet.git("rev-parse", "HEAD")
    assert create_branch(common, "holdfast/made", tip)
    assert git("rev-parse", "refs/heads/holdfast/made") == tip
    assert git("fsck", "--strict") == ""
    git("pack-refs", "--all", "--prune")
    assert create_branch(common, "holdfast/again", tip)  # the folder went with the last loose ref
    assert git("branch", "--list", "--format=%(refname:short)", "holdfast/*").split() == [
        "holdfast/again",
        "holdfast/made",
    ]


def test_a_branch_that_stands_in_the_way_is_left_to_git(workshop: Workshop) -> None:
    """Loose or packed, of the same name or of one that cannot stand beside it. A lock is another program's."""
    git, common, tip = workshop.fleet.git, workshop.repo.common_dir, workshop.fleet.git("rev-parse", "HEAD")
    for there in ("holdfast/a", "holdfast/b/c", "holdfast/d"):
        git("branch", there)
    for _ in ("loose", "packed"):
        assert [create_branch(common, name, tip) for name in ("holdfast/a", "holdfast/b", "holdfast/d/e")] == [
            False
        ] * 3
        assert not list(Path(common).rglob("*.lock"))
        git("pack-refs", "--all", "--prune")
    assert not create_branch(common, "holdfast/f", "no commit")
    lock = Path(common, "refs", "heads", "holdfast", "g.lock")
    lock.parent.mkdir(exist_ok=True)
    lock.touch()
    assert not create_branch(common, "holdfast/g", tip)
    assert lock.exists()
    Path(common, "reftable").mkdir()
    assert not create_branch(common, "holdfast/h", tip)


def test_ancestors_are_read_from_loose_commits_only(workshop: Workshop) -> None:
    """False only means that git has to answer: a packed commit, another history, garbage in its place."""
    git, common, base = workshop.fleet.git, workshop.repo.common_dir, workshop.fleet.git("rev-parse", "HEAD")
    git("checkout", "--quiet", "-b", "side")
    git("commit", "--quiet", "--allow-empty", "-m", "parent " + "0" * 40)
    side = git("rev-parse", "HEAD")
    git("checkout", "--quiet", "main")
    git("commit", "--quiet", "--allow-empty", "-m", "two")
    git("merge", "--quiet", "--no-edit", "side")
    tip = git("rev-parse", "HEAD")
    assert descends_from(common, tip, base)
    assert descends_from(common, tip, side)
    assert not descends_from(common, base, tip)
    assert not descends_from(common, side, "0" * 40)
    file = Path(common, "objects", side[:2], side[2:])
    file.chmod(0o644)
    file.write_bytes(b"garbage")
    assert not descends_from(common, side, base)
    file.unlink()
    assert not descends_from(common, side, base)


def test_packed_refs_of_any_length_are_left_to_git(workshop: Workshop) -> None:
    """An agent's sparse file would be read into the memory of the supervisor as a whole."""
    common = Path(workshop.repo.common_dir)
    workshop.fleet.git("pack-refs", "--all")
    os.truncate(common / "packed-refs", refs.LARGEST_PACKED + 1)
    with pytest.raises(refs.UnusualRef, match="packed-refs"):
        refs.read_ref(str(common), str(common), "refs/heads/other")
    assert refs.is_packed(str(common), "refs/heads/other")
    assert refs.is_blocked_by_packed(str(common), "refs/heads/other")
