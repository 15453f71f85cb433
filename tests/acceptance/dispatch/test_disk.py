"""The disk governor: below `disk.floor` nothing new is claimed, running work goes on, one alert."""

from __future__ import annotations

import signal

from tests.acceptance.config.test_config import user_file
from tests.fleet import Fleet, wait_until

NO_DISK_HAS = '[disk]\nfloor = "4000T"\n'


def test_below_the_floor_nothing_new_is_claimed(fleet: Fleet) -> None:
    """R-TREE-14: running work goes on, one alert, everybody sees why; dispatch returns with the space."""
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
    assert "of disk are free" in fleet.cli("workspaces").stderr

    go.touch()
    fleet.wait_state(running, "completed")  # running work goes on, and its workspace is put away
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
