"""`holdfast up` on a home that has a supervisor already, and `run` beside `holdfast down`."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.fleet import PATIENCE, Fleet, wait_until

LONG = ("sh", "-c", "until [ -e go ]; do sleep 0.05; done")


def finish(command: subprocess.Popen[bytes], code: int) -> bytes:
    """Wait for its end; what it said on standard error."""
    _out, err = command.communicate(timeout=PATIENCE)
    assert command.returncode == code, err
    return err


def release(fleet: Fleet, task: str) -> None:
    (Path(fleet.show(task)["workspace"]["path"]) / "go").touch()


def begin_run(fleet: Fleet) -> tuple[subprocess.Popen[bytes], str]:
    """A `run` that starts a supervisor and waits for its agent."""
    run = fleet.start("run", "wait for me", "--json", "--", *LONG)
    wait_until(lambda: fleet.home.exists() and fleet.supervisor_pid() is not None, "run has started a supervisor")
    wait_until(lambda: [task for task in fleet.json("ps") if task["state"] == "running"], "the agent runs")
    return run, str(fleet.json("ps")[0]["id"])


@pytest.mark.parametrize("how", [(), ("--detach",)])
def test_up_takes_over_a_supervisor_that_run_started(fleet: Fleet, how: tuple[str, ...]) -> None:
    """Issue 19, 10: it stays, starts as many agents as `up` asks for, and `up` says so. Again: nothing differs."""
    run, _task = begin_run(fleet)
    pid = fleet.supervisor_pid()
    waiting = fleet.queue("sleep 600")
    fleet.json("ps")
    told = fleet.cli("up", *how, "--agents", 7)
    assert f"Took over the running supervisor, pid {pid}." in told.stdout
    assert "It would have ended after 1m without work. Now it stays until `holdfast down`." in told.stdout
    assert "It now runs 7 agents at once, not 4." in told.stdout
    again = fleet.cli("up", *how, "--agents", 7)
    assert again.stdout == f"Already running, pid {pid}. It runs 7 agents at once.\n"
    assert fleet.cli("up").stdout == again.stdout, "the same words with and without --detach"
    assert fleet.supervisor_pid() == pid
    assert [event["data"]["agents"] for event in fleet.events() if event["kind"] == "host.taken-over"] == [[4, 7]]
    more = [fleet.queue("sleep 600") for _ in range(4)]
    for task in (waiting, *more):
        fleet.wait_state(task, "running")
    fleet.cli("down", "--now")
    finish(run, 69)


def test_a_supervisor_that_was_taken_over_does_not_end_when_idle(fleet: Fleet) -> None:
    """`--idle-exit 0s` while an agent works: taken over before its end, so the next task is done too."""
    task = fleet.add("wait", command=LONG)
    supervisor = fleet.up("--idle-exit", "0s", "--agents", 2)
    fleet.wait_state(task, "running")
    assert "Now it ends after 1h" in fleet.cli("up", "--idle-exit", "1h").stdout
    again = fleet.cli("up", "--idle-exit", "1h", "--agents", 3).stdout
    assert "It now runs 3 agents at once, not 2." in again
    assert "It ends after 1h" in again
    fleet.cli("up")
    release(fleet, task)
    wait_until(lambda: fleet.show(task)["workspace"]["state"] in ("gone", "preserved"), "all is cleaned up")
    fleet.wait_state(fleet.queue("true"), "completed")
    assert supervisor.poll() is None


def test_up_beside_a_real_supervisor(fleet: Fleet) -> None:
    """Nothing differs: exit 0. Another number of agents is taken over. An idle exit is not: the command is named."""
    supervisor = fleet.up("--agents", 1)
    pid = supervisor.pid
    assert fleet.cli("up", "--detach").stdout == f"Already running, pid {pid}. It runs 1 agents at once.\n"
    refused = fleet.cli("up", "--agents", 3, "--idle-exit", "60s", code=4).stderr
    assert "Nothing was changed." in refused
    assert "`holdfast down`, then `holdfast up --idle-exit 60s`" in refused
    assert "It now runs 2 agents at once, not 1." in fleet.cli("up", "--agents", 2).stdout
    both = [fleet.queue("sleep 600") for _ in range(2)]
    for task in both:
        fleet.wait_state(task, "running")
    config = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("agents = 5\n")  # as with the flag of the first `up`: a flag overrides the file
    supervisor.send_signal(signal.SIGHUP)
    wait_until(lambda: any(event["kind"] == "config.reloaded" for event in fleet.events()), "the file is read again")
    assert "It runs 2 agents at once." in fleet.cli("up").stdout
    assert "agents" in fleet.cli("up", "--agents", 0, code=2).stderr


@pytest.mark.parametrize("point", ["tx.request.ask", "tx.request.answer"])
def test_a_supervisor_that_dies_while_it_is_taken_over(fleet: Fleet, point: str) -> None:
    """Killed before its answer: `up` finds it gone and starts one, which the old request does not change."""
    first = fleet.up("--idle-exit", "60s", env={"HOLDFAST_FAULT": f"{point}:1:kill"})
    env = {"HOLDFAST_FAULT": f"{point}:1:kill"} if point == "tx.request.ask" else None
    if env:  # `up` itself dies: nothing is asked
        fleet.cli("up", "--detach", code=None, env=env)
        assert fleet.supervisor_pid() == first.pid
        assert "Took over" in fleet.cli("up").stdout
        return
    told = fleet.cli("up", "--detach", "--agents", 3).stdout
    assert first.wait(PATIENCE) == -signal.SIGKILL
    pid = fleet.supervisor_pid()
    assert pid not in (None, first.pid)
    assert f"Supervisor started, pid {pid}" in told
    assert fleet.cli("up").stdout == f"Already running, pid {pid}. It runs 3 agents at once.\n"
    fleet.cli("down")


def test_up_waits_for_a_supervisor_that_is_stopping(fleet: Fleet) -> None:
    """`down` was asked for: `up` waits for the end and starts another one."""
    first = fleet.up()
    stubborn = ("sh", "-c", "trap '' TERM; touch ready; while :; do sleep 0.05; done")
    task = fleet.add("stay", command=stubborn, env={"HOLDFAST_HEALTH_GRACE": "2s"})
    fleet.wait_state(task, "running")
    down = fleet.start("down")
    wait_until(lambda: "run.stopping" in fleet.kinds(task) or first.poll() is not None, "it is stopping")
    told = fleet.cli("up", "--detach").stdout
    assert first.wait(PATIENCE) == 0
    finish(down, 0)
    assert f"Supervisor started, pid {fleet.supervisor_pid()}" in told
    fleet.cli("down", "--now")


@pytest.mark.parametrize("how", ["down", "signal"])
def test_run_does_not_start_a_supervisor_that_a_person_stopped(fleet: Fleet, how: str) -> None:
    """Issue 19, 10: `run` says so, names `holdfast up`, and the task is kept."""
    run, task = begin_run(fleet)
    pid = fleet.supervisor_pid()
    assert pid is not None
    if how == "down":
        fleet.cli("down")
    else:
        os.kill(pid, signal.SIGTERM)
    err = finish(run, 69)
    assert b"`holdfast down`" in err if how == "down" else b"a signal" in err
    assert f"Task {task} is kept as it is.".encode() in err
    assert b"`holdfast up`" in err
    assert fleet.supervisor_pid() is None
    assert fleet.show(task)["state"] == "queued"


def test_run_starts_another_one_for_a_supervisor_that_died(fleet: Fleet) -> None:
    """Nobody stopped it: the same `run` continues."""
    run, task = begin_run(fleet)
    pid = fleet.supervisor_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: fleet.supervisor_pid() not in (None, pid), "another one was started")
    fleet.wait_state(task, "running")
    release(fleet, task)
    finish(run, 0)
    fleet.cli("down", "--now")
