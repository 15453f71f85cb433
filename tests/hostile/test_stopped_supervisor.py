"""A supervisor that is stopped (SIGSTOP, a debugger, a suspended machine) past its lease, and then continues."""

from __future__ import annotations

import signal
import sys
from collections import Counter

import apsw
from tests.fleet import Fleet, lives, processes_of, state_of, stopped_between_writes, wait_until
from tests.hostile import solo
from tests.hostile.stage import Stage


def counting_task(fleet: Fleet) -> str:
    """Its agents count themselves in the fleet's root, notice each other, and end when `go` exists."""
    return fleet.add(
        "count", "--workspace", "none", command=(sys.executable, "-I", "-S", solo.__file__, fleet.root, 60)
    )


def agents(fleet: Fleet) -> list[int]:
    """Every agent that ever ran."""
    ran = fleet.root / "ran"
    return [int(line.split()[1]) for line in ran.read_text().splitlines()] if ran.exists() else []


def assert_settled_once(fleet: Fleet, task_id: str) -> None:
    assert not (fleet.root / "overlap").exists()
    kinds = Counter(fleet.kinds(task_id))
    assert kinds["task.completed"] == 1
    fences = [event["data"]["fence"] for event in fleet.events(task_id) if "fence" in event["data"]]
    assert fences == sorted(fences)
    assert "The five promises hold." in fleet.cli("doctor", "--invariants").stdout


def test_keepers_end_their_trees_and_the_task_is_settled_once(plain_stage: Stage) -> None:
    """R-TERM-10, R-TERM-05: no beat for `orphan_grace`: the tree is ended though the supervisor still has the home.
    When it continues it finds the run over, calls it lost, and runs the task once more."""
    fleet = plain_stage.fleet
    fleet.env["HOLDFAST_HEALTH_ORPHAN_GRACE"] = "5s"
    supervisor = fleet.up()
    task_id = counting_task(fleet)
    wait_until(lambda: "run.started" in fleet.kinds(task_id), "the agent runs")
    first = wait_until(lambda: agents(fleet), "it counted itself")[0]
    with stopped_between_writes(fleet, supervisor):
        wait_until(lambda: not lives(first), "its keeper ended it")
        assert f"pid {supervisor.pid}" in fleet.cli("up", code=4).stderr
        assert len(agents(fleet)) == 1  # nobody runs it while the home is held
        with apsw.Connection(str(fleet.home / "holdfast.db")) as store:  # what 30 s more would do to its lease
            store.set_busy_timeout(10_000)
            store.execute("UPDATE hosts SET lease_until = 0 WHERE state = 'active'")
    wait_until(lambda: len(agents(fleet)) == 2, "the task runs again")
    (fleet.root / "go").touch()
    task = fleet.wait_state(task_id, "completed")
    assert [run["outcome"] for run in task["runs"]] == ["lost", "completed"]
    assert_settled_once(fleet, task_id)


def test_a_supervisor_that_lost_its_home_writes_nothing(plain_stage: Stage) -> None:
    """Promise 3 (R-TERM-10): stopped, its lock taken away, a second one adopts the task: when the first continues, its
    writes are refused, it ends by itself, and the task has one result."""
    fleet = plain_stage.fleet
    first = fleet.up()
    task_id = counting_task(fleet)
    wait_until(lambda: "run.started" in fleet.kinds(task_id), "the agent runs")
    wait_until(lambda: agents(fleet), "it counted itself")
    with stopped_between_writes(fleet, first):
        (fleet.home / "supervisor.lock").unlink()
        (fleet.home / "helpers.lock").unlink()
        second = fleet.up()
        wait_until(lambda: "task.adopted" in fleet.kinds(task_id), "the second one adopts the task")
    assert first.wait(timeout=60) is not None
    assert second.poll() is None
    (fleet.root / "go").touch()
    task = fleet.wait_state(task_id, "completed")
    assert [run["outcome"] for run in task["runs"]] in (["completed"], ["external_kill", "completed"])
    assert len(agents(fleet)) == len(task["runs"])
    assert_settled_once(fleet, task_id)
    wait_until(lambda: set(processes_of(fleet.home)) == {second.pid}, "only the second supervisor is left")


def test_a_stopped_supervisor_is_named_as_such(plain_stage: Stage) -> None:
    """Nothing silent: whoever types `up` while the holder of the home is stopped is told who it is, and what to do."""
    supervisor = plain_stage.fleet.up()
    supervisor.send_signal(signal.SIGSTOP)
    wait_until(lambda: state_of(supervisor.pid) == "T", "it is stopped")
    try:
        refused = plain_stage.fleet.cli("up", code=4).stderr
    finally:
        supervisor.send_signal(signal.SIGCONT)
    assert f"pid {supervisor.pid}" in refused
    said = refused.replace(str(plain_stage.fleet.home), "")
    assert "stopped" in said
    assert f"kill -CONT {supervisor.pid}" in said
