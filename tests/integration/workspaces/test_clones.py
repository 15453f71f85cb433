"""Clones: nothing an agent does in one reaches the user's repository, and no commit of one is lost."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.conftest import Workshop

from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import Strategy, Workspace
from holdfast.workspaces.strategies.clone import CloneStrategy


def made(workshop: Workshop, task: str = "task1") -> tuple[CloneStrategy, Workspace, Path]:
    strategy = CloneStrategy(workshop.home, workshop.git)
    workspace = workshop.workspace(task, Strategy.CLONE)
    workshop.run(strategy.prepare(workshop.repo, workspace, None))
    return strategy, workspace, Path(workspace.path)


def commit(workshop: Workshop, path: Path, name: str) -> str:
    (path / name).write_text(f"{name}\n")
    workshop.fleet.git("add", name, cwd=path)
    workshop.fleet.git("commit", "--quiet", "-m", name, cwd=path)
    return workshop.fleet.git("rev-parse", "HEAD", cwd=path)


def test_a_clone_shares_nothing_with_the_users_repository(workshop: Workshop) -> None:
    """No file is the same one, nothing is borrowed; hooks, templates and passwords do not come along, and the user's
    branches, tags, identity, excludes and `origin` do."""
    fleet, hooks = workshop.fleet, workshop.fleet.repo / ".git" / "hooks"
    fleet.git("config", "remote.origin.url", "https://tess:secret@example.org/repo.git")
    fleet.git("config", "core.hooksPath", str(hooks))
    fleet.git("config", "alias.evil", "!touch canary")
    fleet.git("config", "user.email", "here@example.org")
    fleet.git("tag", "v1")
    fleet.git("branch", "holdfast/other-task")
    (fleet.repo / ".git" / "info" / "exclude").write_text("*.log\n")
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {fleet.root}/canary\n")
        (hooks / name).chmod(0o755)
    _strategy, _workspace, path = made(workshop)
    assert not (fleet.root / "canary").exists()
    assert all(file.stat().st_nlink == 1 for file in (path / ".git" / "objects").rglob("*") if file.is_file())
    assert not (path / ".git" / "objects" / "info" / "alternates").exists()
    config = (path / ".git" / "config").read_text()
    assert "secret" not in config
    assert "hooksPath" not in config
    assert "evil" not in config
    assert fleet.git("config", "remote.origin.url", cwd=path) == "https://example.org/repo.git"
    assert fleet.git("config", "user.email", cwd=path) == "here@example.org"
    assert fleet.git("rev-parse", "v1", "main", cwd=path).split() == [fleet.git("rev-parse", "HEAD")] * 2
    assert fleet.git("branch", "--list", "holdfast/other-task", cwd=path) == ""
    (path / "x.log").write_text("x")
    assert fleet.git("status", "--porcelain", cwd=path) == ""


def test_no_commit_of_a_clone_is_lost(workshop: Workshop) -> None:
    """R-TREE-13: other branches, tags, every stash, a detached HEAD, a rewritten branch: in a worktree they would be in
    the user's repository already; from a clone they are brought in, or saved."""
    strategy, workspace, path = made(workshop)
    fleet, run, repo = workshop.fleet, workshop.run, workshop.repo
    first = commit(workshop, path, "one")
    run(strategy.deliver(repo, workspace))
    assert fleet.git("rev-parse", "holdfast/task1") == first
    fleet.git("commit", "--quiet", "--amend", "-m", "rewritten", cwd=path)
    second = fleet.git("rev-parse", "HEAD", cwd=path)
    fleet.git("checkout", "--quiet", "-b", "side/branch", cwd=path)
    side = commit(workshop, path, "side")
    fleet.git("checkout", "--quiet", "--detach", cwd=path)
    tagged = commit(workshop, path, "tagged")
    fleet.git("tag", "-a", "-m", "annotated", "mine", cwd=path)
    for text in ("stashed first", "stashed second"):
        (path / "README.md").write_text(text)
        fleet.git("stash", "--quiet", cwd=path)
    floating = commit(workshop, path, "floating")
    (path / "staged").write_text("only in the clone's index")
    fleet.git("add", "staged", cwd=path)
    (path / "staged").unlink()
    saved = run(strategy.salvage(repo, workspace, "test"))
    assert saved is not None
    assert saved.base == floating
    assert workshop.shadow("show", f"{saved.commit}^2:staged") == "only in the clone's index"
    run(strategy.put_away(repo, workspace))
    run(strategy.delete_trash(workspace))
    assert fleet.git("rev-parse", "holdfast/task1") == second
    assert fleet.git("rev-parse", f"holdfast/task1-before-{first[:12]}") == first
    assert fleet.git("rev-parse", "holdfast/task1-also/side/branch") == side
    assert fleet.git("rev-parse", "holdfast/task1-also/tags/mine") == tagged
    assert fleet.file_on_branch("holdfast/task1-also/stash-0", "README.md") == "stashed second"
    assert fleet.file_on_branch("holdfast/task1-also/stash-1", "README.md") == "stashed first"
    fleet.git("fsck", "--connectivity-only")
    workshop.shadow("fsck", "--connectivity-only")


@pytest.mark.parametrize("trick", ["alternates", "objects elsewhere", "git file", "commondir"])
def test_a_clone_that_points_to_another_repository_is_preserved(workshop: Workshop, trick: str) -> None:
    """An agent must not make us read another repository of the user's in its name."""
    strategy, workspace, path = made(workshop)
    other = workshop.fleet.make_repo(workshop.fleet.root / "other", {"secret": "s\n"}) / ".git"
    git_dir = path / ".git"
    if trick == "alternates":
        (git_dir / "objects" / "info").mkdir(exist_ok=True)
        (git_dir / "objects" / "info" / "alternates").write_text(f"{other}/objects\n")
    elif trick == "commondir":
        (git_dir / "commondir").write_text(f"{other}\n")
    elif trick == "git file":
        os.rename(git_dir, path / "moved")
        git_dir.write_text(f"gitdir: {other}\n")
    else:
        os.rename(git_dir / "objects", path / "moved")
        (git_dir / "objects").symlink_to(other / "objects")
    workshop.run(strategy.drop_stale_locks(workshop.repo, workspace))
    with pytest.raises(WorkspaceProblem, match="not trusted"):
        workshop.run(strategy.salvage(workshop.repo, workspace, "test"))
    assert workshop.fleet.branches() == []


def test_a_shallow_repository_and_a_base_on_no_branch(workshop: Workshop) -> None:
    """The clone of a shallow repository is shallow; a base that no branch holds is found all the same."""
    fleet = workshop.fleet
    commit(workshop, fleet.repo, "second")
    shallow = fleet.root / "shallow"
    fleet.git("clone", "--quiet", "--depth", "1", f"file://{fleet.repo}", str(shallow))
    fleet.git("checkout", "--quiet", "--detach", cwd=shallow)
    base = commit(workshop, shallow, "floating")
    workshop.repo = type(workshop.repo)(id="repo2", path=str(shallow), common_dir=str(shallow / ".git"))
    strategy = CloneStrategy(workshop.home, workshop.git)
    plan = workshop.run(strategy.plan(workshop.repo, "task1", "HEAD", None, 0))
    assert plan.base_commit == base
    fleet.git("checkout", "--quiet", "main", cwd=shallow)
    workspace = workshop.workspace("task1", Strategy.CLONE)
    workspace = replace(workspace, base_commit=base)
    workshop.run(strategy.prepare(workshop.repo, workspace, None))
    found = sorted(item.name for item in Path(workspace.path).iterdir())
    assert found == [".git", "README.md", "floating", "second", "src"]
    done = commit(workshop, Path(workspace.path), "done")
    workshop.run(strategy.deliver(workshop.repo, workspace))
    assert fleet.git("rev-parse", "holdfast/task1", cwd=shallow) == done
