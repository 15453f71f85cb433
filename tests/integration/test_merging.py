"""Moving a user's checkout to a merge: what git does not track in it is the user's all the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.errors import Refused
from holdfast.workspaces import git
from holdfast.workspaces.merging import Merge, checkout_of, move


def run(repo: Path, *words: str) -> str:
    line = ["git", "-c", "user.name=T", "-c", "user.email=t@localhost", "-C", str(repo), *words]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


def test_a_merge_overwrites_no_ignored_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-TREE-13: git takes ignored files for expendable; a user's .env is not. An agent's branch that has a file of
    that name is refused, and nothing moves. A git that cannot say what is checked out where stops the merge too."""
    repo = tmp_path / "repo"
    subprocess.run(["git", "init", "--quiet", "-b", "main", str(repo)], check=True)
    (repo / ".gitignore").write_text(".env\n")
    run(repo, "add", ".")
    run(repo, "commit", "-qm", "base")
    start = run(repo, "rev-parse", "HEAD")
    run(repo, "checkout", "-qb", "agent")
    (repo / ".env").write_text("the agent's\n")
    run(repo, "add", "--force", ".env")
    run(repo, "commit", "-qm", "agent")
    tip = run(repo, "rev-parse", "HEAD")
    run(repo, "checkout", "-q", "main")
    (repo / ".env").write_text("the user's only copy\n")
    plan = Merge(repo=str(repo), source="agent", source_tip=tip, target="main", target_tip=start)
    with pytest.raises(Refused, match=r"\.env"):
        move(plan, tip, str(repo))
    assert (repo / ".env").read_text() == "the user's only copy\n"
    assert run(repo, "rev-parse", "main") == start

    monkeypatch.setattr(git, "call", lambda *_words, **_options: (-9, "", ""))
    with pytest.raises(Refused):
        checkout_of(str(repo), "main")
