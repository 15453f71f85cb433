"""R-TREE-13: states of a tree that are easily lost. What the branch does not hold is in the salvage afterwards, though
the user's repository is gone; or the salvage says that the directory has to stay."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fleet import wait_until
from tests.integration.conftest import Workshop

from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import Workspace
from holdfast.core.task_settings import SalvageRules
from holdfast.workspaces.port import SalvageResult

CLOSED = "root may read everything; run it by: setpriv --bounding-set=-dac_override,-dac_read_search pytest …"


def save(workshop: Workshop, workspace: Workspace, rules: SalvageRules | None = None) -> SalvageResult | None:
    return workshop.run(workshop.worktrees.salvage(workshop.repo, workspace, "a test", rules or SalvageRules()))


def content(workshop: Workshop, what: str) -> str:
    return workshop.shadow("show", what)


def conflict(workshop: Workshop, tree: Path) -> None:
    """Two branches that changed the same file."""
    git = workshop.fleet.git
    git("checkout", "--quiet", "-b", "other", cwd=tree)
    (tree / "README.md").write_text("theirs\n")
    git("commit", "--quiet", "-am", "theirs", cwd=tree)
    git("checkout", "--quiet", "holdfast/task1", cwd=tree)
    (tree / "README.md").write_text("ours\n")
    git("commit", "--quiet", "-am", "ours", cwd=tree)


@pytest.mark.parametrize(
    ("command", "word"), [("merge", "merge"), ("rebase", "rebase"), ("cherry-pick", "cherry-pick")]
)
def test_an_unmerged_index_is_saved_with_all_its_sides(workshop: Workshop, command: str, word: str) -> None:
    """R-TREE-13: the agent resolved the file and added nothing: the sides of the conflict are only in its index. The
    user's repository is gone afterwards: nothing depends on its objects."""
    workspace, tree = workshop.made()
    conflict(workshop, tree)
    workshop.fleet.git("branch", "--quiet", "keep", "other")
    workshop.fleet.git(command, "other", cwd=tree, check=False)
    (tree / "README.md").write_text("resolved\n")
    (tree / "staged.txt").write_text("staged in the middle of it\n")
    workshop.fleet.git("add", "staged.txt", cwd=tree)
    (tree / "staged.txt").unlink()
    saved = save(workshop, workspace)
    assert saved is not None
    assert saved.details["operation"] == word
    assert saved.details["unmerged"] == 1
    assert not saved.partial
    shutil.rmtree(workshop.repo.common_dir)
    assert content(workshop, f"{saved.commit}:README.md") == "resolved"
    state = f"{saved.commit}^2"
    sides = {content(workshop, f"{state}:stages/{stage}/README.md") for stage in (2, 3)}
    assert sides == {"ours", "theirs"}
    assert content(workshop, f"{state}:stages/1/README.md") == "# Test"
    assert content(workshop, f"{state}:stages/0/staged.txt") == "staged in the middle of it"
    assert workshop.shadow("cat-file", "-s", f"{state}:git/index") != "0"
    workshop.shadow("fsck", "--strict", "--no-dangling")


def test_commits_that_only_the_reflog_remembers_are_saved(workshop: Workshop) -> None:
    """R-TREE-13: committed while detached and left, amended: all of it goes with the worktree's git entry. A tree that
    is clean and on its branch is saved for their sake."""
    workspace, tree = workshop.made()
    git = workshop.fleet.git
    git("checkout", "--quiet", "--detach", cwd=tree)
    (tree / "floating.txt").write_text("on no branch\n")
    git("add", ".", cwd=tree)
    git("commit", "--quiet", "-m", "float", cwd=tree)
    floating = git("rev-parse", "HEAD", cwd=tree)
    git("checkout", "--quiet", "holdfast/task1", cwd=tree)
    git("commit", "--quiet", "--allow-empty", "-m", "first words", cwd=tree)
    amended = git("rev-parse", "HEAD", cwd=tree)
    git("commit", "--quiet", "--amend", "--allow-empty", "-m", "better words", cwd=tree)
    saved = save(workshop, workspace)
    assert saved is not None
    assert saved.details["commits"] == 2
    workshop.run(workshop.worktrees.put_away(workshop.repo, workspace))
    git("reflog", "expire", "--expire=now", "--all")
    git("gc", "--quiet", "--prune=now")
    shutil.rmtree(workshop.repo.common_dir)
    assert content(workshop, f"{floating}:floating.txt") == "on no branch"
    held = workshop.shadow("rev-list", saved.ref).split()
    assert {floating, amended} <= set(held)
    workshop.shadow("fsck", "--strict", "--no-dangling")


def test_what_the_agent_told_git_not_to_look_at_is_looked_at(workshop: Workshop) -> None:
    """assume-unchanged, skip-worktree, intent-to-add: flags in the agent's index hide no work."""
    workspace, tree = workshop.made()
    git = workshop.fleet.git
    git("update-index", "--assume-unchanged", "README.md", cwd=tree)
    git("update-index", "--skip-worktree", "src/app.py", cwd=tree)
    (tree / "README.md").write_text("hidden change\n")
    (tree / "src" / "app.py").write_text("another\n")
    (tree / "meant.txt").write_text("to be added\n")
    git("add", "--intent-to-add", "meant.txt", cwd=tree)
    assert git("diff", "--name-only", cwd=tree) == "meant.txt"
    saved = save(workshop, workspace)
    assert saved is not None
    assert saved.files == 3
    assert content(workshop, f"{saved.commit}:README.md") == "hidden change"
    assert content(workshop, f"{saved.commit}:src/app.py") == "another"
    assert content(workshop, f"{saved.commit}:meant.txt") == "to be added"


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_a_hidden_file_that_was_rewritten_in_disguise_is_saved(workshop: Workshop, flag: str) -> None:
    """The same size, its times restored, all within one second: git, which compares whole seconds, sees no change."""
    workspace, tree = workshop.made()
    path = tree / "README.md"
    os.utime(path, (1e9, 1e9))
    wait_until(lambda: time.time() % 1 < 0.2, "a second begins")
    os.utime(path, (1e9, 1e9))  # notes when, too
    workshop.fleet.git("update-index", "--refresh", cwd=tree)
    workshop.fleet.git("update-index", flag, "README.md", cwd=tree)
    path.write_text("x" * path.stat().st_size)
    os.utime(path, (1e9, 1e9))
    saved = save(workshop, workspace)
    assert saved is not None
    assert content(workshop, f"{saved.commit}:README.md").startswith("xxx")


@pytest.mark.parametrize("damage", ["index", "gitdir", "entry", "split"])
def test_a_damaged_git_directory_costs_no_file(workshop: Workshop, damage: str) -> None:
    """An index that git cannot read: the tree is saved, and the directory stays, because what was staged is unknown."""
    workspace, tree = workshop.made()
    (tree / "README.md").write_text("changed\n")
    (tree / "staged.txt").write_text("staged\n")
    entry = Path(workshop.repo.common_dir) / "worktrees" / "task1"
    if damage == "split":
        workshop.fleet.git("update-index", "--split-index", cwd=tree)
    workshop.fleet.git("add", "staged.txt", cwd=tree)
    if damage == "index":
        (entry / "index").write_bytes(b"DIRC and then rubbish")
    elif damage == "gitdir":
        (tree / ".git").write_text("gitdir: /nowhere\n")
    elif damage == "entry":
        shutil.rmtree(entry)
    saved = save(workshop, workspace)
    assert saved is not None
    assert saved.partial == (damage == "index")
    assert content(workshop, f"{saved.commit}:README.md") == "changed"
    assert content(workshop, f"{saved.commit}:staged.txt") == "staged"
    assert content(workshop, f"{saved.commit}:src/app.py") == "print('hello')"
    if damage == "index":
        assert content(workshop, f"{saved.commit}^2:git/index").startswith("DIRC and then")


def test_what_is_too_much_is_refused_by_what_is_unsaved_not_by_what_is_committed(workshop: Workshop) -> None:
    """Caps count what would be added: a large repository with a small change is saved."""
    workspace, tree = workshop.made()
    (tree / "large.bin").write_bytes(bytes(200_000))
    workshop.fleet.git("add", ".", cwd=tree)
    workshop.fleet.git("commit", "--quiet", "-m", "large", cwd=tree)
    (tree / "small").write_text("x")
    rules = SalvageRules(max_size=100_000, max_files=2)
    assert save(workshop, workspace, rules) is not None
    for number in range(3):
        (tree / f"file{number}").write_text("x")
    with pytest.raises(WorkspaceProblem, match=r"4 unsaved files.*salvage\.max_files = 2"):
        save(workshop, workspace, rules)
    (tree / "large.bin").write_bytes(os.urandom(200_000))
    with pytest.raises(WorkspaceProblem, match=r"salvage\.max_size = 100000"):
        save(workshop, workspace, replace(rules, max_files=50))


def test_litter_of_an_agents_cli_is_no_work_unless_git_knows_it(workshop: Workshop) -> None:
    """Its caches alone make no salvage; what is tracked, or lies elsewhere under such a name, is saved as ever."""
    workspace, tree = workshop.made()
    (tree / ".cache.v4").mkdir()
    (tree / ".cache.v4" / "db").write_text("cache")
    rules = SalvageRules(litter=("/.cache*", "/.cache*/**"))
    assert save(workshop, workspace, rules) is None
    assert save(workshop, workspace) is not None
    (tree / "src" / ".cache.v4").write_text("of the user")
    (tree / ".cache.known").write_text("one")
    workshop.fleet.git("add", "--force", ".cache.known", cwd=tree)
    workshop.fleet.git("commit", "--quiet", "-m", "known", cwd=tree)
    (tree / ".cache.known").write_text("two")
    saved = save(workshop, workspace, rules)
    assert saved is not None
    names = workshop.shadow("ls-tree", "-r", "--name-only", saved.commit).split()
    assert names == [".cache.known", "README.md", "src/.cache.v4", "src/app.py"]
    assert workshop.shadow("show", f"{saved.commit}:.cache.known") == "two"


def test_ignored_files_are_saved_where_the_task_says_so(workshop: Workshop) -> None:
    """`salvage.ignored`: patterns as in .gitignore, even below ignored directories; everything else ignored is not."""
    workspace, tree = workshop.made()
    (Path(workshop.repo.common_dir) / "info" / "exclude").write_text("build/\n*.log\n")
    (tree / "build" / "deep").mkdir(parents=True)
    (tree / "build" / "deep" / "report.xml").write_text("<report/>")
    (tree / "build" / "object.o").write_text("o")
    (tree / "noise.log").write_text("noise")
    assert save(workshop, workspace) is None
    saved = save(workshop, workspace, SalvageRules(ignored=("report.xml", "/never")))
    assert saved is not None
    names = workshop.shadow("ls-tree", "-r", "--name-only", saved.commit).split()
    assert names == ["README.md", "build/deep/report.xml", "src/app.py"]


def test_what_cannot_be_read_makes_a_salvage_partial(workshop: Workshop) -> None:
    """R-TREE-13: the rest is saved; the caller preserves the directory and says what is missing."""
    workspace, tree = workshop.made()
    (tree / "open.txt").write_text("open")
    (tree / "closed.txt").write_text("closed")
    (tree / "closed.txt").chmod(0)
    if os.access(tree / "closed.txt", os.R_OK):
        pytest.skip(CLOSED)
    (tree / "src").chmod(0)
    try:
        saved = save(workshop, workspace)
    finally:
        (tree / "src").chmod(0o755)
    assert saved is not None
    assert saved.partial
    assert "closed.txt" in str(saved.details["not_saved"])
    assert "src" in str(saved.details["not_saved"])
    assert content(workshop, f"{saved.commit}:open.txt") == "open"
    assert content(workshop, f"{saved.commit}:src/app.py") == "print('hello')"  # not mistaken for deleted


def test_a_clean_checkout_with_converted_line_ends_needs_no_salvage(workshop: Workshop) -> None:
    """core.autocrlf, eol=crlf: bytes on disk differ from what is committed though nothing was changed. What was changed
    is saved with the bytes that are on disk."""
    git, repo = workshop.fleet.git, workshop.fleet.repo
    (repo / ".gitattributes").write_text("*.bat text eol=crlf\n")
    (repo / "run.bat").write_bytes(b"echo\r\nend\r\n")
    (repo / "other.bat").write_bytes(b"one\r\ntwo\r\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "windows")
    git("config", "core.autocrlf", "true")
    workspace, tree = workshop.made()
    assert (tree / "run.bat").read_bytes() == b"echo\r\nend\r\n"
    assert (tree / "README.md").read_bytes() == b"# Test\r\n"
    assert save(workshop, workspace) is None
    for path in (tree / "README.md", tree / "run.bat"):
        os.utime(path)  # touched: git has to read it again
    assert save(workshop, workspace) is None
    (tree / "run.bat").write_bytes(b"echo\r\nmore\r\n")
    saved = save(workshop, workspace)
    assert saved is not None
    assert saved.files == 1
    shown = workshop.shadow("cat-file", "blob", f"{saved.commit}:run.bat")
    assert workshop.shadow("cat-file", "-s", f"{saved.commit}:run.bat") == "12", shown


def test_names_that_git_is_shy_of_are_saved(workshop: Workshop) -> None:
    workspace, tree = workshop.made()
    names = ["git~1", "-x", ":(top)x", "*", "a\\b", '"quoted"', "line\nend", os.fsdecode(b"\xff\xfe")]
    for name in names:
        (tree / name).write_text(name.encode(errors="surrogateescape").hex())
    saved = save(workshop, workspace)
    assert saved is not None
    assert saved.files == len(names)
    assert not saved.partial
    (tree / ".GIT").write_text("git would never add this")
    saved = save(workshop, workspace)
    assert saved is not None
    assert saved.partial  # the directory has to stay
    assert saved.details["not_saved"] == [".GIT"]


def test_a_file_that_was_rewritten_within_one_second_is_noticed(workshop: Workshop) -> None:
    """Found by the fuzz: git compares whole seconds, and was fooled by a restored time of change."""
    workspace, tree = workshop.made()
    path = tree / "src" / "app.py"
    os.utime(path, (1_000_000_000, 1_000_000_000))
    workshop.fleet.git("update-index", "--refresh", cwd=tree)
    path.write_text("print('HELLO')\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    saved = save(workshop, workspace)
    assert saved is not None
    assert content(workshop, f"{saved.commit}:src/app.py") == "print('HELLO')"


def test_leftovers_that_were_changed_after_they_were_staged_are_both_committed(workshop: Workshop) -> None:
    """Found by the fuzz: committing everything that a successful agent left wrote over what it had staged."""
    workspace, tree = workshop.made()
    (tree / "both.txt").write_text("staged\n")
    (tree / "gone.txt").write_text("staged, then deleted\n")
    workshop.fleet.git("add", ".", cwd=tree)
    (tree / "both.txt").write_text("and changed\n")
    (tree / "gone.txt").unlink()
    commit = workshop.run(workshop.worktrees.commit_leftovers(workshop.repo, workspace, "all", "work\n\nbody"))
    assert commit is not None
    assert save(workshop, workspace) is None
    assert workshop.fleet.git("log", "-2", "--format=%s", commit).splitlines() == ["work", "work (as staged)"]
    assert workshop.fleet.file_on_branch("holdfast/task1", "both.txt") == "and changed"
    assert workshop.fleet.file_on_branch("holdfast/task1~1", "both.txt") == "staged"
    assert workshop.fleet.file_on_branch("holdfast/task1~1", "gone.txt") == "staged, then deleted"
