"""A git directory that an agent shaped: nothing in it holds the supervisor up, or leads its writing elsewhere."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Workshop

from holdfast.api.work import diff
from holdfast.base.errors import Refused, WorkspaceProblem
from holdfast.core.model import Strategy, Workspace
from holdfast.core.task_settings import DEFAULT_SALVAGE
from holdfast.core.workflows.result import ChangedFiles
from holdfast.workspaces.git import git, refs
from holdfast.workspaces.git.changes import ChangesReader, TouchedFiles
from holdfast.workspaces.git.worktree_entries import find_entry, is_checked_out
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.snapshots.salvage import salvage_workspace
from holdfast.workspaces.strategies.clone import CloneStrategy


def made(workshop: Workshop) -> tuple[CloneStrategy, Workspace, Path]:
    strategy = CloneStrategy(workshop.home, workshop.git)
    workspace = workshop.workspace("task1", Strategy.CLONE)
    workshop.run(strategy.prepare(workshop.repo, workspace, None))
    return strategy, workspace, Path(workspace.path)


def late(_number: int, _frame: object) -> None:
    raise AssertionError("it waits")


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize("name", [".git/HEAD", ".git/packed-refs", ".git", "entry", "common", "marker"])
def test_a_pipe_is_not_waited_for(workshop: Workshop, name: str) -> None:
    """Opening one waits for a writer, on the loop's own thread: beats, claims and stops of all tasks would wait too."""
    signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    try:
        if name.startswith(".git/"):
            strategy, workspace, path = made(workshop)
            pipe(path / name)
            (path / "new").write_text("x")
            with pytest.raises(WorkspaceProblem, match="not trusted"):
                workshop.run(strategy.commit_leftovers(workshop.repo, workspace, "all", "m"))
            with pytest.raises(WorkspaceProblem, match=r"not trusted|wait for it"):
                workshop.run(strategy.salvage(workshop.repo, workspace, "m"))
            return
        workspace, path = workshop.made()
        entry = find_entry(workshop.repo.common_dir, workspace.path)
        assert entry is not None
        if name == ".git":
            pipe(path / ".git")
            assert workshop.run(workshop.worktrees.commit_leftovers(workshop.repo, workspace, "all", "m")) is None
        elif name == "entry":
            pipe(Path(entry) / "gitdir")
            assert find_entry(workshop.repo.common_dir, workspace.path) is None
        elif name == "common":
            pipe(Path(entry) / "HEAD")
            assert is_checked_out(workshop.repo.common_dir, "main")
            assert not is_checked_out(workshop.repo.common_dir, "other")
            assert refs.read_head_ref(entry) is None
        else:
            pipe(Path(workspace.path + ".owner.json"))
            assert owner_marker.read_owner(workspace.path) is None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_an_index_that_is_a_link_is_not_copied(workshop: Workshop) -> None:
    """It leads to a file that is not the agent's. What lies in the tree is saved all the same."""
    workspace, path = workshop.made()
    entry = Path(str(find_entry(workshop.repo.common_dir, workspace.path)))
    (workshop.fleet.root / "secret").write_text("of the user")
    (path / "new").write_text("x")
    (entry / "index").unlink()
    (entry / "index").symlink_to(workshop.fleet.root / "secret")
    saved = workshop.run(salvage_workspace(workshop.git, workshop.home, workshop.repo, workspace, "test"))
    assert saved is not None
    assert (saved.files, saved.partial) == (1, False)


@pytest.mark.parametrize("name", ["COMMIT_EDITMSG", "logs/HEAD", "logs/refs/heads"])
def test_leftovers_are_not_committed_through_a_link(workshop: Workshop, name: str) -> None:
    """A container's agent reaches nothing but its clone. A link in there leads where we may write, and it may not."""
    strategy, workspace, path = made(workshop)
    canary = workshop.fleet.root / "canary"
    target = canary / "x" if name == "logs/refs/heads" else canary
    target.mkdir(parents=True) if target is not canary else canary.write_text("precious")
    (path / ".git" / name).parent.mkdir(exist_ok=True, parents=True)
    if (path / ".git" / name).is_dir():
        (path / ".git" / name).rename(path / "aside")
    (path / ".git" / name).unlink(missing_ok=True)
    (path / ".git" / name).symlink_to(target)
    (path / "new").write_text("x")
    with pytest.raises(WorkspaceProblem, match="not trusted"):
        workshop.run(strategy.commit_leftovers(workshop.repo, workspace, "all", "m"))
    if target is canary:
        assert canary.read_text() == "precious"
    else:
        assert list(target.iterdir()) == []


def test_no_command_of_a_clone_runs_when_it_is_compared(workshop: Workshop) -> None:
    """`holdfast diff`. A missing object is not asked for: git would run what the clone's own settings name for that."""
    strategy, workspace, path = made(workshop)
    canary, git = workshop.fleet.root / "canary", workshop.fleet.git
    (path / "old").write_text("old")
    git("add", "old", cwd=path)
    git("commit", "--quiet", "-m", "old", cwd=path)
    blob, base = git("rev-parse", "HEAD:old", "HEAD", cwd=path).split()
    (path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (path / "old").write_text("new")
    for key, value in (("url", "/nowhere"), ("promisor", "true"), ("uploadpack", f"touch {canary};")):
        git("config", f"remote.evil.{key}", value, cwd=path)
    git("config", "core.repositoryFormatVersion", "1", cwd=path)
    git("config", "extensions.partialClone", "evil", cwd=path)
    workshop.run(strategy.commit_leftovers(workshop.repo, workspace, "all", "m"))
    (workshop.fleet.root / "aside").mkdir()
    with contextlib.suppress(Refused):
        diff._diff_worktree(str(workshop.fleet.root / "aside"), str(path), base, diff.DiffForm(()))
    assert not canary.exists()


def test_no_missing_object_is_fetched_by_a_command_of_an_agent(workshop: Workshop) -> None:
    """R-TREE-13: a remote in the shared config says which command has the rest; looking at a branch must not run it."""
    fleet, canary = workshop.fleet, workshop.fleet.root / "canary"
    for key, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "evil"),
        ("remote.evil.url", str(fleet.repo)),
        ("remote.evil.promisor", "true"),
        ("remote.evil.uploadpack", f"touch {canary}; false"),
    ):
        fleet.git("config", key, value)
    blob = fleet.git("rev-parse", "HEAD:README.md")
    (Path(workshop.repo.common_dir) / "objects" / blob[:2] / blob[2:]).unlink()
    assert git.run_sync("cat-file", "-p", blob, cwd=workshop.repo.path)[0] != 0
    assert not canary.exists()


def test_a_stash_whose_id_is_an_option_of_git_runs_nothing(workshop: Workshop) -> None:
    """The list of stashes is a file of the agent. A word of it became `--upload-pack=COMMAND` of our fetch."""
    strategy, workspace, path = made(workshop)
    sprung = workshop.fleet.root / "sprung"
    command = f"--upload-pack=touch${{IFS}}{sprung};git-upload-pack"
    (path / "work").write_text("x\n")
    workshop.fleet.git("add", "work", cwd=path)
    workshop.fleet.git("commit", "--quiet", "-m", "work", cwd=path)
    (path / ".git" / "logs" / "refs").mkdir(parents=True, exist_ok=True)
    (path / ".git" / "logs" / "refs" / "stash").write_text(f"0 {command} x\n{'0' * 40} {command} x\t1\n")
    workshop.run(strategy.deliver(workshop.repo, workspace))
    assert not sprung.exists()
    assert workshop.fleet.git("log", "-1", "--format=%s", "holdfast/task1") == "work"
    assert "task1-also" not in workshop.fleet.git("for-each-ref")


@pytest.mark.parametrize("word", ["--upload-pack=true", "-u", "--exec=true:refs/heads/x"])
def test_no_word_after_the_source_of_a_fetch_is_an_option(workshop: Workshop, word: str) -> None:
    """The one module that runs git refuses it, wherever the word came from."""
    with pytest.raises(WorkspaceProblem, match="begins with '-'"):
        git.prepare_call(["-c", "x.y=z", "fetch", "--quiet", workshop.repo.path, "HEAD", word], cwd=workshop.repo.path)


TRICKS: dict[str, Callable[[Path, Path], object]] = {
    "a reflog is a link": lambda git_dir, foreign: link(git_dir / "logs" / "HEAD", foreign / "victim"),
    "a remote's reflog is a link": lambda git_dir, foreign: link(
        git_dir / "logs" / "refs" / "remotes" / "holdfast" / "main", foreign / "victim"
    ),
    "the index is a link": lambda git_dir, foreign: link(git_dir / "index", foreign / "victim"),
    "another common directory": lambda git_dir, foreign: (git_dir / "commondir").write_text(f"{foreign / '.git'}\n"),
    "alternates": lambda git_dir, foreign: alternates(git_dir, foreign),
}


def link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def alternates(git_dir: Path, foreign: Path) -> None:
    """HEAD is a private repository's commit, by a link as a ref and by borrowed objects."""
    (git_dir / "objects" / "info" / "alternates").write_text(f"{foreign / '.git' / 'objects'}\n")
    link(git_dir / "refs" / "heads" / "zz", foreign / ".git" / "refs" / "heads" / "main")
    (git_dir / "HEAD").write_text("ref: refs/heads/zz\n")


@pytest.mark.parametrize("trick", TRICKS)
def test_git_is_not_led_out_of_a_clone(workshop: Workshop, trick: str) -> None:
    """Whatever Holdfast does with the `.git` of a clone after its agent has ended: no file elsewhere is written, and
    nothing of another repository is told. The agent of a container could reach neither itself."""
    fleet = workshop.fleet
    strategy, workspace, path = made(workshop)
    workspace = replace(workspace, base_commit=fleet.git("rev-parse", "HEAD"))
    rules, repo = DEFAULT_SALVAGE, workshop.repo
    ref = "refs/holdfast/checkpoints/task1/1"
    (path / "first").write_text("x\n")
    taken = workshop.run(strategy.checkpoint(repo, workspace, ref, rules))
    assert taken is not None
    (path / "second").write_text("y\n")
    foreign = fleet.make_repo(fleet.root / "private")
    (foreign / "secret-plan").write_text("buy them\n")
    fleet.git("add", ".", cwd=foreign)
    fleet.git("commit", "--quiet", "-m", "secret subject", cwd=foreign)
    (foreign / "victim").write_text("mine\n")
    before = fleet.git("for-each-ref", cwd=foreign), fleet.git("count-objects", cwd=foreign)

    TRICKS[trick](path / ".git", foreign)
    steps: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "commit": lambda: strategy.commit_leftovers(repo, workspace, "all", "m"),
        "deliver": lambda: strategy.deliver(repo, workspace),
        "base": lambda: strategy.bring_base(repo, workspace, "main"),
        "go back": lambda: strategy.go_back(repo, workspace, taken.commit, rules),
        "salvage": lambda: strategy.salvage(repo, workspace, "test", rules),
    }
    for name, step in steps.items():
        with pytest.raises(WorkspaceProblem, match="not trusted"):
            pytest.fail(f"{name}: {workshop.run(step())}")
    touched = workshop.run(TouchedFiles(workshop.git)(workspace, (), is_committed=False))
    so_far = workshop.run(ChangesReader(workshop.home, workshop.git).read(workspace))
    assert "secret" not in f"{touched} {so_far}"
    assert touched == ChangedFiles()
    assert (foreign / "victim").read_text() == "mine\n"
    assert (fleet.git("for-each-ref", cwd=foreign), fleet.git("count-objects", cwd=foreign)) == before
