"""Subtasks from outside: added by an agent or a person, off their parent's branch, gone with a cancelled parent."""

from __future__ import annotations

import os
import sys

import pytest
from tests.fleet import Fleet, processes_of, wait_until

from holdfast.api.tasks.subtasks import refuse_endless_wait, resolve_parent
from holdfast.base.errors import Conflict

ADD = f"{sys.executable} -m holdfast add"
COMMIT = "git add -A && git -c user.name=A -c user.email=a@localhost commit -qm work"


def test_an_agent_adds_a_subtask_and_a_cancel_takes_the_tree(fleet: Fleet) -> None:
    """It starts from what its parent committed, in the user's repository; its end is told and changes nothing; the
    operator's cancel ends all that is below, at work or waiting."""
    child = "test -e from-parent.txt && echo done > child.txt"
    parent = fleet.queue(
        f"echo yes > from-parent.txt && {COMMIT} && echo no > uncommitted.txt && "
        f"{ADD} 'the child' --json -- sh -c '{child}' > added.json && exec sleep 1000",
        prompt="the parent",
    )
    fleet.up("--agents", 2)
    wait_until(lambda: fleet.show(parent)["children"], "the agent added a subtask")
    added = fleet.show(parent)["children"][0]["id"]
    done = fleet.wait_state(added, "completed")
    assert done["parent_id"] == parent
    assert done["repo"] == str(fleet.repo), "not its parent's workspace"
    assert done["base_ref"] == f"holdfast/{parent}"
    assert done["base_commit"] == fleet.git("rev-parse", f"holdfast/{parent}")
    assert fleet.git("ls-tree", "--name-only", done["branch"]).split() == [
        "README.md",
        "child.txt",
        "from-parent.txt",
        "src",
    ]
    ended = [event["data"] for event in fleet.events(parent) if event["kind"] == "subtask.ended"]
    assert ended == [{"child": added, "state": "completed"}]
    assert fleet.show(parent)["state"] == "running"
    fleet.add("a stranger", "--parent", "none", "--delay", "1h", command=("true",))
    [stranger] = [row for row in fleet.json("ps") if row["prompt"] == "a stranger"]
    assert stranger["parent_id"] is None

    works = fleet.add("works", "--parent", parent, command=("sleep", "1000"))
    fleet.wait_started(works)
    waits = fleet.queue("true", prompt="waits", parent=parent)
    below = fleet.queue("true", prompt="below", parent=added)
    listed = fleet.cli("ps", "--all").stdout.splitlines()
    order = [line.split()[0] for line in listed[1:]]
    assert order == [parent, added, below, works, waits, stranger["id"]]
    assert [line.count("└") for line in listed[1:]] == [0, 1, 1, 1, 1, 0]
    shown = fleet.cli("show", parent).stdout
    assert f"subtask {works}  running  works" in shown
    assert (
        f"2 of its 3 subtask(s) are unfinished: {works} (running), {waits} (queued)." in fleet.cli("why", parent).stdout
    )
    assert f"It is a subtask of {parent}, which is running." in fleet.cli("why", works).stdout

    said = fleet.cli("cancel", parent).stdout
    assert "3 unfinished subtask(s)" in said
    for task in (works, waits, below):
        gone = fleet.wait_state(task, "cancelled")
        assert parent in gone["reason"]
    fleet.wait_clean()
    assert fleet.show(added)["state"] == "completed"
    assert not [line for line in processes_of(fleet.home).values() if "sleep 1000" in line]
    refused = fleet.cli("add", "late", "--parent", parent, "--", "true", code=4)
    assert "was cancelled" in refused.stderr
    with fleet.as_its_user():
        os.environ["HOLDFAST_TASK_ID"] = works
        assert resolve_parent(str(fleet.home), None) == works
        refuse_endless_wait(str(fleet.home), works)  # there is room for two
        assert resolve_parent(str(fleet.home), "none") is None
        os.environ["HOLDFAST_TASK_ID"] = "n0such"
        assert resolve_parent(str(fleet.home), None) is None, "an agent of another home"
    fleet.cli("doctor", "--invariants")


def test_a_subtask_of_an_ended_parent_finds_its_base(fleet: Fleet) -> None:
    """An empty branch is deleted: its base has all there was. One with work stays until its subtask started from it."""
    supervisor = fleet.up("--agents", 1)
    empty, full = fleet.queue("true"), fleet.queue(f"echo work > work.txt && {COMMIT}")
    base = fleet.wait_state(empty, "completed")["base_commit"]
    fleet.wait_state(full, "completed")
    fleet.wait_clean()
    assert fleet.branches() == [f"holdfast/{full}"]
    with fleet.as_its_user():
        os.environ["HOLDFAST_TASK_ID"] = full
        with pytest.raises(Conflict, match="one agent at a time, and you are that agent"):
            refuse_endless_wait(str(fleet.home), full)
    fleet.cli("down")
    supervisor.wait(timeout=60)
    fleet.cli("merge", full)
    (fleet.repo / "later.txt").write_text("later")
    fleet.git("add", "-A")
    fleet.git("commit", "-qm", "later")

    of_empty = fleet.queue("test ! -e later.txt && test ! -e work.txt", parent=empty)
    of_full = fleet.queue("test ! -e later.txt && test -e work.txt", parent=full)
    of_main = fleet.queue("test -e later.txt", parent=empty, base="main")
    kept = fleet.cli("branches", "prune", "--merged").stdout
    assert f"holdfast/{full}" in fleet.branches(), kept
    assert fleet.json("branches")[0]["stays"] == "a subtask will start from it"
    fleet.up("--agents", 2, "--idle-exit", "1s")
    found = [fleet.wait_state(task, "completed", "failed") for task in (of_empty, of_full, of_main)]
    assert [task["state"] for task in found] == ["completed"] * 3, [task["reason"] for task in found]
    assert [task["base_ref"] for task in found] == ["main", f"holdfast/{full}", "main"]
    assert found[0]["base_commit"] == base
