"""A diff for a screen: bounded, whatever an agent did, and in colours that mean what they say. R-CRASH-10."""

from __future__ import annotations

import os

import pytest
from tests.fleet import Fleet

from holdfast.base.errors import HoldfastError
from holdfast.tui.screens.task.diff import Compared, diff_lines
from holdfast.tui.widgets.text_view import TextLine
from holdfast.workspaces.git import git


def test_a_huge_diff_ends_where_a_screen_has_enough(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-CRASH-10: git is ended there: neither its output nor its time is spent on what nobody sees."""
    (fleet.repo / "README.md").write_text("a line that is new\n" * 200_000)
    code, out, err = git.run_sync("diff", "--no-ext-diff", cwd=str(fleet.repo), most=10_000)
    assert (code, len(out), err) == (0, 10_000, "")
    (fleet.repo / "README.md").write_text("# Test\nshort\n")
    whole = git.run_sync("diff", "--no-ext-diff", cwd=str(fleet.repo))
    assert git.run_sync("diff", "--no-ext-diff", cwd=str(fleet.repo), most=10_000) == whole
    assert git.run_sync("diff", "--no-ext-diff", cwd=str(fleet.repo), most=len(whole[1])) == whole
    code, out, err = git.run_sync("diff", "--no-ext-diff", "--no-such-option", cwd=str(fleet.repo), most=10_000)
    assert code != 0
    assert "no-such-option" in err
    with pytest.raises(HoldfastError):
        git.run_sync("diff", "--no-ext-diff", cwd=str(fleet.root / "nowhere"), most=10_000)
    os.mkfifo(fleet.root / "pipe")
    monkeypatch.setenv("HOLDFAST_GIT_TIMEOUT", "0.2")
    with pytest.raises(HoldfastError, match="has not answered"):
        git.run_sync("hash-object", str(fleet.root / "pipe"), cwd=str(fleet.repo), most=10_000)


def test_colours_say_what_a_line_is_not_how_it_begins() -> None:
    """A removed line that begins with dashes is no file's name, and what stands before the first hunk is no change."""
    text = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- dashes\n+\x1b[31mred\n kept\ndiff --git a/y b/y"
    found = Compared(summary=" x | 2 +-", text=text, is_cut=True, checkpoint=3, task="abc")
    made = diff_lines(found)
    assert TextLine("--- a/x", "bold") in made
    assert TextLine("--- dashes", "red") in made
    assert TextLine("+red", "green") in made
    assert TextLine(" kept", "") in made
    assert made[-1].text.endswith("`holdfast diff abc --checkpoint 3` shows it.")
