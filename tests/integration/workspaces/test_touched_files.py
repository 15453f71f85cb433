"""Which files a result names, from trees of every kind; and that nobody's settings run for it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tests.integration.conftest import Workshop

from holdfast.core.workflows.result import MOST_FILES, NO_CHANGED_FILES
from holdfast.workspaces.git.changes import touched_by


def test_committed_and_uncommitted_files_are_named_and_nothing_of_them_runs(workshop: Workshop, tmp_path: Path) -> None:
    workspace, tree = workshop.made()
    git, look = workshop.fleet.git, touched_by(workshop.git)
    base = git("rev-parse", "HEAD", cwd=tree)
    clean = workshop.run(look(workspace, (), is_committed=False))
    assert (clean.files, clean.commit) == ((), base)

    (tree / "committed.txt").write_text("committed\n")
    (tree / "both.txt").write_text("once\n")
    git("add", "-A", cwd=tree)
    git("commit", "-qm", "Work", cwd=tree)
    head = git("rev-parse", "HEAD", cwd=tree)
    (tree / "both.txt").write_text("twice\n")
    (tree / "README.md").write_text("changed\n")
    (tree / "src" / "app.py").unlink()
    (tree / "new").mkdir()
    (tree / "new" / "a [b] *.txt").write_text("odd name\n")
    (tree / ".env").write_text("brought along\n")
    Path(os.fsdecode(os.fsencode(tree) + b"/bad-\xff.txt")).write_text("\n")
    (tree / ".gitattributes").write_text("*.txt diff=evil filter=evil\n*.md diff=evil filter=evil\n")
    ran = tmp_path / "ran"
    for key in ("diff.evil.textconv", "diff.evil.command", "diff.external", "filter.evil.clean", "core.fsmonitor"):
        git("config", key, f"touch {ran}; cat", cwd=tree)
    index = Path(git("rev-parse", "--path-format=absolute", "--git-path", "index", cwd=tree))
    before = index.read_bytes()

    found = workshop.run(look(workspace, (".env",), is_committed=False))
    assert found.commit == head
    names = (
        ".gitattributes", "README.md", "bad-�.txt", "both.txt", "committed.txt", "new/a [b] *.txt", "src/app.py",
    )  # fmt: skip
    assert found.files == names
    assert found.count == len(names)
    assert workshop.run(look(workspace, (), is_committed=True)).files == ("both.txt", "committed.txt")
    assert not ran.exists()
    assert index.read_bytes() == before

    for number in range(MOST_FILES + 1):
        (tree / f"many-{number}").touch()
    crowd = workshop.run(look(workspace, (), is_committed=False))
    assert len(crowd.files) == MOST_FILES
    assert crowd.count == MOST_FILES + 2 + len(names)

    # What cannot be read is not told, and fails nothing.
    lost = replace(workspace, base_commit="0" * 40)
    assert workshop.run(look(lost, (), is_committed=True)) == NO_CHANGED_FILES
    (tree / ".git").write_text("gitdir: /nowhere\n")
    assert workshop.run(look(workspace, (), is_committed=False)) == NO_CHANGED_FILES
    (tree / ".git").unlink()
    assert workshop.run(look(workspace, (), is_committed=False)) == NO_CHANGED_FILES
