"""The disk governor: below `disk.floor` nothing new is claimed, running work continues, one alert."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.acceptance.config.test_config import user_file
from tests.fleet import Fleet, wait_until

NO_DISK_HAS = '[disk]\nfloor = "4000T"\n'


def test_below_the_floor_nothing_new_is_claimed(fleet: Fleet) -> None:
    """R-TREE-14: running work continues, one alert, everybody sees why; dispatch returns with the space."""
    supervisor = fleet.up()
    go = fleet.root / "go"
    wait = f"echo here > here.txt; while [ ! -e {go} ]; do sleep 0.1; done"
    running = fleet.queue(wait)
    fleet.wait_started(running)
    user_file(fleet, NO_DISK_HAS)
    supervisor.send_signal(signal.SIGHUP)
    wait_until(lambda: "config.reloaded" in [event["kind"] for event in fleet.events()], "the floor is known")
    waiting = fleet.queue("true")
    wait_until(lambda: any(event["kind"] == "alert.raised" for event in fleet.events()), "the alert is raised")
    wait_until(lambda: any(event["kind"] == "dispatch.held" for event in fleet.events()), "and what waits is held")
    (row,) = [row for row in fleet.json("ps") if row["id"] == waiting]
    assert "of disk are free" in row["held"]
    assert row["held"] in fleet.cli("why", waiting).stdout
    doctor = fleet.cli("doctor", code=None)
    assert "nothing new starts below 3.9 PiB" in doctor.stdout
    assert doctor.returncode == 1
    assert "of disk space are free" in fleet.cli("workspaces").stderr

    go.touch()
    fleet.wait_state(running, "completed")  # running work continues, and its workspace is removed
    fleet.wait_clean()
    assert fleet.show(waiting)["state"] == "queued"
    (alert,) = fleet.json("alerts")
    assert (alert["key"], alert["count"]) == ("disk:floor", 1)
    assert str(fleet.home) in alert["message"]
    assert "`holdfast workspaces clean --all-preserved`" in alert["remedy"]

    fleet.kill_supervisor(supervisor)  # the alert of a dead supervisor is closed by the next
    user_file(fleet, '[disk]\nfloor = "1k"\n')
    fleet.up()
    fleet.wait_state(waiting, "completed")
    assert fleet.json("alerts") == []


def free(path: Path | str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


@pytest.fixture
def elsewhere(fleet: Fleet) -> Iterator[Path]:
    """A repository on another file system than the home's, with less free space than that."""
    if not os.path.isdir("/dev/shm") or free("/dev/shm") + (1 << 30) > free(fleet.root):
        pytest.skip("/dev/shm has no less space than the home's file system")
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        fleet.make_repo(folder / "repo")
        yield folder / "repo"
    finally:
        shutil.rmtree(folder)


def test_a_repository_with_a_full_disk_holds_its_own_tasks(fleet: Fleet, elsewhere: Path) -> None:
    """R-TREE-14, attack D5: git writes into the repository too. Tasks of others continue, including those behind it."""
    user_file(fleet, f'disk.floor = "{(free(elsewhere) >> 20) + 512}MiB"\n')
    held = fleet.queue("true", directory=elsewhere)
    other = fleet.queue("true")
    supervisor = fleet.up()
    fleet.wait_state(other, "completed")
    alert = wait_until(lambda: fleet.json("alerts"), "the alert is raised")[0]
    assert f"are free for the repository {elsewhere}, less than `disk.floor`" in alert["message"]
    assert str(elsewhere) in alert["remedy"]
    assert fleet.show(held)["state"] == "queued"
    (row,) = [row for row in fleet.json("ps") if row["id"] == held]
    words = f"of disk space are free for the repository {elsewhere}"
    assert words in row["held"]
    assert words in fleet.cli("why", held).stdout

    fleet.kill_supervisor(supervisor)  # the alert of a dead supervisor is closed by the next
    user_file(fleet, 'disk.floor = "1k"\n')
    fleet.up()
    fleet.wait_state(held, "completed")
    assert fleet.json("alerts") == []
