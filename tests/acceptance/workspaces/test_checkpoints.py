"""Checkpoints from outside: kept while an agent works and when it pauses, listed, compared, and gone back to."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import Fleet, wait_filled, wait_until


def checkpoints(fleet: Fleet, task_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fleet.show(task_id)["checkpoints"]
    return found


def state_of(fleet: Fleet, tree: Path) -> tuple[str, str, str]:
    status = fleet.git("status", "--porcelain=v2", "--branch", "--untracked-files=all", cwd=tree)
    return status, fleet.git("ls-files", "-s", cwd=tree), (tree / "a.txt").read_text()


def test_checkpoints_are_kept_listed_compared_and_gone_back_to(fleet: Fleet) -> None:
    """R-RES-11, R-RES-01: one when its agent asks, one at the pause; listed and compared. Going back
    brings files and index of then, in the same place, and loses nothing of what came after."""
    task = fleet.add_scenario(
        {"run": 1, "write": {"path": "a.txt", "text": "one"}},
        {"run": 1, "wait_for": str(fleet.root / "staged")},
        {"run": 1, "report": {"kind": "checkpoint", "message": "before the rewrite"}},
        {"run": 1, "wait_for": str(fleet.root / "kept")},
        {"run": 1, "write": {"path": "b.txt", "text": "two"}},
        {"run": 1, "limit": {"kind": "usage", "for": "1h"}},
        {"run": 2, "touch": str(fleet.root / "again")},
        {"run": 2, "wait_for": str(fleet.root / "seen")},
    )
    fleet.up()
    fleet.wait_started(task)
    tree = Path(wait_until(lambda: fleet.show(task)["workspace"]["path"], "it has a workspace"))
    wait_filled(tree / "a.txt", "the agent wrote")
    (tree / "README.md").write_text("staged\n")
    fleet.git("add", "README.md", cwd=tree)
    (tree / "README.md").write_text("staged, and changed\n")
    (tree / "src" / "app.py").unlink()
    before = state_of(fleet, tree)
    (fleet.root / "staged").touch()
    first = wait_until(lambda: checkpoints(fleet, task), "a checkpoint was asked for")[0]
    assert (first["number"], first["why"]) == (1, "asked by its agent: before the rewrite")
    assert state_of(fleet, tree) == before, "it changed what it looked at"
    (fleet.root / "kept").touch()
    paused = fleet.wait_state(task, "paused")
    second = paused["checkpoints"][-1]
    assert (second["number"], second["why"]) == (2, "paused: usage_limited")
    assert second["session"] == paused["runs"][0]["session_id"]
    assert second["output_offset"] > 0
    assert "checkpoint 2" in fleet.cli("show", task).stdout
    assert "b/b.txt" not in fleet.cli("diff", task, "--checkpoint", 1).stdout
    assert "+++ b/b.txt" in fleet.cli("diff", task, "--checkpoint", 2).stdout
    assert "kept are 1, 2" in fleet.cli("diff", task, "--checkpoint", 9, code=3).stderr

    fleet.git("commit", "--quiet", "-am", "a commit that must not be lost", cwd=tree)
    lost = fleet.git("rev-parse", "HEAD", cwd=tree)
    fleet.cli("resume", task, "--checkpoint", 1)
    wait_until(lambda: (fleet.root / "again").exists(), "it continues")
    assert state_of(fleet, tree) == before
    restored = [event for event in fleet.events(task) if event["kind"] == "checkpoint.restored"]
    assert [event["data"]["number"] for event in restored] == [1]
    fleet.cli("salvage", "restore", task, "--branch", "rescued")
    assert fleet.git("merge-base", "--is-ancestor", lost, "rescued", check=False) == ""
    assert fleet.file_on_branch("rescued", "b.txt") == "two"
    (fleet.root / "seen").touch()
    fleet.wait_state(task, "completed")
    assert "violation" not in fleet.cli("doctor", "--invariants").stdout


def test_a_lost_workspace_comes_back_from_its_last_checkpoint(fleet: Fleet) -> None:
    """R-RES-11, R-RES-09: somebody deleted the directory of a paused task, worktree or clone: it continues at the same
    path, with what was not committed."""
    steps = (
        {"run": 1, "write": {"path": "kept.txt", "text": "committed"}},
        {"run": 1, "commit": "half"},
        {"run": 1, "write": {"path": "dirty.txt", "text": "not committed"}},
        {"run": 1, "limit": {"kind": "usage", "for": "1h"}},
        {"run": 2, "print": "on"},
    )
    tasks = [fleet.add_scenario(*steps, options=("--workspace", kind)) for kind in ("worktree", "clone")]
    tasks.append(fleet.add_scenario(*steps[2:], options=("--workspace", "directory")))
    fleet.up()
    for task in tasks:
        path = fleet.wait_state(task, "paused")["workspace"]["path"]
        shutil.rmtree(path)
        fleet.cli("resume", task)
    for task in tasks:
        ended = fleet.wait_state(task, "completed")
        assert "checkpoint.restored" in fleet.kinds(task), ended
        if ended["strategy"] == "directory":
            continue
        assert fleet.file_on_branch(ended["branch"], "dirty.txt") == "not committed"
        assert fleet.file_on_branch(ended["branch"], "kept.txt") == "committed"
        subjects = fleet.git("log", "--format=%s", f"main..{ended['branch']}")
        assert "half" in subjects.splitlines()


def test_what_was_set_aside_stays_aside(fleet: Fleet) -> None:
    """R-RES-11: a task went back, committed and failed: what it did is what came after that, and a retry continues from
    its branch. What was set aside can be had, and comes back to nobody by itself."""
    task = fleet.add_scenario(
        {"run": 1, "write": {"path": "a.txt", "text": "one"}},
        {"run": 1, "limit": {"kind": "usage", "for": "1h"}},
        {"run": 2, "write": {"path": "c.txt", "text": "new"}},
        {"run": 2, "commit": "new"},
        {"run": 2, "exit": 3},
        {"run": 3, "print": "on"},
        options=("--no-preserve-on-failure",),
    )
    fleet.up()
    tree = Path(fleet.wait_state(task, "paused")["workspace"]["path"])
    (tree / "later.txt").write_text("later")
    fleet.cli("resume", task, "--checkpoint", 1)
    fleet.wait_state(task, "failed")
    wait_until(lambda: fleet.show(task)["workspace"]["state"] == "gone", "its workspace is removed")
    fleet.cli("salvage", "restore", task, "--branch", "rescued")
    assert fleet.file_on_branch("rescued", "later.txt") == "later"
    changed = fleet.cli("diff", task, "--stat").stdout
    assert "c.txt" in changed
    assert "later.txt" not in changed
    fleet.cli("retry", task)
    branch = fleet.wait_state(task, "completed")["branch"]
    assert fleet.file_on_branch(branch, "c.txt") == "new"
    assert "later.txt" not in fleet.git("ls-tree", "-r", "--name-only", branch)


ON_TWO = "echo one > README.md; {stash}; echo two > README.md; {stash}"
STORE = "git stash store -m kept $(git stash create); git checkout -q -- ."
STASHED = {
    "on its branch": ON_TWO.format(stash="git stash -q"),
    "with a message": ON_TWO.format(stash="git stash push -q -m kept"),
    "on a detached head": "git checkout -q --detach; " + ON_TWO.format(stash="git stash -q"),
    "on another branch": "git switch -q -c other; " + ON_TWO.format(stash="git stash -q"),
    "by git stash store": ON_TWO.format(stash=STORE),
    "by git stash store, detached": "git checkout -q --detach; " + ON_TWO.format(stash=STORE),
}


@pytest.mark.parametrize("how", STASHED)
def test_a_stash_survives_garbage_collection_by_the_user(fleet: Fleet, how: str) -> None:
    """All worktrees share the user's list of stashes. What an agent stashed is in its checkpoint, and becomes a salvage
    when the user's `reflog expire` and `gc` have destroyed it. The user's own stash is not kept."""
    go = fleet.root / "go"
    stash = f"{STASHED[how]}; git switch -q holdfast/$HOLDFAST_TASK_ID; echo three > new.txt"
    (fleet.repo / "README.md").write_text("of the user\n")
    fleet.git("stash", "-q")
    wait = f"{sys.executable} -m holdfast agent checkpoint; while ! test -e {go}; do sleep 0.1; done"
    fleet.up()
    task = fleet.add("stash", command=("sh", "-c", f"{stash}; {wait}"))
    wait_until(lambda: checkpoints(fleet, task), "it has a checkpoint")
    fleet.git("stash", "clear")
    fleet.git("reflog", "expire", "--expire=now", "--all")
    fleet.git("gc", "--quiet", "--prune=now")
    go.touch()
    assert fleet.wait_state(task, "completed", "failed")["state"] == "completed"
    [saved] = fleet.show(task)["salvages"]
    [shadow] = (fleet.home / "shadows").glob("*.git")
    texts = fleet.git("log", "-p", "--all", "--diff-merges=first-parent", "--format=", "--", "README.md", cwd=shadow)
    assert "+one" in texts
    assert "+two" in texts
    assert "+of the user" not in texts
    assert saved["ref"].startswith("refs/salvage/")
    fleet.wait_clean()
    assert fleet.file_on_branch(f"holdfast/{task}", "new.txt") == "three"
