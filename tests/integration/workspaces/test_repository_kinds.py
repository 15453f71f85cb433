"""Repositories of all kinds: work is saved whole from each, and stands without the user's objects."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fleet import Fleet
from tests.integration.conftest import Workshop

from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import Repo
from holdfast.workspaces.git.git import GitFailed
from holdfast.workspaces.port import SalvageResult


def use(workshop: Workshop, path: Path) -> None:
    """Work on another repository from here on."""
    common = workshop.fleet.git("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=path)
    workshop.repo = Repo(id="repo1", path=str(path), common_dir=common)
    workshop.fleet.repo = path


def dirty(workshop: Workshop) -> tuple[SalvageResult, Path]:
    """A workspace with work of every common kind, saved; the user's objects are gone afterwards."""
    workspace, tree = workshop.made()
    assert not (workshop.fleet.root / "canary").exists()
    (tree / "README.md").write_text("changed\n")
    (tree / "staged.txt").write_text("staged\n")
    workshop.fleet.git("add", "staged.txt", cwd=tree)
    (tree / "staged.txt").write_text("and changed\n")
    (tree / "untracked.txt").write_text("untracked\n")
    (workshop.fleet.root / "canary").unlink(missing_ok=True)  # `git add` was the agent's
    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))
    assert saved is not None
    assert not saved.partial
    assert saved.files == 3
    return saved, tree


def assert_whole(workshop: Workshop, saved: SalvageResult) -> None:
    show = workshop.shadow
    assert show("show", f"{saved.commit}:README.md") == "changed"
    assert show("show", f"{saved.commit}:staged.txt") == "and changed"
    assert show("show", f"{saved.commit}^2:staged.txt") == "staged"
    assert show("show", f"{saved.commit}:untracked.txt") == "untracked"
    assert "src/app.py" in show("ls-tree", "-r", "--name-only", saved.commit).split()
    show("fsck", "--strict", "--no-dangling")


def shallow(fleet: Fleet) -> Path:
    for number in range(3):
        fleet.git("commit", "--quiet", "--allow-empty", "-m", f"history {number}")
    fleet.git("clone", "--quiet", "--depth=1", f"file://{fleet.repo}", str(fleet.root / "kind"))
    return fleet.root / "kind"


def borrowing(fleet: Fleet) -> Path:
    """Its objects are another repository's: a local clone of it would borrow them too."""
    fleet.git("clone", "--quiet", "--shared", str(fleet.repo), str(fleet.root / "kind"))
    return fleet.root / "kind"


def a_worktree(fleet: Fleet) -> Path:
    fleet.git("worktree", "add", "--quiet", "-b", "mine", str(fleet.root / "kind"))
    return fleet.root / "kind"


def sha256(fleet: Fleet) -> Path:
    kind = fleet.root / "kind"
    kind.mkdir()
    fleet.git("init", "--quiet", "-b", "main", "--object-format=sha256", cwd=kind)
    return fleet.make_repo(kind)


def bare_with_checkout(fleet: Fleet) -> Path:
    fleet.git("clone", "--quiet", "--bare", str(fleet.repo), str(fleet.root / "bare.git"))
    fleet.git("worktree", "add", "--quiet", str(fleet.root / "kind"), "main", cwd=fleet.root / "bare.git")
    return fleet.root / "kind"


def with_hooks(fleet: Fleet) -> Path:
    """Everything that could make git run something of the repository's."""
    canary = fleet.root / "canary"
    for hook in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "pre-auto-gc"):
        path = fleet.repo / ".git" / "hooks" / hook
        path.write_text(f"#!/bin/sh\ntouch {canary}\n")
        path.chmod(0o755)
    (fleet.repo / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil\n")
    for key in ("filter.evil.clean", "filter.evil.smudge", "core.fsmonitor", "diff.evil.textconv", "core.pager"):
        fleet.git("config", key, f"touch {canary}; cat")
    return fleet.repo


def on_another_file_system(fleet: Fleet) -> Path:
    kind = Path("/dev/shm") / f"holdfast-test-{os.getpid()}-{fleet.root.name}"
    if not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == os.stat(fleet.root).st_dev:
        pytest.skip("no second file system here")
    return fleet.make_repo(kind)


@pytest.mark.parametrize(
    "kind",
    [shallow, borrowing, a_worktree, sha256, bare_with_checkout, with_hooks, on_another_file_system],
)
def test_work_is_saved_from_every_kind_of_repository(workshop: Workshop, kind: object) -> None:
    """R-TREE-13: and nothing of the repository's own was executed. Its objects are deleted before we look."""
    assert callable(kind)
    path = kind(workshop.fleet)
    try:
        use(workshop, path)
        saved, _tree = dirty(workshop)
        assert not (workshop.fleet.root / "canary").exists()
        assert workshop.fleet.git("for-each-ref", "refs/salvage") == ""
        shutil.rmtree(workshop.repo.common_dir)
        shutil.rmtree(workshop.fleet.root / "repo", ignore_errors=True)
        assert_whole(workshop, saved)
    finally:
        if str(path).startswith("/dev/shm/"):
            shutil.rmtree(path, ignore_errors=True)


def test_a_sparse_checkout_deletes_nothing(workshop: Workshop) -> None:
    """Files that are not checked out are not mistaken for deleted ones, even when the index is gone."""
    fleet = workshop.fleet
    fleet.git("sparse-checkout", "set", "--cone", "src")
    (fleet.repo / "far").mkdir()
    workspace, tree = workshop.made()
    fleet.git("sparse-checkout", "set", "--cone", "--sparse-index", "other", cwd=tree)
    assert not (tree / "src").exists()
    assert workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test")) is None
    (tree / "README.md").write_text("changed\n")
    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))
    assert saved is not None
    assert saved.files == 1
    (Path(workshop.repo.common_dir) / "worktrees" / "task1" / "index").unlink()
    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))
    assert saved is not None
    assert "src/app.py" in workshop.shadow("ls-tree", "-r", "--name-only", saved.commit).split()


def with_submodule(workshop: Workshop) -> Path:
    """A workspace whose submodule `lib` is checked out."""
    fleet = workshop.fleet
    library = fleet.make_repo(fleet.root / "library", {"lib.py": "x = 1\n"})
    allow = ("-c", "protocol.file.allow=always")
    fleet.git(*allow, "submodule", "--quiet", "add", str(library), "lib")
    fleet.git("commit", "--quiet", "-m", "with a library")
    _workspace, tree = workshop.made()
    fleet.git(*allow, "submodule", "--quiet", "update", "--init", cwd=tree)
    assert (tree / "lib" / "lib.py").exists()
    return tree


def test_submodules_are_left_alone_until_they_hold_work(workshop: Workshop) -> None:
    """R-TREE-13: unchanged, they stop nothing; changed, the directory is preserved, with a clear reason."""
    tree = with_submodule(workshop)
    workspace, git = workshop.workspace(), workshop.fleet.git

    def save() -> SalvageResult | None:
        return workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))

    assert save() is None
    (tree / "README.md").write_text("changed beside it\n")
    assert save() is not None
    (tree / "lib" / "new.py").write_text("work\n")
    with pytest.raises(WorkspaceProblem, match=r"submodule .*lib has uncommitted changes"):
        save()
    git("add", ".", cwd=tree / "lib")
    git("commit", "--quiet", "-m", "work", cwd=tree / "lib")
    with pytest.raises(WorkspaceProblem, match="at another commit"):
        save()
    git("checkout", "--quiet", "HEAD~1", cwd=tree / "lib")
    with pytest.raises(WorkspaceProblem, match="commits of its own"):
        save()
    shutil.rmtree(tree / "lib")
    (tree / "lib").mkdir()
    with pytest.raises(WorkspaceProblem, match="commits of its own"):  # they go with the git entry
        save()
    shutil.rmtree(Path(workshop.repo.common_dir) / "worktrees" / "task1" / "modules")
    (tree / "lib" / "file").write_text("in the place of a submodule")
    with pytest.raises(WorkspaceProblem, match="in the place of a submodule"):
        save()


def test_an_ignored_repository_inside_is_nobodys_work(workshop: Workshop) -> None:
    """Package managers keep clones in ignored directories: git would not add them, so they stop nothing."""
    workspace, tree = workshop.made()
    (tree / ".gitignore").write_text("vendor/\n")
    workshop.fleet.make_repo(tree / "vendor" / "thing")
    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))
    assert saved is not None
    assert saved.files == 1
    (tree / "empty").mkdir()
    workshop.fleet.git("init", "--quiet", cwd=tree / "empty")
    with pytest.raises(WorkspaceProblem, match="empty is a repository of its own"):
        workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))


def test_lfs_pointers_and_smudged_files_are_saved_as_they_lie_there(workshop: Workshop) -> None:
    """No filter runs, the user's own neither: what is on disk is saved, and an unchanged file is no change."""
    fleet = workshop.fleet
    (fleet.repo / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 9\n"
    (fleet.repo / "a.bin").write_text(pointer)
    fleet.git("add", ".")
    fleet.git("commit", "--quiet", "-m", "pointer")
    canary = fleet.root / "canary"
    fleet.git("config", "--global", "filter.lfs.smudge", "printf 'the real thing'")
    fleet.git("config", "--global", "filter.lfs.clean", f"touch {canary}; printf '%s' '{pointer}'")
    workspace, tree = workshop.made()
    assert (tree / "a.bin").read_text() == "the real thing"  # the user's own filter makes the checkout
    os.utime(tree / "a.bin", (1, 1))
    index = Path(workshop.repo.common_dir) / "worktrees" / "task1" / "index"
    fleet.git("update-index", "--refresh", cwd=tree, check=False)
    canary.unlink(missing_ok=True)
    os.utime(index)
    assert workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test")) is None
    (tree / "b.bin").write_text("new and real")
    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))
    assert saved is not None
    assert saved.files == 1
    assert workshop.shadow("show", f"{saved.commit}:b.bin") == "new and real"
    assert not canary.exists()


def test_a_shadow_is_not_harmed_by_what_the_agent_does_to_the_repository(workshop: Workshop) -> None:
    """R-TREE-13: `gc --prune=now` while salvages are made, then `.git` deleted: every salvage is whole."""
    fleet = workshop.fleet
    made = [workshop.made(f"task{number}") for number in range(2)]
    loop = subprocess.Popen(
        ["sh", "-c", "while :; do git gc --quiet --prune=now || git prune --expire=now; done"],
        cwd=fleet.repo,
        env=fleet.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        saved = []
        for number in range(3):
            for workspace, tree in made:
                (tree / "work.txt").write_text(f"{workspace.id} {number}")
                fleet.git("add", "work.txt", cwd=tree, check=False)
                (tree / "work.txt").write_text(f"{workspace.id} {number} more")
                one = replace(workspace, id=f"{workspace.id}-{number}")
                try:
                    saved.append(workshop.run(workshop.worktrees.salvage(workshop.repo, one, "a test")))
                except GitFailed as error:  # a prune may take a staged blob away under git's own eyes: then it says so
                    pytest.fail(f"{error}")
    finally:
        os.killpg(loop.pid, 9)
        loop.wait()
    shutil.rmtree(workshop.repo.common_dir)
    workshop.shadow("fsck", "--strict", "--no-dangling")
    for kept in saved:
        assert kept is not None
        assert workshop.shadow("show", f"{kept.commit}:work.txt").endswith("more")
