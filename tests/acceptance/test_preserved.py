"""Which workspaces stay, why, and for how long: the one resolver, `keep`, expiry, `workspaces`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.acceptance.test_config import user_file
from tests.fleet import Fleet, wait_until

WRITE = {"write": {"path": "w.txt", "text": "work\n"}}
FAIL = {"exit": 1}


def told(fleet: Fleet, task_id: str, kind: str) -> dict[str, Any]:
    (event,) = [event for event in fleet.events(task_id) if event["kind"] == kind]
    return event


def test_the_event_names_the_tier_that_decided(fleet: Fleet) -> None:
    """R-CLEAN-02, R-CLEAN-03, R-CLEAN-04, R-CLEAN-09: task → strategy → global → the switch that holds it back."""
    user_file(fleet, "[workspace]\npreserve_on_failure = true\nworktree.preserve_on_failure = true\n")
    by_task = fleet.add_scenario(WRITE, FAIL, options=("--preserve-on-failure",))
    against = fleet.add_scenario(WRITE, FAIL, options=("--no-preserve-on-failure",))
    by_strategy = fleet.add_scenario(WRITE, FAIL)
    everywhere = fleet.add_scenario(WRITE, FAIL, options=("--workspace", "directory"))
    limited = fleet.add_scenario(WRITE, {"limit": {"kind": "rate", "for": "1h"}}, options=("--max-resumes", 0))
    user_file(fleet, "[workspace]\ncleanup_on_complete = false\n")
    held = fleet.add_scenario(WRITE, FAIL)
    checkout = fleet.add_scenario(FAIL, options=("--workspace", "none", "--preserve-on-failure"))
    fleet.up("--agents", 3)
    for task_id in (by_task, against, by_strategy, everywhere, held, checkout):
        fleet.wait_state(task_id, "failed")
    fleet.wait_state(limited, "paused")
    fleet.cli("resume", limited, code=4)
    fleet.wait_clean()
    fleet.cli("down")
    log = fleet.log()

    for task_id, tier, strategy in (
        (by_task, "task", "worktree"),
        (by_strategy, "workspace.worktree", "worktree"),
        (everywhere, "workspace", "directory"),
        (limited, "workspace.worktree", "worktree"),  # failed by the resume limit: the same path
    ):
        event = told(fleet, task_id, "workspace.preserved")
        path = fleet.show(task_id)["workspace"]["path"]
        assert (event["level"], event["component"], event["task"]) == ("info", "workspace-cleanup", task_id)
        assert event["reason"] == "preserve_on_failure=true"
        facts = {key: event["data"][key] for key in ("tier", "strategy", "container", "path")}
        assert facts == {"tier": tier, "strategy": strategy, "container": None, "path": path}
        assert f"Preserving workspace of failed task {task_id}: strategy {strategy}, path {path}" in event["message"]
        assert f"`holdfast shell {task_id}`" in event["message"]
        assert f"`holdfast workspaces clean {task_id}`" in event["message"]
        assert event["message"] in log
        assert (Path(path) / "w.txt").read_text() == "work\n"
    assert told(fleet, against, "workspace.trashed")["reason"] == "cleaned: preserve_on_failure=false (task)"
    assert "cleanup_on_complete=false holds the cleanup back" in told(fleet, held, "workspace.preserved")["message"]
    assert fleet.show(checkout)["workspace"]["state"] == "gone"  # R-CLEAN-05: there is nothing to keep or clean


def test_kept_for_longer_and_gone_when_its_time_is_over(fleet: Fleet) -> None:
    """R-CLEAN-07, R-CLEAN-11: `keep` before, while and after it runs; sizes and ages; expiry salvages first."""
    user_file(fleet, '[workspace]\npreserve_ttl = "1h"\n')
    fleet.up()
    waiting = fleet.add_scenario(WRITE, options=("--delay", "1h"))
    fleet.cli("keep", waiting, "--for", "30d")
    fleet.cli("cancel", waiting)  # it never had a workspace
    running = fleet.add_scenario(WRITE, {"hang": True})
    short = fleet.add_scenario(WRITE, FAIL, options=("--preserve-on-failure",))
    fleet.wait_started(running)
    assert "after its task's end" in fleet.cli("keep", running).stdout
    fleet.cli("cancel", running)
    fleet.wait_state(running, "cancelled")
    fleet.wait_state(short, "failed")
    fleet.wait_clean()
    rows = {row["task"]: row for row in fleet.json("workspaces", "list")}
    assert rows.keys() == {running, short}
    assert rows[running]["expires_at"] is None
    assert told(fleet, running, "workspace.preserved")["reason"] == "keep_workspace=true"
    ended = told(fleet, short, "workspace.preserved")["at"]
    assert abs(rows[short]["expires_at"] - ended - 3600) < 60
    assert all(row["size"] >= len("work\n") for row in rows.values())
    listing = fleet.cli("workspaces").stdout
    assert "EXPIRES" in listing
    assert "never" in listing
    assert "in 59m" in listing

    os.mkfifo(Path(rows[short]["path"]) / "no-file")  # not everything in a workspace is a file
    assert fleet.json("keep", short, "--for", "20d")[0]["expires_at"] > rows[short]["expires_at"] + 86400
    fleet.cli("down")
    fleet.up(env={"HOLDFAST_CLOCK_OFFSET": str(10 * 86400)})
    assert fleet.json("keep", short, "--for", "1s")[0]["state"] == "preserved"  # a moment that is past for it
    wait_until(lambda: fleet.show(short)["workspace"]["state"] == "gone", "it has expired and is gone")
    assert fleet.kinds(short)[-5:] == [
        "workspace.pinned",
        "workspace.expired",
        "workspace.salvaged",
        "workspace.trashed",
        "workspace.gone",
    ]
    assert fleet.show(running)["workspace"]["state"] == "preserved"
    assert "has no workspace any more" in fleet.cli("keep", short, code=4).stderr
    fleet.cli("workspaces", "clean", "--all-preserved", code=1)  # nobody to ask
    fleet.cli("workspaces", "clean", running, short, code=4)  # all or none
    assert fleet.show(running)["workspace"]["disposition"] == "preserve"
    fleet.cli("workspaces", "clean", "--all-preserved", "--yes")
    wait_until(lambda: fleet.show(running)["workspace"]["state"] == "gone", "it was dropped")
    assert [row["task"] for row in fleet.json("salvage", "list")] == [short, running]
