"""A workspace that somebody still uses is not removed; it goes when the last one has left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fleet import Fleet, lives, wait_until


def in_use(fleet: Fleet, task_id: str) -> list[str]:
    return [event["message"] for event in fleet.events(task_id) if event["kind"] == "workspace.in-use"]


def shell(fleet: Fleet, task_id: str, line: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast", "shell", task_id, "-c", line]
    return subprocess.Popen(command, env=fleet.env, cwd=fleet.root, stdin=subprocess.DEVNULL)


def test_a_workspace_in_use_waits_for_the_last_to_leave(fleet: Fleet) -> None:
    """R-CLEAN-08, R-CLEAN-10: a shell, a killed shell's child, a stranger's directory and file, a subtask."""
    fleet.up()
    hang = fleet.root / "hang"
    task_id = fleet.queue(f"touch {hang}; exec sleep 1000")
    fleet.wait_started(task_id)
    wait_until(hang.exists, "its agent works")
    path = Path(fleet.show(task_id)["workspace"]["path"])
    assert fleet.cli("shell", task_id, "-c", "pwd -P; exit 7", code=7).stdout.strip() == str(path)
    inside, out = fleet.root / "inside", fleet.root / "out"
    mine = shell(fleet, task_id, f"echo $$ > {inside}; until [ -e {out} ]; do sleep 0.1; done; echo late > late.txt")
    wait_until(inside.exists, "the shell is open")
    wait_until(inside.read_text, "the shell said who it is")
    subtask = fleet.queue("exec sleep 1000", parent=task_id)
    fleet.wait_started(subtask)
    stranger = subprocess.Popen(["sleep", "1000"], cwd=path)
    fleet.cli("cancel", task_id, "--keep-subtasks")
    fleet.wait_state(task_id, "cancelled")
    (said,) = wait_until(lambda: in_use(fleet, task_id), "it is told that it is in use")
    assert "a `holdfast shell`" in said
    assert f"(pid {stranger.pid})" in said
    assert f"its subtask {subtask}" in said

    mine.kill()  # what it started has the lease now
    mine.wait()
    assert lives(int(inside.read_text()))
    fleet.cli("cancel", subtask)
    stranger.kill()
    stranger.wait()
    fleet.wait_state(subtask, "cancelled")
    workspaces = fleet.json("workspaces")
    assert [(row["task"], row["state"]) for row in workspaces if row["task"] == task_id] == [(task_id, "ready")]
    assert path.is_dir()
    out.touch()
    fleet.wait_clean()
    assert not path.exists()
    assert len(in_use(fleet, task_id)) == 1
    assert fleet.worktrees() == []
    fleet.cli("salvage", "restore", task_id, "--branch", "rescued")
    assert fleet.file_on_branch("rescued", "late.txt") == "late"  # done after the ending had saved the rest
    assert "has no workspace now" in fleet.cli("shell", task_id, code=4).stderr


def test_an_open_file_and_a_preserved_one(fleet: Fleet) -> None:
    """R-CLEAN-08: a descriptor is a use too; `clean` waits like any other removal."""
    fleet.up()
    task_id = fleet.queue("echo a > a.txt; exit 1", keep_workspace=True)
    fleet.wait_state(task_id, "failed")
    fleet.wait_clean()
    path = Path(fleet.show(task_id)["workspace"]["path"])
    with (path / "a.txt").open() as file:
        holder = subprocess.Popen(["sleep", "1000"], stdin=file)
    try:
        fleet.cli("workspaces", "clean", task_id)
        (said,) = wait_until(lambda: in_use(fleet, task_id), "it is told that it is in use")
        assert f"sleep (pid {holder.pid})" in said
        assert fleet.cli("shell", task_id, "-c", "cat a.txt").stdout == "a\n"
        assert "a process works in it" in fleet.cli("retry", task_id, "--fresh", code=4).stderr
        assert path.is_dir()
    finally:
        holder.kill()
        holder.wait()
    wait_until(lambda: fleet.show(task_id)["workspace"]["state"] == "gone", "it is gone")
    assert os.listdir(fleet.home / "leases") == []
