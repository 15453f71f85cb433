"""Workspaces that are no worktrees: the checkout itself, one task at a time; a directory, empty or a copy."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.fleet import Fleet, wait_until


def test_one_task_at_a_time_in_the_checkout_itself(fleet: Fleet) -> None:
    """R-CLEAN-05: however its path is spelled; `why` names whom it waits for; nothing of the user's is cleaned."""
    link = fleet.root / "link"
    link.symlink_to(fleet.repo)
    (fleet.repo / "mine.txt").write_text("mine\n")
    go, busy = fleet.root / "go", fleet.root / "busy"
    alone = f"set -e; mkdir {busy}; until [ -e {go} ]; do sleep 0.1; done; rmdir {busy}"
    fleet.up("--agents", 4)
    first = fleet.queue(alone, workspace="none")
    wait_until(busy.exists, "the first is at work")
    second = fleet.queue(f"{alone}; exit 1", workspace="none", preserve_on_failure=True, directory=link / "src")
    third = fleet.queue(alone, workspace="none", directory=link)
    other = fleet.queue("true")
    fleet.wait_state(other, "completed")  # who has a workspace does not wait
    for task_id in (second, third):
        assert fleet.show(task_id)["waits_for"] == [first]
    assert f"the checkout {fleet.repo} itself, where {first} is working" in fleet.cli("why", third).stdout
    go.touch()
    for task_id, state in ((first, "completed"), (second, "failed"), (third, "completed")):
        fleet.wait_state(task_id, state)
    fleet.wait_clean()
    assert fleet.git("status", "--short") == "?? mine.txt"
    assert fleet.json("workspaces") == []


def test_a_copy_of_any_checkout(fleet: Fleet) -> None:
    """A home in the checkout, sockets and pipes, links, modes: copied as far as it is work, and no further."""
    fleet.home = fleet.repo / ".holdfast"
    fleet.env["HOLDFAST_HOME"] = str(fleet.home)
    (fleet.repo / "run.sh").write_text("#!/bin/sh\n")
    (fleet.repo / "run.sh").chmod(0o755)
    (fleet.repo / "link").symlink_to("run.sh")
    os.mkfifo(fleet.repo / "pipe")
    (fleet.repo / "src" / ".git").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(fleet.repo / "socket"))
        task_id = fleet.queue("true", workspace="directory:copy", keep_workspace=True)
        fleet.up("--idle-exit", "0s")
        fleet.wait_state(task_id, "completed")
    path = Path(fleet.show(task_id)["workspace"]["path"])
    names = {str(found.relative_to(path)) for found in path.rglob("*")}
    assert names == {"README.md", "src", "src/app.py", "src/.git", "run.sh", "link"}
    assert os.access(path / "run.sh", os.X_OK)
    assert os.readlink(path / "link") == "run.sh"


def test_git_variables_of_the_surroundings_reach_no_git_of_ours(fleet: Fleet) -> None:
    """R-TREE-04: `add`, `up`, `diff` and `merge` from inside a git hook or alias, whose GIT_* variables point
    elsewhere. The work goes to the task's own repository, and the other one is untouched."""
    other = fleet.make_repo(fleet.root / "other", {"theirs": "theirs\n"})
    (other / "theirs").write_text("changed, not committed\n")
    (other / "new").write_text("new\n")
    before = fleet.git("rev-parse", "HEAD", cwd=other), fleet.git("status", "--porcelain", cwd=other)
    astray = {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git" / "index"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git" / "objects"),
        "GIT_CEILING_DIRECTORIES": str(fleet.root),
    }
    task_id = fleet.add("work", command=("sh", "-c", "echo work > work.txt"), env=astray)
    fleet.cli("up", "--idle-exit", "0s", env=astray)
    assert fleet.show(task_id)["state"] == "completed", fleet.cli("why", task_id).stdout
    assert fleet.file_on_branch(f"holdfast/{task_id}", "work.txt") == "work"
    assert "+work" in fleet.cli("diff", task_id, env=astray).stdout
    fleet.cli("merge", task_id, env=astray)
    assert (fleet.repo / "work.txt").read_text() == "work\n"
    assert (fleet.git("rev-parse", "HEAD", cwd=other), fleet.git("status", "--porcelain", cwd=other)) == before
    assert fleet.git("branch", "--list", cwd=other).split() == ["*", "main"]
    assert fleet.worktrees() == []
