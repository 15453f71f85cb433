"""The pressure gate from outside: nothing new starts on a machine without room, and everybody can see why."""

from __future__ import annotations

import signal

import pytest
from tests.acceptance.config.test_config import user_file
from tests.fleet import Fleet, wait_until

NO_MACHINE_HAS = '[pressure]\nmin_memory = "4000T"\n'


def kinds(fleet: Fleet) -> list[str]:
    return [event["kind"] for event in fleet.events() if event["kind"].startswith("dispatch.")]


def test_nothing_starts_without_room_and_everybody_sees_why(fleet: Fleet) -> None:
    """Issue 4, 7: held with real numbers, once; visible in ps, why and JSON; released by a change of the settings."""
    user_file(fleet, NO_MACHINE_HAS)
    supervisor = fleet.up()
    fleet.cli("ps")
    assert kinds(fleet) == []  # nothing waits, so nothing is held
    first, second = fleet.add("one", command=("true",)), fleet.add("two", command=("true",))
    later = fleet.add("later", "--delay", "1h", command=("true",))
    wait_until(lambda: kinds(fleet), "the gate is closed")
    rows = {row["id"]: row for row in fleet.json("ps")}
    assert "of memory are available" in rows[first]["held"]
    assert rows[second]["held"] == rows[first]["held"]
    assert rows[later]["held"] is None
    listed = fleet.cli("ps")
    assert "nothing new starts: " in listed.stderr
    assert f"held: {rows[first]['held'][:20]}" in listed.stdout
    assert f"Nothing new starts for now: {rows[first]['held']}" in fleet.cli("why", first).stdout
    (event,) = [event for event in fleet.events() if event["kind"] == "dispatch.held"]
    assert 0 < event["data"]["memory"] < 2**50
    assert event["data"]["over"] == ["memory"]

    for _ in range(3):  # looked at again and again, told once
        fleet.cli("cancel", fleet.add("rings the bell", command=("true",)))
    assert kinds(fleet) == ["dispatch.held"]
    assert {fleet.show(task)["state"] for task in (first, second)} == {"queued"}

    user_file(fleet, '[pressure]\nmin_memory = "1MiB"\n')
    supervisor.send_signal(signal.SIGHUP)
    fleet.wait_state(first, "completed")
    fleet.wait_state(second, "completed")
    assert kinds(fleet) == ["dispatch.held", "dispatch.released"]
    assert fleet.json("ps")[0]["held"] is None
    assert "nothing new starts" not in fleet.cli("ps").stderr


def test_an_episode_ends_with_its_reason(fleet: Fleet) -> None:
    """The last task that waited is cancelled: nothing is held any more. And a stop ends an episode too."""
    user_file(fleet, NO_MACHINE_HAS)
    fleet.up()
    task = fleet.add("one", command=("true",))
    wait_until(lambda: kinds(fleet) == ["dispatch.held"], "the gate is closed")
    fleet.cli("cancel", task)
    wait_until(lambda: kinds(fleet) == ["dispatch.held", "dispatch.released"], "nothing waits any more")
    fleet.add("two", command=("true",))
    wait_until(lambda: len(kinds(fleet)) == 3, "the gate is closed again")
    fleet.cli("down")
    events = [event for event in fleet.events() if event["kind"] == "dispatch.released"]
    assert [event["reason"] for event in events] == ["nothing waits any more", "the supervisor stops"]
    assert fleet.json("ps")[0]["held"] is None


@pytest.mark.parametrize("setting", ["max_load = 100000", "max_stall = 100"])
def test_other_limits_let_a_quiet_machine_work(fleet: Fleet, setting: str) -> None:
    user_file(fleet, f"[pressure]\n{setting}\n")
    task = fleet.add("one", command=("true",))
    fleet.up()
    fleet.wait_state(task, "completed")
    assert kinds(fleet) == []


def test_what_a_dead_supervisor_held_is_not_held(fleet: Fleet) -> None:
    user_file(fleet, NO_MACHINE_HAS)
    supervisor = fleet.up()
    task = fleet.add("one", command=("true",))
    wait_until(lambda: fleet.json("ps")[0]["held"], "it is held")
    fleet.kill_supervisor(supervisor)
    assert fleet.json("ps")[0]["held"] is None
    user_file(fleet, "[pressure]\nmin_memory = 0\n")
    fleet.up()
    fleet.wait_state(task, "completed")
    assert fleet.json("ps") == []
