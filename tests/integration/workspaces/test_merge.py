"""Moving a user's checkout to a merge: what git does not track in it is the user's all the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from holdfast.api.work.git_runner import run_here
from holdfast.base.errors import Refused
from holdfast.workspaces.git import git
from holdfast.workspaces.git.merge import (
    MergeRequest,
    find_checkout,
    move_target,
    refuse_foreign_filters,
    refuse_rebase_under_way,
    resolve_branch_name,
)


def test_a_git_that_hangs_in_the_foreground_is_given_up_in_words() -> None:
    """As the supervisor's own runner does: a number, not an exception that nobody expects."""
    code, _out, err = asyncio.run(run_here(["sleep", "60"], cwd="/", env={"PATH": os.environ["PATH"]}, timeout=0.05))
    assert code == git.TIMED_OUT
    assert b"not answered" in err


def run(repo: Path, *words: str) -> str:
    line = ["git", "-c", "user.name=T", "-c", "user.email=t@localhost", "-C", str(repo), *words]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


def test_a_merge_overwrites_no_ignored_file(tmp_path: Path) -> None:
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
    plan = MergeRequest(repo=str(repo), source="agent", source_tip=tip, target="main", target_tip=start)
    with pytest.raises(Refused, match=r"\.env"):
        move_target(plan, tip, str(repo))
    assert (repo / ".env").read_text() == "the user's only copy\n"
    assert run(repo, "rev-parse", "main") == start

    assert find_checkout(str(repo), "main") == str(repo)
    with pytest.raises(Refused, match="no longer a repository"):
        find_checkout(str(tmp_path), "main")


def test_a_merge_runs_no_command_of_the_repositorys_config(tmp_path: Path) -> None:
    """R-TREE-13: an agent can define a filter there, and a program that checks signatures, and its own commits have
    them run when the user's checkout is moved. A branch that is another name of the one checked out is that one."""
    repo, canary = tmp_path / "repo", tmp_path / "canary"
    subprocess.run(["git", "init", "--quiet", "-b", "main", str(repo)], check=True)
    run(repo, "commit", "-q", "--allow-empty", "-m", "base")
    start = run(repo, "rev-parse", "HEAD")
    run(repo, "symbolic-ref", "refs/heads/master", "refs/heads/main")
    assert (resolve_branch_name(str(repo), "master"), resolve_branch_name(str(repo), "main")) == ("main", "main")
    run(repo, "checkout", "-qb", "agent")
    (repo / ".gitattributes").write_text("*.py filter=evil\n")
    (repo / " x.py").write_text("x\n")
    run(repo, "add", ".")
    run(repo, "commit", "-qm", "agent")
    raw = run(repo, "cat-file", "commit", "HEAD")
    signed = raw.replace("\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n -----END PGP SIGNATURE-----\n\n", 1)
    (tmp_path / "signed").write_text(signed + "\n")
    tip = run(repo, "hash-object", "-t", "commit", "-w", str(tmp_path / "signed"))
    run(repo, "checkout", "-q", "main")
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {canary}\ncat\n")
    (tmp_path / "evil").chmod(0o755)
    for key in ("filter.evil.smudge", "filter.evil.clean", "gpg.program"):
        run(repo, "config", key, str(tmp_path / "evil"))
    plan = MergeRequest(repo=str(repo), source="agent", source_tip=tip, target="main", target_tip=start)
    with pytest.raises(Refused, match=r"filter 'evil'"):
        refuse_foreign_filters(plan, tip, str(tmp_path))
    move_target(plan, tip, str(repo))
    later = run(repo, "commit-tree", f"{tip}^{{tree}}", "-p", tip, "-m", "later")
    (repo / " x.py").write_text("the user's\n")  # git compares it
    again = MergeRequest(repo=str(repo), source="agent", source_tip=later, target="main", target_tip=tip)
    move_target(again, later, str(repo))
    assert (repo / " x.py").read_text() == "the user's\n"
    assert not canary.exists()
    run(repo, "reset", "-q", "--hard", start)
    canary.unlink(missing_ok=True)
    run(repo, "config", "merge.verifySignatures", "true")
    with pytest.raises(Refused):
        move_target(plan, tip, str(repo))
    assert not canary.exists()


def test_a_branch_that_is_being_rebased_is_not_moved(tmp_path: Path) -> None:
    """R-TREE-13: the user's rebase could not end, because the branch was not where it had been."""
    repo = tmp_path / "repo"
    subprocess.run(["git", "init", "--quiet", "-b", "main", str(repo)], check=True)
    run(repo, "commit", "-q", "--allow-empty", "-m", "base")
    refuse_rebase_under_way(str(repo), "main")
    line = ["git", "-c", "user.name=T", "-c", "user.email=t@localhost", "-C", str(repo)]
    subprocess.run([*line, "rebase", "-q", "--root", "--exec", "false"], check=False, capture_output=True)
    with pytest.raises(Refused, match="being rebased"):
        refuse_rebase_under_way(str(repo), "main")
    refuse_rebase_under_way(str(repo), "other")
