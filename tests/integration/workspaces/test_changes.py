"""R-RES-09: the diff of a hand-over, from trees of every kind: nothing is written, run or read without bound."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.conftest import assert_no_process
from tests.harness.await_walker import Ended, walk
from tests.integration.conftest import Workshop

from holdfast.core.model import Strategy
from holdfast.core.workflows.handover import ChangesSoFar, write_handover
from holdfast.workspaces.git.changes import MOST_SHOWN_FILES, ChangesReader


def test_everything_that_a_tree_can_hold_and_nothing_of_it_runs(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed, staged, changed, deleted and new files, odd names and bytes, a large file, too many files; settings
    that would run programs, and a pipe that would hold git up for ever."""
    workspace, tree = workshop.made()
    git = workshop.fleet.git
    (tree / "committed.txt").write_text("committed\n")
    git("add", "-A", cwd=tree)
    git("commit", "-qm", "Tell of\x1b[31m it", cwd=tree)
    (tree / "staged.txt").write_text("staged\n")
    git("add", "staged.txt", cwd=tree)
    (tree / "README.md").write_text("changed\n")
    (tree / "src" / "app.py").unlink()
    (tree / "a [b] *.txt").write_text("odd name\n")
    Path(os.fsdecode(os.fsencode(tree) + b"/bad-\xff.txt")).write_bytes(b"caf\xe9 \x1b[2J\n")
    (tree / "large.txt").write_text("large\n" * 100_000)
    (tree / "image.bin").write_bytes(bytes(range(256)))
    (tree / ".gitattributes").write_text("*.txt diff=evil filter=evil\n")
    ran = tmp_path / "ran"
    for key in ("diff.evil.textconv", "diff.evil.command", "diff.external", "filter.evil.clean", "gpg.program"):
        git("config", key, f"touch {ran}; cat", cwd=tree)
    git("config", "log.showSignature", "true", cwd=tree)
    index = Path(git("rev-parse", "--path-format=absolute", "--git-path", "index", cwd=tree))
    before = (index.read_bytes(), git("count-objects", "-v"))

    found = workshop.run(ChangesReader(workshop.home, workshop.git).read(workspace))
    assert len(found.commits) == 1
    assert {line.split("  ")[0] for line in found.files} == {
        "committed.txt", "staged.txt", "README.md", "src/app.py", "a [b] *.txt", "bad-�.txt", "large.txt", "image.bin",
        ".gitattributes",
    }  # fmt: skip
    assert "large.txt  binary or large" in found.files
    for wanted in ("+committed", "+staged", "+changed", "-print('hello')", "+odd name"):
        assert wanted in found.diff
    assert "+large" not in found.diff
    assert found.left_out == 2, "the large one and the binary"
    text = write_handover("task", [], found, "mark")
    assert "\x1b" not in text.encode().decode()
    assert not ran.exists()
    assert before == (index.read_bytes(), git("count-objects", "-v")), "nothing was written to the repository"
    assert list((Path(workshop.home) / "scratch").iterdir()) == []

    brought = workshop.run(ChangesReader(workshop.home, workshop.git).read(workspace, ("/staged.txt", "**/app.py")))
    assert "staged" not in brought.diff
    assert "hello" not in brought.diff
    assert not {"staged.txt", "src/app.py"} & {line.split("  ")[0] for line in brought.files}, "what we brought"

    (tree / "many").mkdir()
    for number in range(MOST_SHOWN_FILES + 50):
        (tree / "many" / f"{number}").write_text("x\n")
    crowded = workshop.run(ChangesReader(workshop.home, workshop.git).read(workspace))
    assert crowded.files[-1] == "and 59 more file(s)"
    assert crowded.left_out > 50

    (tree / ".gitignore").unlink(missing_ok=True)
    os.mkfifo(tree / "src" / ".gitignore")
    monkeypatch.setenv("HOLDFAST_GIT_TIMEOUT", "0.5")
    piped = workshop.run(ChangesReader(workshop.home, workshop.git).read(workspace))
    assert piped.note or piped.files, "an answer, soon"
    assert_no_process(workshop.fleet)


def test_places_without_a_base(workshop: Workshop) -> None:
    so_far = ChangesReader(workshop.home, workshop.git)
    (workshop.fleet.repo / "new.txt").write_text("new\n")
    own = replace(workshop.workspace("task1", Strategy.NONE), path=str(workshop.fleet.repo))
    found = workshop.run(so_far.read(own))
    assert list(found.files) == ["new.txt  +1 -0"]
    assert "user's own checkout" in found.note
    plain = workshop.workspace("task2", Strategy.DIRECTORY)
    Path(plain.path).mkdir(parents=True)
    assert "not a git repository" in workshop.run(so_far.read(plain)).note
    broken, tree = workshop.made("task3")
    (tree / ".git").write_text("gitdir: /nowhere\n")
    assert "could not be read" in workshop.run(so_far.read(broken)).note
    assert "could not be read" in workshop.run(so_far.read(replace(broken, base_commit="0" * 40))).note


def test_cancelled_at_every_await(workshop: Workshop) -> None:
    workspace, tree = workshop.made()
    (tree / "new.txt").write_text("new\n")

    def make() -> Coroutine[Any, Any, ChangesSoFar]:
        return ChangesReader(workshop.home, workshop.git).read(workspace)

    def check(_ended: Ended[ChangesSoFar]) -> None:
        assert_no_process(workshop.fleet)
        assert list((Path(workshop.home) / "scratch").iterdir()) == []

    walk(make, check, most=8)
