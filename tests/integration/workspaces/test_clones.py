"""Clones: nothing an agent does in one reaches the user's repository, and no commit of one is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Workshop

from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import Strategy, Workspace
from holdfast.core.task_settings import DEFAULT_SALVAGE
from holdfast.workspaces.snapshots import snapshot
from holdfast.workspaces.strategies.clone import CloneStrategy, _shareable_url

LOGINS = {
    "https://ghx_Tok3nAsUserName0123456789abcdef@example.org/x/y.git": "https://example.org/x/y.git",
    "https://tess:secret@example.org/x/y.git": "https://example.org/x/y.git",
    "https://tess:pass@word@example.org:8443/x/y.git": "https://example.org:8443/x/y.git",
    "HTTP://token@example.org/a@b": "HTTP://example.org/a@b",
    "https://example.org/x/y.git": "https://example.org/x/y.git",
    "ssh://git@example.org:22/x/y.git": "ssh://git@example.org:22/x/y.git",
    "ssh://git:secret@example.org/x/y.git": "ssh://git@example.org/x/y.git",
    "git@example.org:x/y.git": "git@example.org:x/y.git",
    "/srv/x@y.git": "/srv/x@y.git",
}


@pytest.mark.parametrize("address", LOGINS)
def test_a_clone_gets_its_origin_without_a_login(address: str) -> None:
    """A token is often the user of an address, without a password behind it (F8)."""
    assert _shareable_url(address, "/") == LOGINS[address]


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


def make_refs(workshop: Workshop, count: int, where: Path | None = None, prefix: str = "v") -> None:
    """Make `count` branches and as many tags, each at the commit of HEAD."""
    place = where or workshop.fleet.repo
    head = workshop.fleet.git("rev-parse", "HEAD", cwd=place)
    text = "".join(
        f"create refs/heads/{prefix}{number} {head}\ncreate refs/tags/{prefix}{number} {head}\n"
        for number in range(count)
    )
    subprocess.run(["git", "update-ref", "--stdin"], cwd=place, input=text.encode(), check=True)


def count_calls(workshop: Workshop) -> list[list[str]]:
    """Return a list that every later git call of the workshop is added to."""
    calls: list[list[str]] = []
    runner = workshop.git._runner

    def counted(argv: Sequence[str], **options: Any) -> Any:
        calls.append(list(argv))
        return runner(argv, **options)

    workshop.git._runner = counted
    return calls


def test_a_repository_with_2000_refs_costs_as_many_git_processes_as_one_with_two(workshop: Workshop) -> None:
    """A clone is born with the user's branches and tags. They are neither counted as the agent's nor looked at one by
    one: a delivery, a checkpoint and a salvage start the same number of git processes."""
    fleet, run, repo = workshop.fleet, workshop.run, workshop.repo
    counts = []
    for task, refs in (("few", 1), ("many", 1000)):
        make_refs(workshop, refs, prefix=f"{task}-")
        strategy, workspace, path = made(workshop, task)
        calls = count_calls(workshop)
        done = commit(workshop, path, task)
        fleet.git("checkout", "--quiet", "-b", "zz-side", cwd=path)  # sorted behind all branches of the user
        side = commit(workshop, path, f"{task}-side")
        kept = run(strategy.checkpoint(repo, workspace, f"refs/checkpoint/{task}/1-0", DEFAULT_SALVAGE))
        assert kept is not None
        assert not kept.partial
        listed = workshop.shadow("show", f"{workshop.shadow('rev-parse', f'{kept.commit}^2')}:branches").splitlines()
        assert listed == [f"{done} refs/heads/holdfast/{task}", f"{side} refs/heads/zz-side"]
        run(strategy.deliver(repo, workspace))
        assert fleet.git("rev-parse", f"holdfast/{task}", f"holdfast/{task}-also/zz-side").split() == [done, side]
        fleet.git("checkout", "--quiet", f"holdfast/{task}", cwd=path)
        assert run(strategy.salvage(repo, workspace, "test")) is None
        counts.append(len(calls))
        assert len(fleet.branches()) == 2 * len(counts), "a branch of the user was delivered back"
    assert counts[1] <= counts[0] < 60


def test_refs_that_an_agent_makes_in_masses_are_salvaged(workshop: Workshop) -> None:
    """Above the limit only the task's own branch is delivered. The rest is in the salvage, so the clone can go."""
    strategy, workspace, path = made(workshop)
    fleet, run, repo = workshop.fleet, workshop.run, workshop.repo
    own = commit(workshop, path, "own")
    fleet.git("checkout", "--quiet", "--detach", cwd=path)
    side = commit(workshop, path, "side")
    make_refs(workshop, 300, path, "mass")
    fleet.git("checkout", "--quiet", workspace.branch or "", cwd=path)
    kept = run(strategy.checkpoint(repo, workspace, "refs/checkpoint/task1/1-0", DEFAULT_SALVAGE))
    assert kept is not None
    assert not kept.partial
    saved = run(strategy.salvage(repo, workspace, "test"))
    assert saved is not None
    assert not saved.partial
    assert fleet.branches() == ["holdfast/task1"]
    assert fleet.git("rev-parse", "holdfast/task1") == own
    state = workshop.shadow("rev-parse", f"{saved.commit}^2")
    assert workshop.shadow("rev-parse", f"{state}^1") == side
    assert workshop.shadow("show", f"{state}:branches").count("mass") == 600
    make_refs(workshop, snapshot.MOST_BRANCHES + 1, path, "more")
    fleet.git("checkout", "--quiet", "more0", cwd=path)
    kept = run(strategy.checkpoint(repo, workspace, "refs/checkpoint/task1/2-0", DEFAULT_SALVAGE))
    assert kept is not None
    assert kept.partial, "branches were left out without a word"
    assert kept.details["not_saved"] == ["301 of the 801 branches that its agent made"]


def test_a_clone_without_work_leaves_no_salvage(workshop: Workshop) -> None:
    """An agent that changed nothing leaves nothing, even if the user rewrote the base branch meanwhile."""
    strategy, workspace, _path = made(workshop)
    assert workshop.run(strategy.salvage(workshop.repo, workspace, "test")) is None
    workshop.fleet.git("commit", "--quiet", "--amend", "--allow-empty", "-m", "rewritten by the user")
    assert workshop.run(strategy.salvage(workshop.repo, workspace, "test")) is None
    assert workshop.fleet.branches() == []
