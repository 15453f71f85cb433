"""A hostile tree × every way a run can end × every tier: no survivor, by a witness that knows nothing of Holdfast."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from tests.fleet import in_company, wait_until
from tests.hostile.stage import Planted, Stage
from tests.sampling import leave_out

FAST = 2.0  # R-TERM-06: cancel and `down --now`, from the request to the proven end


def seconds_to_end(stage: Stage, planted: Planted) -> float:
    """From the recorded wish to the proven end, by the store's own events."""
    at = {event["kind"]: event["at"] for event in stage.fleet.events(planted.task_id)}
    took = float(at["run.ended"] - at["run.stopping"])
    print(f"{stage.tier}: {planted.count} processes ended in {took:.2f} s")
    return took


def by_cancel(stage: Stage) -> Planted:
    stage.fleet.up()
    planted = stage.plant()
    assert "Cancelled" in stage.fleet.cli("cancel", planted.task_id).stdout
    planted.witness.assert_none()
    assert seconds_to_end(stage, planted) <= in_company(FAST)
    assert stage.fleet.show(planted.task_id)["outcome"] == "cancelled"
    return planted


def by_cancel_of_a_leader_that_ignores_it(stage: Stage) -> Planted:
    stage.fleet.up()
    planted = stage.plant(leader="ignore")
    stage.fleet.cli("cancel", planted.task_id)
    planted.witness.assert_none()
    assert seconds_to_end(stage, planted) <= in_company(FAST)
    return planted


def by_timeout(stage: Stage) -> Planted:
    stage.fleet.up()
    planted = stage.plant("--timeout", "12s")
    task = stage.fleet.wait_state(planted.task_id, "failed")
    planted.witness.assert_none()
    assert task["outcome"] == "timeout"
    assert (planted.witness.marks / "polite.told").exists()
    return planted


def by_stuck(stage: Stage) -> Planted:
    stage.fleet.up()
    planted = stage.plant("--stuck-after", "6s", quiet=True)
    task = stage.fleet.wait_state(planted.task_id, "failed")
    planted.witness.assert_none()
    assert task["outcome"] == "stuck"
    assert (planted.witness.marks / "polite.told").exists()
    return planted


def by_exit(stage: Stage) -> Planted:
    stage.fleet.up()
    planted = stage.plant()
    planted.send("exit")
    task = stage.fleet.wait_state(planted.task_id, "completed")
    planted.witness.assert_none()
    assert task["outcome"] == "completed"
    assert (planted.witness.marks / "polite.told").exists()
    return planted


def by_crash(stage: Stage) -> Planted:
    stage.fleet.up()
    planted = stage.plant()
    planted.send("crash")
    task = stage.fleet.wait_state(planted.task_id, "failed")
    planted.witness.assert_none()
    assert task["outcome"] == "crashed"
    assert (planted.witness.marks / "polite.told").exists()
    return planted


def by_cancel_after_adoption(stage: Stage) -> Planted:
    supervisor = stage.fleet.up()
    planted = stage.plant()
    stage.fleet.kill_supervisor(supervisor)
    assert planted.witness.alive() == planted.witness.kinds  # the keeper and its tree do not care
    stage.fleet.up()
    wait_until(lambda: "task.adopted" in stage.fleet.kinds(planted.task_id), "the task is adopted")
    assert planted.witness.alive() == planted.witness.kinds
    stage.fleet.cli("cancel", planted.task_id)
    planted.witness.assert_none()
    assert seconds_to_end(stage, planted) <= in_company(FAST)
    assert len(stage.fleet.show(planted.task_id)["runs"]) == 1
    return planted


def by_down_now(stage: Stage) -> Planted:
    supervisor = stage.fleet.up()
    planted = stage.plant()
    stage.fleet.cli("down", "--now")
    planted.witness.assert_none()
    assert supervisor.wait(timeout=60) == 0
    assert seconds_to_end(stage, planted) <= in_company(FAST)
    assert stage.fleet.show(planted.task_id)["state"] == "queued"
    return planted


ENDINGS = (
    by_cancel,
    by_cancel_of_a_leader_that_ignores_it,
    by_timeout,
    by_stuck,
    by_exit,
    by_crash,
    by_cancel_after_adoption,
    by_down_now,
)


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_member_survives(stage: Stage, ending: Callable[[Stage], Planted]) -> None:
    """R-TERM-06, R-TERM-05, R-TERM-10: the run is over when the last process is gone, and never before."""
    leave_out(stage.tier == "unprivileged" and ending is not by_cancel)  # as the tier subreaper
    leave_out(stage.tier == "subreaper" and ending in (by_timeout, by_stuck))  # as the tier cgroup
    leave_out(stage.tier == "subreaper" and ending in (by_stuck, by_crash, by_cancel_of_a_leader_that_ignores_it))
    stage.fleet.env |= {
        "HOLDFAST_HEALTH_GRACE": "1s",
        "HOLDFAST_RETRY_MAX": "0",
        "HOLDFAST_CRASH_MAX_IN_WINDOW": "1",
    }
    planted = ending(stage)
    assert planted.count >= len(planted.witness.kinds)
    stage.assert_no_leaf(planted.run_id)
    assert "All well." in stage.fleet.cli("doctor", code=None).stdout or ending is by_down_now


def test_a_killed_keeper_leaves_no_survivor_while_its_supervisor_lives(stage: Stage) -> None:
    """R-TERM-09, R-TERM-10: the supervisor is the outer subreaper (or kills the cgroup): ended, proven, `lost`."""
    stage.fleet.env["HOLDFAST_LOST_MAX"] = "0"
    stage.fleet.up()
    planted = stage.plant()
    os.kill(stage.keeper_of(planted.run_id), signal.SIGKILL)
    task = stage.fleet.wait_state(planted.task_id, "failed")
    planted.witness.assert_none()
    assert (task["outcome"], task["failure_reason"]) == ("lost", "lost_too_often")
    stage.assert_no_leaf(planted.run_id)


def test_keeper_and_supervisor_killed(stage: Stage) -> None:
    """R-TERM-10: with a cgroup the next supervisor ends the tree and proves it; without one nobody can: frozen, told,
    nothing run again, the workspace kept, until an operator vouches for it."""
    stage.fleet.env["HOLDFAST_LOST_MAX"] = "0"
    supervisor = stage.fleet.up()
    planted = stage.plant(seconds=30)
    stage.fleet.kill_supervisor(supervisor)
    os.kill(stage.keeper_of(planted.run_id), signal.SIGKILL)
    wait_until(lambda: "leader" not in planted.witness.alive(), "the leader dies with its keeper (PDEATHSIG)")
    assert planted.witness.alive()
    stage.fleet.up()
    if stage.has_cgroup(planted.run_id):
        task = stage.fleet.wait_state(planted.task_id, "failed")
        planted.witness.assert_none()
        assert task["outcome"] == "lost"
        stage.assert_no_leaf(planted.run_id)
        return
    assert_frozen(stage, planted)


def assert_frozen(stage: Stage, planted: Planted) -> None:
    fleet, task_id = stage.fleet, planted.task_id
    wait_until(lambda: "task.frozen" in fleet.kinds(task_id), "the task is frozen")
    survivors = planted.witness.alive()
    assert survivors  # that is why nobody may call it over
    task = fleet.show(task_id)
    assert (task["state"], task["workspace"]["state"], len(task["runs"])) == ("running", "ready", 1)
    assert [alert["task"] for alert in fleet.json("alerts")] == [task_id]
    fleet.cli("cancel", task_id, code=4)
    assert planted.witness.alive() == survivors  # nothing was signalled on a guess
    planted.witness.end()
    assert "Cancelled" in fleet.cli("cancel", task_id, "--assume-dead").stdout
    assert fleet.show(task_id)["state"] == "cancelled"


def test_one_tree_ends_and_its_neighbour_stays(plain_stage: Stage) -> None:
    """R-TERM-06, R-TERM-10: the whole tree, and nothing but the tree: another agent under the same supervisor lives."""
    stage = plain_stage
    stage.fleet.up()
    neighbour = stage.plant("--workspace", "directory")
    planted = stage.plant("--workspace", "directory")
    stage.fleet.cli("cancel", planted.task_id)
    planted.witness.assert_none()
    os.kill(stage.keeper_of(neighbour.run_id), 0)
    assert neighbour.witness.alive() == neighbour.witness.kinds
    stage.fleet.cli("cancel", neighbour.task_id)
    neighbour.witness.assert_none()
