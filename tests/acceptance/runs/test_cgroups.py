"""The cgroup tier: a tree is killed at one stroke, proven empty without its keeper, and leaves no group behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import Fleet, lives, wait_until

from holdfast.processes.cgroups import CgroupRecord, HomeCgroups, base_name, is_our_leaf, probe_cgroups

LIVES = {"kind": "daemon", "lives": "120s", "write": "daemon.pid"}


@pytest.fixture
def groups(fleet: Fleet) -> Iterator[HomeCgroups]:
    """Where this home's groups are; skips by name where this user may not make any."""
    fleet.home.mkdir(mode=0o700)
    found = probe_cgroups(str(fleet.home), CgroupRecord(str(fleet.home)))
    if isinstance(found, str):
        pytest.skip(f"NOT RUN: agents get no cgroups here: {found}")
    yield found
    fleet.close()
    left = [str(path) for path in Path(found.base).glob("*") if path.is_dir()]
    found.leave()
    assert left == []


def record(fleet: Fleet, task_id: str) -> dict[str, Any]:
    """pid.json of the task's last run, as soon as it is there."""
    run = wait_until(lambda: [run for run in fleet.show(task_id)["runs"] if run["pid"]], "the run is started")[-1]
    content: dict[str, Any] = json.loads((fleet.home / "runs" / run["id"] / "pid.json").read_text())
    return content


def start_with_daemon(fleet: Fleet, *options: object) -> tuple[str, dict[str, Any], int]:
    task = fleet.add_scenario({"spawn": LIVES}, {"hang": True}, options=("--workspace", "directory", *options))
    pids = record(fleet, task)
    workspace = Path(fleet.show(task)["workspace"]["path"])
    daemon = wait_until(
        lambda: (workspace / "daemon.pid").exists() and (workspace / "daemon.pid").read_text(), "it runs"
    )
    return task, pids, int(daemon)


def test_an_agent_runs_in_a_leaf_of_its_own_and_leaves_none(fleet: Fleet, groups: HomeCgroups) -> None:
    """R-TERM-06: the whole tree is inside, the keeper outside; the proof names both; the leaf goes with the run."""
    fleet.up()
    task, pids, daemon = start_with_daemon(fleet)
    leaf = Path(pids["leaf"])
    members = {int(pid) for pid in (leaf / "cgroup.procs").read_text().split()}
    assert {pids["agent"]["pid"], daemon} <= members
    assert pids["keeper"]["pid"] not in members
    assert pids["tier"] == "cgroup"
    fleet.cli("cancel", task)
    assert not leaf.exists()
    assert not lives(daemon)
    run = fleet.show(task)["runs"][-1]["id"]
    assert json.loads((fleet.home / "runs" / run / "empty.json").read_text())["proof"] == "ECHILD and populated 0"


def test_keeper_and_supervisor_killed_together_are_recovered(fleet: Fleet, groups: HomeCgroups) -> None:
    """R-TERM-10: without both, the cgroup still proves what is left: it is killed, and the task runs again."""
    supervisor = fleet.up()
    task, pids, daemon = start_with_daemon(fleet)
    fleet.kill_supervisor(supervisor)
    os.kill(pids["keeper"]["pid"], signal.SIGKILL)
    wait_until(lambda: not lives(pids["keeper"]["pid"]), "the keeper is gone")
    assert lives(daemon), "the daemon must survive its keeper, or this test shows nothing"
    fleet.up()
    wait_until(lambda: not lives(daemon), "the daemon of the dead run is gone")
    wait_until(lambda: len(fleet.show(task)["runs"]) == 2, "the task runs again")
    first = fleet.show(task)["runs"][0]
    assert (first["outcome"], first["state"]) == ("lost", "settled")
    assert json.loads((fleet.home / "runs" / first["id"] / "empty.json").read_text())["proof"] == "cgroup"
    fleet.cli("cancel", task)
    assert "All well." in fleet.doctor()


def test_without_cgroups_the_same_is_frozen(fleet: Fleet) -> None:
    """R-TERM-10: nobody can prove that the tree is gone: neither run again nor cleaned, told loudly."""
    off = {"HOLDFAST_PROCESSES_CGROUP": "off"}
    supervisor = fleet.up(env=off)
    task, pids, daemon = start_with_daemon(fleet)
    assert pids["tier"] == "subreaper"
    fleet.kill_supervisor(supervisor)
    os.kill(pids["keeper"]["pid"], signal.SIGKILL)
    wait_until(lambda: not lives(pids["keeper"]["pid"]), "the keeper is gone")
    fleet.up(env=off)
    wait_until(lambda: "task.frozen" in fleet.kinds(task), "it is frozen")
    assert lives(daemon)
    assert len(fleet.show(task)["runs"]) == 1
    os.kill(daemon, signal.SIGKILL)
    fleet.cli("cancel", task, "--assume-dead")
    assert fleet.show(task)["state"] == "cancelled"


def test_a_record_cannot_point_our_kill_at_a_strangers_group(fleet: Fleet, groups: HomeCgroups) -> None:
    """Proof before harm: the run directory is writable for the agent, so a leaf is ours only by its name and place."""
    home = str(fleet.home)
    ours = f"{groups.base}/abc"
    assert is_our_leaf(ours, home, "abc")
    for leaf in (f"{os.path.dirname(groups.base)}/abc", f"{groups.base}/other", f"{groups.base}/x/../abc", "", None, 7):
        assert not is_our_leaf(leaf, home, "abc")
    assert not is_our_leaf(f"/tmp/{base_name(home)}/abc", home, "abc")
    supervisor = fleet.up()
    task, pids, daemon = start_with_daemon(fleet)
    run = fleet.show(task)["runs"][-1]["id"]
    stranger = Path(os.path.dirname(groups.base), f"stranger-{os.getpid()}")
    stranger.mkdir()
    try:
        fleet.kill_supervisor(supervisor)
        os.kill(pids["keeper"]["pid"], signal.SIGKILL)
        wait_until(lambda: not lives(pids["keeper"]["pid"]), "the keeper is gone")
        (stranger / "cgroup.procs").write_text(str(daemon))
        file = fleet.home / "runs" / run / "pid.json"
        file.write_text(json.dumps({**pids, "leaf": str(stranger)}))
        fleet.up()
        wait_until(lambda: "task.frozen" in fleet.kinds(task), "it is frozen")
        assert lives(daemon)
    finally:
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: not lives(daemon), "it is gone")
        wait_until(lambda: "populated 0" in (stranger / "cgroup.events").read_text(), "the group is empty")
        stranger.rmdir()
    fleet.cli("cancel", task, "--assume-dead")


def test_the_cpu_weight_of_a_task_holds_for_its_agent(fleet: Fleet, groups: HomeCgroups) -> None:
    """R-TERM-14: the kernel has the weight, in the group in which it says that the agent is."""
    if "cpu" not in groups.controllers:
        pytest.skip("NOT RUN: no cpu controller for this user's groups")
    fleet.up()
    task, pids, _daemon = start_with_daemon(fleet, "--cpu-weight", "300")
    lines = [line.split(":", 2) for line in Path(f"/proc/{pids['agent']['pid']}/cgroup").read_text().splitlines()]
    run = os.path.basename(pids["leaf"])
    [(_number, names, _path)] = [
        line for line in lines if line[2].endswith(f"/{run}") and "cpu" in line[1].split(",")
    ] or [line for line in lines if line[1] == ""]
    file, value = ("cpu.shares", 3072) if names else ("cpu.weight", 300)
    assert int(Path(groups.controllers["cpu"], run, file).read_text()) == value
    fleet.cli("cancel", task)


def test_a_group_that_nobody_removed_is_swept(fleet: Fleet, groups: HomeCgroups) -> None:
    """Promise 2: a keeper that was killed at the wrong moment leaves an empty group at most, until the next start."""
    stale = Path(groups.base, "oldrun")
    stale.mkdir()
    (stale / "made-by-the-agent").mkdir()
    fleet.up()
    wait_until(lambda: [event for event in fleet.events() if event["kind"] == "sweep.completed"], "it has swept")
    assert not stale.exists()
    assert [event["data"]["cgroups_removed"] for event in fleet.events() if event["kind"] == "sweep.completed"] == [1]


def test_a_process_that_left_its_cgroup_is_no_proof(fleet: Fleet, groups: HomeCgroups) -> None:
    """R-TERM-10: whoever may enter a cgroup may leave it. Then an empty leaf proves nothing."""
    supervisor = fleet.up()
    task, pids, daemon = start_with_daemon(fleet)
    Path(os.path.dirname(groups.base), "cgroup.procs").write_text(str(daemon))
    fleet.kill_supervisor(supervisor)
    os.kill(pids["keeper"]["pid"], signal.SIGKILL)
    wait_until(lambda: not lives(pids["keeper"]["pid"]), "the keeper is gone")
    fleet.up()
    wait_until(lambda: "task.frozen" in fleet.kinds(task), "it is frozen")
    assert lives(daemon)
    os.kill(daemon, signal.SIGKILL)
    fleet.cli("cancel", task, "--assume-dead")


@pytest.mark.parametrize(
    ("command", "after"), [("up", "sweep"), ("up", "purge"), ("doctor", "up"), ("doctor", "purge")]
)
def test_a_probe_that_is_killed_leaves_no_process_and_no_group(
    fleet: Fleet, groups: HomeCgroups, command: str, after: str
) -> None:
    """Promise 2: `up` and `doctor` try cgroups by killing a process in one. Killed meanwhile, they leave no process;
    doctor and the checker name the empty group, and whatever comes next removes it."""
    fleet.cli("add", "later", "--workspace", "directory", "--", "true")
    fleet.cli(command, env={"HOLDFAST_FAULT": "cgroup.tried:1:kill"}, code=-signal.SIGKILL)
    left = probes_of(fleet)
    assert left
    wait_until(lambda: not members_of(left), "the process of the probe is gone", patience=20)
    told = "is left over from a test of cgroups that was killed"
    assert f"{left[0]} {told}" in fleet.cli("doctor", code=1).stdout
    assert f"{left[0]} {told}" in fleet.cli("doctor", "--invariants", code=1).stdout
    if after == "up":
        fleet.cli("up", "--idle-exit", "0s")
    else:
        fleet.cli(after, *(["--yes", "--discard-work"] if after == "purge" else []))
    assert probes_of(fleet) == []


def probes_of(fleet: Fleet) -> list[str]:
    """The groups of probes in any hierarchy, found by walking: neither by the home's record nor by our code."""
    name = base_name(str(fleet.home))
    walked = (folder for folder, _folders, _files in os.walk("/sys/fs/cgroup") if name in folder)
    return sorted(folder for folder in walked if os.path.basename(folder).startswith(("probe-", f"{name}-trial-")))


def members_of(groups: list[str]) -> str:
    return "".join(Path(group, "cgroup.procs").read_text() for group in groups)


def test_groups_of_a_start_from_elsewhere_are_found_again(fleet: Fleet, groups: HomeCgroups) -> None:
    """Promise 2: where a base lies depends on where `up` was started; the home has noted all of them."""
    elsewhere = Path(os.path.dirname(groups.base), f"elsewhere-{os.getpid()}", os.path.basename(groups.base))
    elsewhere.mkdir(parents=True)
    (elsewhere / "oldrun").mkdir()
    CgroupRecord(str(fleet.home)).note(str(elsewhere))
    try:
        fleet.up()
        wait_until(lambda: [event for event in fleet.events() if event["kind"] == "sweep.completed"], "it has swept")
        assert not (elsewhere / "oldrun").exists()
        fleet.cli("down")
        assert not elsewhere.exists()
        assert not (fleet.home / "cgroups").exists()
    finally:
        elsewhere.parent.rmdir()
