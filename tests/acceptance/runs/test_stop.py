"""Stopping the supervisor in every way, and what its agents and tasks do then."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.fleet import PATIENCE, STRICT, Fleet, in_company, lives, processes_of, wait_until
from tests.harness.matrix.runner import has_cgroups

from holdfast.supervisor.daemon import SLOW_POLL


def hold(fleet: Fleet, name: str, *options: object, ignore_term: bool = False) -> tuple[str, int]:
    """A task whose agent waits for the file `go-NAME`; its id and its agent's pid."""
    reached = fleet.root / f"at-{name}"
    task_id = fleet.add_scenario(
        *([{"ignore_term": True}] if ignore_term else []),
        {"usage": {"input": 70, "cost_usd": 0.5}},
        {"write": {"path": f"{name}.txt", "text": "begun\n"}},
        {"touch": str(reached)},
        {"wait_for": str(fleet.root / f"go-{name}")},
        options=options,
    )
    wait_until(reached.exists, f"the agent of {name} is at work")
    pid = wait_until(lambda: fleet.show(task_id)["runs"][-1]["pid"], "its pid is recorded")
    return task_id, pid


def test_down_stops_agents_with_grace_and_leaves_their_tasks_queued(fleet: Fleet) -> None:
    """Plain `down`: the tree is dead, the task is queued, the next `up` continues in the same workspace."""
    supervisor = fleet.up()
    task_id, pid = hold(fleet, "a")
    assert fleet.cli("down").stdout.startswith("Stopped")
    assert supervisor.wait(timeout=PATIENCE) == 0
    assert not lives(pid)
    task = fleet.show(task_id)
    assert (task["state"], task["outcome"]) == ("queued", "stopped")
    assert task["workspace"]["state"] == "ready"
    assert (fleet.root / task["workspace"]["path"] / "a.txt").read_text() == "begun\n"
    assert all(entry["spent"] == 0 for entry in fleet.shown(task_id)["budgets"].values())
    (fleet.root / "go-a").touch()
    fleet.up()
    done = fleet.wait_state(task_id, "completed")
    assert [run["outcome"] for run in done["runs"]] == ["stopped", "completed"]


def test_down_now_ends_a_stubborn_tree_fast(fleet: Fleet) -> None:
    """R-TERM-06: `down --now` takes at most 2 s from the stop to the proven end, though the agent ignores TERM."""
    fleet.env["HOLDFAST_HEALTH_GRACE"] = "10m"
    fleet.up()
    task_id, pid = hold(fleet, "a", ignore_term=True)
    fleet.cli("down", "--now")
    assert not lives(pid)
    at = {event["kind"]: event["at"] for event in fleet.events(task_id)}
    assert at["run.ended"] - at["run.stopping"] < in_company(2.0)


@pytest.mark.parametrize("count", [500 if STRICT else 12])
def test_down_now_keeps_its_word_with_many_agents(fleet: Fleet, count: int) -> None:
    """R-TERM-06, attack D7: each agent is dead within 2 s of its stop, and `down --now` ends within 10 s.

    `make test-strict`: 500 agents. The kernel reports each death.
    """
    pids = fleet.root / "pids"
    pids.mkdir()
    script = f"echo > '{pids}'/$$; exec sleep 1000"
    tasks = [fleet.queue(script, workspace="directory") for _ in range(count)]
    supervisor = fleet.up("--agents", str(count))
    wait_until(lambda: len(os.listdir(pids)) == count, "all agents are at work")
    died: dict[int, float] = {}
    with selectors.DefaultSelector() as alive:
        for name in os.listdir(pids):
            alive.register(os.pidfd_open(int(name)), selectors.EVENT_READ, int(name))
        began = time.monotonic()
        down = fleet.start("down", "--now", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while alive.get_map() and time.monotonic() < began + PATIENCE:
            for key, _ in alive.select(1):
                died[key.data] = time.time()
                alive.unregister(key.fileobj)
                os.close(key.fd)
    assert down.wait(timeout=PATIENCE) == 0
    took = time.monotonic() - began
    assert supervisor.wait(timeout=PATIENCE) == 0
    late = []
    for task_id in tasks:
        [stopping] = [event["at"] for event in fleet.events(task_id) if event["kind"] == "run.stopping"]
        late.append(died[fleet.show(task_id)["runs"][-1]["pid"]] - stopping)
    print(f"{count} agents: {max(late):.2f} s for the slowest, {took:.2f} s in all")
    assert max(late) < in_company(2.0)
    assert took < in_company(10.0)
    assert processes_of(fleet.home) == {}


def test_sigterm_is_graceful_and_a_second_one_is_fast(fleet: Fleet) -> None:
    """The first signal gives the grace, the second takes it back."""
    fleet.env["HOLDFAST_HEALTH_GRACE"] = "60s"
    supervisor = fleet.up()
    task_id, pid = hold(fleet, "a", ignore_term=True)
    supervisor.send_signal(signal.SIGTERM)
    wait_until(lambda: "run.stopping" in fleet.kinds(task_id), "the run is told to stop")
    assert lives(pid)
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(timeout=PATIENCE) == 0
    assert not lives(pid)
    assert fleet.show(task_id)["state"] == "queued"


def test_keep_agents_hands_them_to_the_next_supervisor(fleet: Fleet) -> None:
    """`down --keep-agents`, then `up`: the same process continues, under one run, with nothing asked to stop."""
    supervisor = fleet.up()
    task_id, pid = hold(fleet, "a")
    fleet.cli("down", "--keep-agents")
    assert supervisor.wait(timeout=PATIENCE) == 0
    assert lives(pid)
    fleet.up()
    (fleet.root / "go-a").touch()
    task = fleet.wait_state(task_id, "completed")
    assert [run["outcome"] for run in task["runs"]] == ["completed"]
    assert "run.stopping" not in fleet.kinds(task_id)


def test_an_orphaned_keeper_ends_its_agent_and_the_task_is_taken_again(fleet: Fleet) -> None:
    """R-TERM-10: no supervisor for `orphan_grace`: the keeper ends the tree alone; the outcome is `lost`."""
    fleet.env["HOLDFAST_HEALTH_ORPHAN_GRACE"] = "5s"
    supervisor = fleet.up()
    task_id, pid = hold(fleet, "a")
    fleet.kill_supervisor(supervisor)
    wait_until(lambda: not lives(pid), "the orphaned agent is ended by its keeper")
    wait_until(lambda: processes_of(fleet.home) == {}, "the keeper is gone too")
    (fleet.root / "go-a").touch()
    fleet.up()
    task = fleet.wait_state(task_id, "completed")
    assert [run["outcome"] for run in task["runs"]] == ["lost", "completed"]


@pytest.mark.parametrize(("cgroups", "proof"), [("auto", "cgroup"), ("off", "outer-subreaper")])
def test_a_killed_keeper_is_lost_not_success_and_its_tree_dies(fleet: Fleet, cgroups: str, proof: str) -> None:
    """The supervisor ends what the keeper left (by cgroup, or as the outer subreaper), proves it, runs it again."""
    if cgroups == "auto" and not has_cgroups():
        pytest.skip("NOT RUN: this user may make no cgroups here")
    fleet.up(env={"HOLDFAST_PROCESSES_CGROUP": cgroups})
    reached = fleet.root / "at-work"
    task_id = fleet.add_scenario(
        {"run": 1, "spawn": {"kind": "daemon"}},
        {"run": 1, "spawn": {"kind": "ignore-term", "write": "child.pid"}},
        {"run": 1, "touch": str(reached)},
        {"run": 1, "hang": True},
    )
    wait_until(reached.exists, "the agent hangs")
    task = fleet.show(task_id)
    run_id = task["runs"][0]["id"]
    child = int((fleet.root / task["workspace"]["path"] / "child.pid").read_text())
    keeper = next(pid for pid, command in processes_of(fleet.home).items() if "keeper.py" in command)
    os.kill(keeper, signal.SIGKILL)
    done = fleet.wait_state(task_id, "completed")
    assert [run["outcome"] for run in done["runs"]] == ["lost", "completed"]
    assert not lives(child)
    assert proof in (fleet.home / "runs" / run_id / "empty.json").read_text()
    fleet.wait_clean()
    fleet.doctor()


def test_a_keeper_killed_while_no_supervisor_lives_freezes_the_task(fleet: Fleet) -> None:
    """`unknown` never requeues, cleans or stays silent; an operator's word ends it. (With cgroups there is a proof.)"""
    fleet.env["HOLDFAST_PROCESSES_CGROUP"] = "off"
    supervisor = fleet.up()
    task_id, pid = hold(fleet, "a")
    keeper = next(pid for pid, command in processes_of(fleet.home).items() if "keeper.py" in command)
    fleet.kill_supervisor(supervisor)
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not lives(pid), "the agent dies with its keeper (PDEATHSIG)")
    fleet.up()
    wait_until(lambda: "task.frozen" in fleet.kinds(task_id), "the task is frozen")
    task = fleet.show(task_id)
    assert (task["state"], task["workspace"]["state"], len(task["runs"])) == ("running", "ready", 1)
    assert [alert["task"] for alert in fleet.json("alerts")] == [task_id]
    assert "lost its keeper" in fleet.cli("doctor", code=1).stdout
    fleet.cli("cancel", task_id, code=4)
    assert "Cancelled" in fleet.cli("cancel", task_id, "--assume-dead").stdout
    assert fleet.shown(task_id)["spent_in_all"]["cost_usd"] == 0.5, "what it said that it used was used"
    fleet.wait_clean()
    assert fleet.json("salvage", "list")[0]["files"] == 1
    fleet.doctor()


def test_a_stopped_supervisor_is_named_as_such(fleet: Fleet) -> None:
    """Nothing silent: who holds the home, that it does nothing, and what to type."""
    supervisor = fleet.up()
    supervisor.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{supervisor.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it is stopped")
    refused = fleet.cli("up", code=4).stderr
    assert f"kill -CONT {supervisor.pid}" in refused
    assert "is stopped" in refused
    supervisor.send_signal(signal.SIGCONT)


def test_a_second_supervisor_on_one_home_never_starts(fleet: Fleet) -> None:
    """One supervisor per home: a second `up` names the one that runs, and a unit of systemd, which must own its
    supervisor, is refused with a conflict."""
    supervisor = fleet.up()
    assert f"Already running, pid {supervisor.pid}." in fleet.cli("up").stdout
    as_unit = 'SYSTEMD_EXEC_PID=$$ exec "$0" -m holdfast up'
    refused = subprocess.run(
        ["sh", "-c", as_unit, sys.executable], env=fleet.env, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 4, refused.stderr
    assert str(supervisor.pid) in refused.stderr


def test_an_old_down_does_not_stop_the_next_supervisor(fleet: Fleet) -> None:
    """A `down` whose supervisor died before it heard it is over with it."""
    from holdfast.api.commands import Commands

    supervisor = fleet.up()
    fleet.kill_supervisor(supervisor)
    Commands(str(fleet.home)).down("graceful")  # what the CLI records when it still saw the supervisor
    task_id = fleet.add("x", command=("true",))
    fleet.up()
    fleet.wait_state(task_id, "completed")


def test_an_idle_supervisor_hears_the_doorbell_at_once(fleet: Fleet) -> None:
    """Commands arrive by the doorbell, not by the slow poll (5 s), even while it counts towards its idle exit."""
    fleet.up("--idle-exit", "60s")
    wait_until(lambda: any(event["kind"] == "sweep.completed" for event in fleet.events()), "it has started")
    for _ in range(3):
        task_id = fleet.add("quick", "--workspace", "none", command=("true",))
        fleet.wait_state(task_id, "completed")
        fleet.wait_clean()
        at = {event["kind"]: event["at"] for event in fleet.events(task_id)}
        assert at["task.claimed"] - at["task.queued"] < SLOW_POLL - 1.0


def test_idle_exit_ends_a_supervisor_without_work(fleet: Fleet) -> None:
    supervisor = fleet.up("--idle-exit", "100ms")
    assert supervisor.wait(timeout=PATIENCE) == 0
    assert fleet.supervisor_pid() is None


def test_a_supervisor_whose_lock_was_removed_stops_by_itself(fleet: Fleet) -> None:
    """Nothing run twice: without the file a second one could start, so the first ends its agents and goes."""
    working = fleet.root / "working"
    task_id = fleet.add("work", "--workspace", "none", command=("sh", "-c", f"touch {working}; exec sleep 1000"))
    supervisor = fleet.up("--agents", 1)
    wait_until(working.exists, "the agent works")
    (fleet.home / "supervisor.lock").unlink()
    assert supervisor.wait(timeout=60) is not None
    wait_until(lambda: processes_of(fleet.home) == {}, "its agent is ended")
    assert "lock of this home was removed" in fleet.log()
    assert fleet.show(task_id)["state"] in ("queued", "running")  # the next one takes it over


def test_a_supervisor_whose_home_vanished_stops_by_itself(fleet: Fleet) -> None:
    """Nothing silent: a deleted home does not leave a supervisor or an agent behind."""
    working = fleet.root / "working"
    fleet.add("work", "--workspace", "none", command=("sh", "-c", f"touch {working}; exec sleep 1000"))
    supervisor = fleet.up("--agents", 1)
    wait_until(working.exists, "the agent works")
    shutil.rmtree(fleet.home)
    assert supervisor.wait(timeout=60) is not None
    wait_until(lambda: processes_of(fleet.home) == {}, "its agent is ended")


def test_a_stop_that_could_not_be_recorded_is_sent_again(fleet: Fleet) -> None:
    """Nothing silent: the disk fails once while `down` is recorded; the agent is ended all the same."""
    supervisor = fleet.up(env={"HOLDFAST_FAULT": "tx.run.stopping:1:ENOSPC"})
    task_id, pid = hold(fleet, "a")
    fleet.cli("down")
    assert supervisor.wait(timeout=PATIENCE) == 0
    assert not lives(pid)
    assert fleet.show(task_id)["state"] == "queued"


def test_a_stop_that_was_recorded_but_not_sent_is_sent_by_the_next(fleet: Fleet) -> None:
    """R-TERM-08: killed between the record and the signal; the next supervisor does what the record says."""
    supervisor = fleet.up(env={"HOLDFAST_FAULT": "keeper.stop:1:kill"})
    task_id, pid = hold(fleet, "a")
    fleet.cli("down", code=None)
    assert supervisor.wait(timeout=PATIENCE) == -signal.SIGKILL
    assert lives(pid)
    fleet.up()
    wait_until(lambda: not lives(pid), "the agent is ended")
    assert fleet.show(task_id)["runs"][0]["outcome"] in (None, "stopped")
    wait_until(lambda: len(fleet.show(task_id)["runs"]) == 2, "the task continues")
    assert fleet.show(task_id)["runs"][0]["outcome"] == "stopped"


def test_a_settlement_that_fails_for_good_does_not_keep_us(fleet: Fleet) -> None:
    """A step that fails again and again is left to the next supervisor, as after a crash; it settles the task."""
    broken = ",".join(f"worktree.commit:{hit}:EIO" for hit in range(1, 40))
    supervisor = fleet.up(env={"HOLDFAST_FAULT": broken})
    task = fleet.add("work", command=("sh", "-c", "echo work > work"))
    wait_until(lambda: "attempt.trouble" in fleet.kinds(task), "a step fails")
    supervisor.terminate()
    assert supervisor.wait(timeout=60) == 0
    assert fleet.up("--idle-exit", "0s").wait(timeout=60) == 0
    assert fleet.show(task)["state"] == "completed"
    assert fleet.file_on_branch(f"holdfast/{task}", "work") == "work"


def test_run_does_not_restart_a_dying_supervisor_for_ever(fleet: Fleet) -> None:
    """A supervisor that dies at each start is started a few times. Then `run` tells why and ends, the task is kept."""
    env = {"HOLDFAST_FAULT": "tx.workspace.retry_at_once:1:kill"}
    told = fleet.cli("run", "work", "--", "true", env=env, code=69, timeout=90).stderr
    assert "The supervisor ended" in told
    assert "`holdfast up` in a terminal shows why" in told
    assert [task["state"] for task in fleet.json("ps")] == ["queued"]
    fleet.cli("up", "--idle-exit", "0s")
    assert [task["state"] for task in fleet.json("ps", "--all")] == ["completed"]


def test_detached_starts_tell_the_truth(fleet: Fleet) -> None:
    """Of several starts at once one wins, the others say whose it is. A supervisor that is killed at its start is told
    so, not by whatever line an earlier one left in the log."""
    starts = [fleet.start("up", "--detach", "--idle-exit", "60s") for _ in range(4)]
    said = [start.communicate(timeout=PATIENCE) for start in starts]
    assert [start.returncode for start in starts] == [0, 0, 0, 0], said
    pid = fleet.supervisor_pid()
    assert sum(out.startswith(f"Supervisor started, pid {pid};".encode()) for out, _err in said) == 1, said
    assert sum(f"Already running, pid {pid}.".encode() in out for out, _err in said) == 3, said
    fleet.cli("down")
    told = fleet.cli("up", "--detach", env={"HOLDFAST_FAULT": "tx.operation.forget:1:kill"}, code=69).stderr
    assert "The supervisor ended at once: it was killed by SIGKILL" in told
