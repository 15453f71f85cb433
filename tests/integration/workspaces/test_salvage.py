"""Salvage: whatever state an agent leaves a tree in, what git would add is found again, byte for byte."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fleet import Fleet
from tests.integration.conftest import Workshop

from holdfast.base.errors import WorkspaceProblem
from holdfast.workspaces.names import salvage_ref, trash_path
from holdfast.workspaces.snapshots import private_index

Mess = Callable[[Fleet, Path], None]


def files_of(workshop: Workshop, commit: str) -> dict[str, str]:
    """Every path of a commit with its mode and content id."""
    listed = workshop.shadow("ls-tree", "-r", "-z", commit)
    return {line.split("\t", 1)[1]: line.split("\t")[0] for line in listed.split("\0") if line}


def hash_of(workshop: Workshop, path: Path) -> str:
    if path.is_symlink():
        mode, content = "120000", os.readlink(path).encode()
    else:
        mode = "100755" if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else "100644"
        content = path.read_bytes()
    (workshop.fleet.root / "content").write_bytes(content)
    blob = workshop.fleet.git("hash-object", "--no-filters", str(workshop.fleet.root / "content"))
    return f"{mode} blob {blob}"


def tree_on_disk(workshop: Workshop, root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hash_of(workshop, path)
        for path in sorted(root.rglob("*"))
        if (path.is_file() or path.is_symlink()) and path != root / ".git"
    }


def untracked(fleet: Fleet, tree: Path) -> None:
    (tree / "new dir").mkdir()
    (tree / "new dir" / "näme\n.txt").write_bytes(b"\x00\xff binary\r\n")


def modified_and_staged(fleet: Fleet, tree: Path) -> None:
    (tree / "README.md").write_text("staged\n")
    fleet.git("add", "README.md", cwd=tree)
    (tree / "README.md").write_text("and changed again\n")


def deleted_and_renamed(fleet: Fleet, tree: Path) -> None:
    (tree / "README.md").unlink()
    fleet.git("mv", "src/app.py", "src/renamed.py", cwd=tree)


def modes_and_symlinks(fleet: Fleet, tree: Path) -> None:
    (tree / "README.md").chmod(0o755)
    (tree / "dangling").symlink_to("/nowhere/at all")
    (tree / "into").symlink_to("src")


def line_ends_and_filters(fleet: Fleet, tree: Path) -> None:
    (tree / ".gitattributes").write_text("* text eol=lf filter=evil\n")
    (tree / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    fleet.git("config", "filter.evil.clean", f"touch {fleet.root}/canary; cat")
    fleet.git("config", "core.fsmonitor", f"touch {fleet.root}/canary")


def merging(fleet: Fleet, tree: Path) -> None:
    fleet.git("checkout", "--quiet", "-b", "other", cwd=tree)
    (tree / "README.md").write_text("theirs\n")
    fleet.git("commit", "--quiet", "-am", "theirs", cwd=tree)
    fleet.git("checkout", "--quiet", "holdfast/task1", cwd=tree)
    (tree / "README.md").write_text("ours\n")
    fleet.git("commit", "--quiet", "-am", "ours", cwd=tree)
    fleet.git("merge", "other", cwd=tree, check=False)
    assert "<<<<<<<" in (tree / "README.md").read_text()


def without_git(fleet: Fleet, tree: Path) -> None:
    (tree / "README.md").write_text("changed\n")
    (tree / ".git").unlink()


def after_prune(fleet: Fleet, tree: Path) -> None:
    (tree / "README.md").write_text("changed\n")
    fleet.git("worktree", "unlock", str(tree))
    fleet.git("gc", "--quiet", "--prune=now")


def only_a_big_file(fleet: Fleet, tree: Path) -> None:
    (tree / "big.bin").write_bytes(os.urandom(3 * 1024 * 1024))


@pytest.mark.parametrize(
    "mess",
    [
        untracked,
        modified_and_staged,
        deleted_and_renamed,
        modes_and_symlinks,
        line_ends_and_filters,
        merging,
        without_git,
        after_prune,
        only_a_big_file,
    ],
)
def test_every_state_of_a_tree_is_saved_whole(workshop: Workshop, mess: Mess) -> None:
    """R-TREE-13: the saved commit equals the tree on disk, modes and bytes, and nothing of the agent's was executed."""
    workspace, tree = workshop.made()
    mess(workshop.fleet, tree)
    on_disk = tree_on_disk(workshop, tree)
    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))
    assert saved is not None
    assert files_of(workshop, saved.commit) == on_disk
    assert not (workshop.fleet.root / "canary").exists()
    assert workshop.fleet.git("for-each-ref", "refs/salvage") == ""  # nothing of ours in the user's repository
    workshop.shadow("fsck", "--connectivity-only", saved.commit)


def test_staged_content_that_the_work_tree_no_longer_has_is_saved_as_a_parent(workshop: Workshop) -> None:
    """R-TREE-13: staged and then deleted or overwritten is work too; and it stands without the user's objects."""
    workspace, tree = workshop.made()
    (tree / "staged.txt").write_text("only in the index\n")
    workshop.fleet.git("add", "staged.txt", cwd=tree)
    (tree / "staged.txt").unlink()
    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))
    assert saved is not None
    assert workshop.shadow("show", f"{saved.commit}^2:staged.txt") == "only in the index"


def test_detached_commits_are_saved_though_the_tree_is_clean(workshop: Workshop) -> None:
    """R-TREE-13: commits that no branch holds."""
    workspace, tree = workshop.made()
    workshop.fleet.git("checkout", "--quiet", "--detach", cwd=tree)
    (tree / "floating.txt").write_text("on no branch\n")
    workshop.fleet.git("add", ".", cwd=tree)
    workshop.fleet.git("commit", "--quiet", "-m", "float", cwd=tree)
    commit = workshop.fleet.git("rev-parse", "HEAD", cwd=tree)
    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))
    assert saved is not None
    assert saved.base == commit
    assert workshop.shadow("show", f"{saved.commit}:floating.txt") == "on no branch"


def test_a_clean_tree_needs_no_salvage(workshop: Workshop) -> None:
    workspace, tree = workshop.made()
    (tree / "done.txt").write_text("committed\n")
    workshop.fleet.git("add", ".", cwd=tree)
    workshop.fleet.git("commit", "--quiet", "-m", "done", cwd=tree)
    (tree / "ignored.log").write_text("x")
    (Path(workshop.repo.common_dir) / "info" / "exclude").write_text("*.log\n")
    assert workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test")) is None


def test_a_nested_repository_cannot_be_saved_and_says_so(workshop: Workshop) -> None:
    """A commit would hold only a link: refused, so that the caller preserves the directory."""
    workspace, tree = workshop.made()
    workshop.fleet.make_repo(tree / "nested")
    with pytest.raises(WorkspaceProblem, match="repository of its own"):
        workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))


@pytest.mark.parametrize("mess", [untracked, modified_and_staged, deleted_and_renamed, modes_and_symlinks])
def test_a_new_workspace_can_start_from_the_saved_work(workshop: Workshop, mess: Mess) -> None:
    """A retry continues where the last attempt stopped: the same files, byte for byte, on the same branch."""
    workspace, tree = workshop.made()
    mess(workshop.fleet, tree)
    on_disk = tree_on_disk(workshop, tree)
    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test"))
    assert saved is not None
    workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    workshop.run(workshop.worktrees.delete_trash(workspace))
    assert not tree.exists()
    workshop.run(workshop.worktrees.prepare(workshop.repo, workspace, saved.commit))
    assert tree_on_disk(workshop, tree) == on_disk
    assert workshop.fleet.git("symbolic-ref", "--short", "HEAD", cwd=tree) == "holdfast/task1"


def test_saving_again_after_the_rename_saves_no_less(workshop: Workshop) -> None:
    """Killed between the rename into the trash and the end of its git entry, which remembers an amended commit."""
    workspace, path = workshop.made()
    for words in (["-m", "first"], ["--amend", "-m", "second"]):
        workshop.fleet.git("commit", "--quiet", "--allow-empty", *words, cwd=path)
    untracked(workshop.fleet, path)
    first = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "test"))
    assert first is not None
    os.makedirs(os.path.dirname(trash_path(workshop.home, workspace.id)))
    os.rename(workspace.path, trash_path(workshop.home, workspace.id))
    again = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "test"))
    assert again is not None
    assert files_of(workshop, again.commit) == files_of(workshop, first.commit)


def test_saving_again_loses_nothing_that_was_saved_before(workshop: Workshop) -> None:
    """A teardown command, say, removed it since; we were killed before the rename, so its work is saved again."""
    workspace, path = workshop.made()
    (path / "work").write_text("precious\n")
    first = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "test"))
    assert first is not None
    (path / "work").unlink()
    (path / "README.md").write_text("changed since\n")
    again = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "test"))
    assert again is not None
    assert first.commit in workshop.shadow("rev-list", again.ref).split()


def test_locks_that_a_killed_git_left_in_the_shadow_do_not_stop_a_salvage(workshop: Workshop) -> None:
    """Found by the await walker: a git that was killed in `update-ref` made every later salvage of the tree fail."""
    workspace, path = workshop.made()
    (path / "work").write_text("precious")
    assert workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "first"))
    shadow = Path(workshop.home) / "shadows" / f"{workshop.repo.id}.git"
    ref = salvage_ref(workspace.task_id, workspace.id)
    assert (shadow / ref).exists()
    (shadow / f"{ref}.lock").touch()
    (path / "work").write_text("more precious")
    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "second"))
    assert saved is not None
    assert workshop.shadow("show", f"{saved.ref}:work") == "more precious"


def test_many_tasks_of_one_repository_are_saved_at_the_same_time(workshop: Workshop) -> None:
    """The shadow repository is made once, though eight endings want it at the same moment."""
    import asyncio

    made = [workshop.made(f"task{number}") for number in range(8)]
    for _workspace, tree in made:
        (tree / "work.txt").write_text(tree.name)

    async def all_at_once() -> list[object]:
        return list(
            await asyncio.gather(*(workshop.worktrees.salvage(workshop.repo, workspace, "x") for workspace, _ in made))
        )

    saved = workshop.run(all_at_once())
    assert len([one for one in saved if one is not None]) == 8


@pytest.mark.parametrize("where", ["tree/.gitignore", "tree/src/.gitattributes", "entry/index", "entry/HEAD"])
def test_a_pipe_that_git_would_read_is_told_at_once(workshop: Workshop, where: str) -> None:
    """R-TREE-13: git waits at a pipe for ever. Each such task held an agent's place for minutes."""
    workspace, path = workshop.made()
    (path / "work").write_text("precious")
    kind, _, name = where.partition("/")
    pipe = (path if kind == "tree" else Path(workshop.repo.common_dir) / "worktrees" / path.name) / name
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)

    async def save() -> None:
        async with asyncio.timeout(60):
            assert await workshop.worktrees.commit_leftovers(workshop.repo, workspace, "all", "Leftovers") is None
            await workshop.worktrees.salvage(workshop.repo, workspace, "test")

    with pytest.raises(WorkspaceProblem, match="not a plain file"):
        workshop.run(save())
    workshop.run(workshop.worktrees.drop_stale_locks(workshop.repo, workspace))
    assert pipe.exists() == (kind == "tree")  # in our entry it would stop the user's own git


def test_a_file_in_the_place_of_the_workspace_is_preserved(workshop: Workshop) -> None:
    """R-TREE-13: an agent removed its directory and wrote a file of that name; it went with the trash."""
    workspace, path = workshop.made()
    shutil.rmtree(path)
    path.write_text("precious")
    with pytest.raises(WorkspaceProblem, match="is a file"):
        workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "test"))


def test_a_directory_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    """Red team R2-1: git looks for links on the way to a file once. A living agent in a container puts one there
    later, and the file of the machine behind it would come back to the agent with its checkpoint."""
    tree, outside, copies = tmp_path / "tree", tmp_path / "outside", tmp_path / "copies"
    for folder in (tree / "d", outside):
        folder.mkdir(parents=True)
        (folder / "id").write_text(folder.name)
    assert private_index._copy_files(str(tree), str(copies), ["d/id"], 1 << 30) == (["d/id"], [])
    (tree / "d").rename(tree / "was")
    (tree / "d").symlink_to(outside)
    (tree / "l").symlink_to(outside / "id")
    assert private_index._copy_files(str(tree), str(copies / "2"), ["d/id", "l"], 1 << 30) == (["l"], [])
    assert os.readlink(copies / "2" / "l") == str(outside / "id")
    assert not (copies / "2" / "d" / "id").exists()
