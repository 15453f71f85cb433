"""Going back to a checkpoint loses nothing of what lies there: what is ignored now, and what came in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.integration.conftest import Workshop

from holdfast.api.home import backup
from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import Strategy, Workspace
from holdfast.core.task_settings import SalvageRules
from holdfast.workspaces.git import git_state
from holdfast.workspaces.names import checkpoint_ref, shadow_path
from holdfast.workspaces.port import UnsavedWork
from holdfast.workspaces.snapshots.reclaim import Reclaimer
from holdfast.workspaces.strategies.clone import CloneStrategy

RULES = SalvageRules()


def kept(workshop: Workshop, workspace: Workspace) -> str:
    found = workshop.run(workshop.worktrees.checkpoint(workshop.repo, workspace, checkpoint_ref("task1", 1), RULES))
    assert found is not None
    return found.commit


def test_what_is_ignored_now_is_saved_before_it_is_written_over(workshop: Workshop) -> None:
    """R-RES-11: a file that was kept, and is ignored since; a folder of ignored files where a file was; a link where a
    folder was. Each is in the salvage, no link is followed, and what is in nobody's way stays."""
    workspace, tree = workshop.made()
    outside = workshop.fleet.root / "outside"
    outside.mkdir()
    (outside / "inner.txt").write_text("not ours")
    (tree / "notes.txt").write_text("then")
    (tree / "cache").write_text("a file then")
    (tree / "linked").mkdir()
    (tree / "linked" / "inner.txt").write_text("ours")
    commit = kept(workshop, workspace)
    (tree / "notes.txt").write_text("only here")
    (tree / "cache").unlink()
    (tree / "cache" / "deep").mkdir(parents=True)
    (tree / "cache" / "deep" / "object").write_text("only here too")
    (tree / "linked" / "inner.txt").unlink()
    (tree / "linked").rmdir()
    (tree / "linked").symlink_to(outside)
    (tree / "other.log").write_text("in nobody's way")
    (tree / ".gitignore").write_text("notes.txt\ncache/\nlinked\n*.log\n")

    saved = workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "going back", RULES, over=commit))
    assert saved is not None
    workshop.run(workshop.worktrees.go_back(workshop.repo, workspace, commit, RULES))

    assert (tree / "notes.txt").read_text() == "then"
    assert (tree / "cache").read_text() == "a file then"
    assert (tree / "linked" / "inner.txt").read_text() == "ours"
    assert (outside / "inner.txt").read_text() == "not ours"
    assert (tree / "other.log").read_text() == "in nobody's way"
    assert workshop.shadow("show", f"{saved.commit}:notes.txt") == "only here"
    assert workshop.shadow("show", f"{saved.commit}:cache/deep/object") == "only here too"
    assert workshop.shadow("show", f"{saved.commit}:linked") == str(outside)


def test_what_came_after_the_salvage_is_not_written_over(workshop: Workshop) -> None:
    """R-RES-11: a supervisor died between saving and going back, and somebody was in the tree meanwhile: refused until
    that is saved too. What an earlier try has brought already is no reason to refuse."""
    workspace, tree = workshop.made()
    (tree / "notes.txt").write_text("then")
    (tree / "README.md").write_text("then")
    commit = kept(workshop, workspace)
    (tree / "notes.txt").write_text("later")
    (tree / "README.md").write_text("later")

    async def save() -> None:
        await workshop.worktrees.salvage(workshop.repo, workspace, "going back", RULES, over=commit)

    workshop.run(save())
    (tree / "notes.txt").write_text("then")  # half done
    (tree / "new.txt").write_text("by somebody in a shell")
    with pytest.raises(UnsavedWork, match=r"new\.txt"):
        workshop.run(workshop.worktrees.go_back(workshop.repo, workspace, commit, RULES))
    assert (tree / "new.txt").read_text() == "by somebody in a shell"
    assert (tree / "README.md").read_text() == "later"
    workshop.run(save())
    workshop.run(workshop.worktrees.go_back(workshop.repo, workspace, commit, RULES))
    assert (tree / "README.md").read_text() == "then"
    assert not (tree / "new.txt").exists()


def test_no_command_of_a_clone_is_run(workshop: Workshop, tmp_path: Path) -> None:
    """A clone's settings are its agent's: a commit that it dropped comes back from the shadow, from nowhere else."""
    strategy = CloneStrategy(workshop.home, workshop.git)
    workspace = workshop.workspace("task1", Strategy.CLONE)
    workshop.run(strategy.prepare(workshop.repo, workspace, None))
    tree, git, ran = Path(workspace.path), workshop.fleet.git, tmp_path / "ran"
    (tree / "work.txt").write_text("work")
    git("add", "work.txt", cwd=tree)
    git("commit", "--quiet", "-m", "work", cwd=tree)
    head = git("rev-parse", "HEAD", cwd=tree)
    found = workshop.run(strategy.checkpoint(workshop.repo, workspace, checkpoint_ref("task1", 1), RULES))
    assert found is not None
    git("commit", "--quiet", "--allow-empty", "-m", "beyond", cwd=tree)
    beyond, branches = git("rev-parse", "HEAD", cwd=tree), git("for-each-ref")
    saved = workshop.run(strategy.salvage(workshop.repo, workspace, "going back", RULES, over=found.commit))
    assert saved is not None
    assert beyond in workshop.shadow("rev-list", saved.commit).split()
    assert git("for-each-ref") == branches, "what it goes back from is no result: not in the user's repository"
    git("reset", "--quiet", "--hard", "HEAD~2", cwd=tree)
    git("reflog", "expire", "--expire=now", "--all", cwd=tree)
    git("gc", "--quiet", "--prune=now", cwd=tree)
    git("config", "core.sshCommand", f"touch {ran}; false", cwd=tree)
    git("config", "url.ssh://nowhere/.insteadOf", f"{workshop.home}/", cwd=tree)
    workshop.run(strategy.go_back(workshop.repo, workspace, found.commit, RULES))
    assert not ran.exists()
    assert git("rev-parse", "HEAD", cwd=tree) == head


def test_a_backup_has_checkpoints_where_nothing_else_is_saved(workshop: Workshop) -> None:
    """R-RES-11: a paused task continues from its checkpoint, on another machine too."""
    workspace, tree = workshop.made()
    (tree / "notes.txt").write_text("then")
    kept(workshop, workspace)
    staging = workshop.fleet.root / "staging"
    staging.mkdir()
    names, _salvages = backup._collect_files(workshop.home, str(staging))
    assert f"shadows/{workshop.repo.id}.bundle" in names


def test_a_link_in_its_git_directory_is_not_followed(workshop: Workshop) -> None:
    """An agent in a container could have its index written to any file of the user's."""
    workspace, tree = workshop.made()
    (tree / "staged.txt").write_text("staged")
    workshop.fleet.git("add", "staged.txt", cwd=tree)
    commit = kept(workshop, workspace)
    precious = workshop.fleet.root / "precious"
    precious.write_text("the user's")
    entry = Path(workshop.fleet.git("rev-parse", "--absolute-git-dir", cwd=tree))
    (entry / "index.holdfast").symlink_to(precious)
    workshop.run(workshop.worktrees.go_back(workshop.repo, workspace, commit, RULES))
    assert precious.read_text() == "the user's"
    assert workshop.fleet.git("diff", "--cached", "--name-only", cwd=tree) == "staged.txt"


def test_a_lock_that_goes_while_a_git_directory_is_read(tmp_path: Path) -> None:
    """R-RES-11: an agent's git is at work while its tree is kept."""
    for name in ("HEAD", "HEAD.lock"):
        (tmp_path / name).write_text("ref: refs/heads/main\n")
    names = git_state.list_state_files(str(tmp_path))
    assert next(names) == "HEAD"
    (tmp_path / "HEAD.lock").unlink()
    assert list(names) == []


def test_an_empty_directory_is_not_gone(workshop: Workshop) -> None:
    """An agent in a plain directory has often written nothing yet. That is no failure. A directory that is gone is."""
    workspace = workshop.workspace("task1", Strategy.DIRECTORY)
    workshop.run(workshop.directories.prepare(workshop.repo, workspace, None))
    ref = checkpoint_ref("task1", 1)
    assert workshop.run(workshop.directories.checkpoint(workshop.repo, workspace, ref, RULES)) is None
    os.rmdir(workspace.path)
    with pytest.raises(WorkspaceProblem, match="is gone"):
        workshop.run(workshop.directories.checkpoint(workshop.repo, workspace, ref, RULES))


def test_refs_of_checkpoints_are_listed_with_their_fence(workshop: Workshop) -> None:
    """A crash between the ref and its row leaves a ref that nothing else names. Pruning finds it by this list."""
    workspace, tree = workshop.made()
    (tree / "new").write_text("new\n")
    found = {}
    for ref in (checkpoint_ref("task1", 1), checkpoint_ref("task1", 2, 7)):
        taken = workshop.run(workshop.worktrees.checkpoint(workshop.repo, workspace, ref, RULES))
        assert taken is not None
        found[ref] = taken.commit
    (Path(shadow_path(workshop.home, workshop.repo.id)) / f"{ref}.lock").touch()
    reclaimer = Reclaimer(workshop.home, workshop.git)
    assert reclaimer.checkpoint_refs(workshop.repo) == found
    assert workshop.run(reclaimer.reclaim(workshop.repo, found))
    assert reclaimer.checkpoint_refs(workshop.repo) == {}
