"""Workspaces that vanish under their agents: removed by the agent itself, or by a person, while it works."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from tests.fleet import Fleet, wait_until


def wait_checkpoint(fleet: Fleet, task: str) -> None:
    wait_until(lambda: [one for one in fleet.show(task)["checkpoints"] if one["files"]], "a checkpoint has the work")


def expect_told(fleet: Fleet, task: str, *words: str) -> None:
    """The event, the alert and `why` have the words. No task that needs this one has started."""
    [event] = [event for event in fleet.events(task) if event["kind"] == "workspace.vanished"]
    [alert] = [alert for alert in fleet.json("alerts") if "was gone when its agent ended" in alert["message"]]
    page = fleet.cli("why", task).stdout
    assert event["level"] == "warning"
    for word in words:
        assert word in event["message"]
        assert word in alert["message"]
        assert word in page


@pytest.mark.parametrize("strategy", ["worktree", "clone", "directory"])
def test_an_agent_that_removes_its_own_workspace_has_not_completed(fleet: Fleet, strategy: str) -> None:
    fleet.up()
    work = "echo w > w; git add w; git commit -qm w; echo more > more; d=$PWD; cd /; rm -rf $d"
    task = fleet.add("gone", "--workspace", strategy, command=("sh", "-c", f"{work}; exit 0"))
    after = fleet.add("after", "--after", task, command=("sh", "-c", "touch started"))
    shown = fleet.wait_state(task, "completed", "failed")
    assert (shown["state"], shown["failure_reason"]) == ("failed", "workspace_gone")
    shown = fleet.wait_state(after, "cancelled", "completed", "failed")
    assert (shown["state"], shown["reason"]) == ("cancelled", f"it needs task {task}, which has failed")
    assert shown["runs"] == []
    is_worktree = strategy == "worktree"
    expect_told(fleet, task, f"on branch holdfast/{task}" if is_worktree else "No checkpoint and no branch")
    assert fleet.branches() == ([f"holdfast/{task}"] if is_worktree else [])
    fleet.wait_clean()
    fleet.cli("doctor", "--invariants")


@pytest.mark.parametrize("strategy", ["worktree", "clone", "directory"])
def test_the_last_checkpoint_of_a_vanished_workspace_is_salvaged(fleet: Fleet, strategy: str) -> None:
    """A person removes the workspace, and for a worktree its branch too. The checkpoint becomes a salvage, from which a
    retry starts. A task that needs this one is queued again with it, and waits for its work."""
    fleet.up(env={"HOLDFAST_CHECKPOINT_EVERY": "1s"})
    work = "echo done > done; git add done; git commit -qm done; echo new > new; "
    go = fleet.root / "go"
    wait = f"while ! test -e {go}; do sleep 0.1; echo . > tick; done 2>/dev/null; exit 0"
    options = ("--preserve-on-failure",) if strategy == "clone" else ()
    command = ("sh", "-c", f"test -e new && exit 0; {work}{wait}")
    task = fleet.add("gone", "--workspace", strategy, *options, command=command)
    after = fleet.add("after", "--after", task, command=("true",))
    tree = Path(wait_until(lambda: fleet.show(task)["workspace"]["path"], "it has a workspace"))
    wait_checkpoint(fleet, task)
    if strategy == "worktree":
        fleet.git("worktree", "remove", "--force", "--force", str(tree))
        fleet.git("branch", "-D", f"holdfast/{task}")
    else:
        shutil.rmtree(tree, ignore_errors=True)
        shutil.rmtree(tree, ignore_errors=True)
    go.touch()
    shown = fleet.wait_state(task, "completed", "failed")
    assert (shown["state"], shown["failure_reason"]) == ("failed", "workspace_gone")
    expect_told(fleet, task, "is saved as a salvage")
    fleet.wait_clean()
    fleet.cli("salvage", "restore", task, "--branch", "back")
    assert fleet.file_on_branch("back", "new") == "new"
    assert fleet.file_on_branch("back", "done") == "done"
    go.unlink()
    assert fleet.show(after)["state"] == "cancelled"
    fleet.cli("retry", task, after)
    shown = fleet.wait_state(task, "completed", "failed")
    assert shown["state"] == "completed", "it did not start from the salvage"
    later = fleet.wait_state(after, "completed", "failed", "cancelled")
    assert later["state"] == "completed"
    assert later["runs"][0]["started_at"] >= shown["runs"][-1]["ended_at"]
    assert fleet.json("alerts") == [], "the alert is closed with the retry"


def test_a_restored_workspace_that_vanishes_too_leaves_its_checkpoint(fleet: Fleet) -> None:
    """The first workspace is lost, and the second one, made from its checkpoint, is removed before it has one."""
    fleet.up(env={"HOLDFAST_CHECKPOINT_EVERY": "1s"})
    again = "test -e new && { d=$PWD; cd /; rm -rf $d; exit 0; }"
    task = fleet.add("gone twice", command=("sh", "-c", f"{again}; echo new > new; exec sleep 1000"))
    wait_checkpoint(fleet, task)
    shown = fleet.show(task)
    shutil.rmtree(shown["workspace"]["path"])
    os.kill(shown["runs"][-1]["pid"], signal.SIGKILL)
    shown = fleet.wait_state(task, "completed", "failed")
    assert (shown["state"], shown["failure_reason"], len(shown["runs"])) == ("failed", "workspace_gone", 2)
    expect_told(fleet, task, "is saved as a salvage")
    fleet.cli("salvage", "restore", task, "--branch", "back")
    assert fleet.file_on_branch("back", "new") == "new"
