"""Which workspaces stay, why, and for how long: the one resolver, `keep`, expiry, `workspaces`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.config.test_config import user_file
from tests.fleet import Fleet, wait_filled, wait_until

from holdfast.api.work.workspaces import clean, keep
from holdfast.base.errors import Conflict

WRITE = {"write": {"path": "w.txt", "text": "work\n"}}
FAIL = "echo work > w.txt; exit 1"


def told(fleet: Fleet, task_id: str, kind: str) -> dict[str, Any]:
    (event,) = [event for event in fleet.events(task_id) if event["kind"] == kind]
    return event


def test_the_event_names_the_tier_that_decided(fleet: Fleet) -> None:
    """R-CLEAN-02, R-CLEAN-03, R-CLEAN-04, R-CLEAN-09: task → strategy → global → the switch that holds it back."""
    user_file(fleet, "[workspace]\npreserve_on_failure = true\nworktree.preserve_on_failure = true\n")
    by_task = fleet.queue(FAIL, preserve_on_failure=True)
    against = fleet.queue(FAIL, preserve_on_failure=False)
    everywhere = fleet.queue(FAIL, workspace="directory")
    limited = fleet.add_scenario(WRITE, {"limit": {"kind": "rate", "for": "1h"}}, options=("--max-resumes", 0))
    user_file(fleet, "[workspace]\ncleanup_on_complete = false\n")
    held = fleet.queue(FAIL)
    fleet.up("--agents", 3)
    for task_id in (by_task, against, everywhere, held, limited):
        fleet.wait_state(task_id, "failed")
    fleet.wait_clean()
    fleet.cli("down")
    log = fleet.log()

    for task_id, tier, strategy in (
        (by_task, "task", "worktree"),
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


def test_kept_for_longer_and_gone_when_its_time_is_over(fleet: Fleet) -> None:
    """R-CLEAN-07, R-CLEAN-11: `keep` before, while and after it runs; sizes and ages; expiry salvages first."""
    user_file(fleet, '[workspace]\npreserve_ttl = "1h"\n')
    fleet.up()
    running = fleet.queue("echo work > w.txt; exec sleep 1000")
    short = fleet.queue(FAIL, preserve_on_failure=True)
    path = Path(fleet.wait_started(running)["workspace"]["path"])
    wait_filled(path / "w.txt", "there is work to keep")
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
    assert keep(str(fleet.home), short, 20 * 86400.0)["expires_at"] > rows[short]["expires_at"] + 86400
    assert fleet.json("keep", short, "--for", "1s")[0]["state"] == "preserved"
    wait_until(lambda: fleet.show(short)["workspace"]["state"] == "gone", "it has expired and is gone")
    assert fleet.kinds(short)[-5:] == [
        "workspace.pinned",
        "workspace.expired",
        "workspace.salvaged",
        "workspace.trashed",
        "workspace.gone",
    ]
    assert fleet.show(running)["workspace"]["state"] == "preserved"
    with pytest.raises(Conflict, match="has no workspace any more"):
        keep(str(fleet.home), short, 1.0)
    with pytest.raises(Conflict, match="no preserved workspace"):
        clean(str(fleet.home), [running, short])  # all or none
    fleet.cli("workspaces", "clean", "--all-preserved", code=1)  # nobody to ask
    assert fleet.show(running)["workspace"]["disposition"] == "preserve"
    fleet.cli("workspaces", "clean", "--all-preserved", "--yes")
    wait_until(lambda: fleet.show(running)["workspace"]["state"] == "gone", "it was dropped")
    assert [row["task"] for row in fleet.json("salvage", "list")] == [short, running]
