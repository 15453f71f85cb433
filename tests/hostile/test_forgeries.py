"""Agents write with the rights of our user: nothing that they put into a run directory proves or disarms anything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fleet import Fleet, lives, wait_until
from tests.sampling import sampled

OFF = {"HOLDFAST_PROCESSES_CGROUP": "off"}


def start(fleet: Fleet, script: str, *options: object) -> str:
    return fleet.add("x", "--workspace", "directory", *options, command=("sh", "-c", script))


def pid_in(path: Path) -> int:
    return int(wait_until(lambda: path.exists() and path.read_text().strip(), f"{path.name} is written"))


@pytest.mark.parametrize("tier", ["auto", "off"])
def test_a_forged_proof_releases_nothing(fleet: Fleet, tier: str) -> None:
    """R-TERM-10: it writes `empty.json` itself and kills its keeper. What it left is ended before anything else."""
    note = fleet.root / "daemon"
    fleet.env["HOLDFAST_LOST_MAX"] = "0"
    fleet.up(env={"HOLDFAST_PROCESSES_CGROUP": tier})
    script = (
        f"setsid sleep 600 & echo $! > {note}; cd $HOLDFAST_RUN_DIR; echo '{{}}' > empty.json; kill -9 $PPID; sleep 60"
    )
    task = fleet.wait_state(start(fleet, script), "failed")
    assert not lives(pid_in(note))
    assert [run["outcome"] for run in task["runs"]] == ["lost"]


def test_forged_records_do_not_hide_a_living_keeper(fleet: Fleet) -> None:
    """R-TERM-10: a dead keeper in pid.json and a proof beside it, but the real one holds the lock: no second agent."""
    ran, go = fleet.root / "ran", fleet.root / "go"
    supervisor = fleet.up()
    task = start(fleet, f"echo $$ >> {ran}; until [ -e {go} ]; do sleep 0.1; done; echo done")
    agent = pid_in(ran)
    fleet.kill_supervisor(supervisor)
    folder = fleet.home / "runs" / fleet.show(task)["runs"][0]["id"]
    record = json.loads((folder / "pid.json").read_text())
    record["keeper"]["start"] = 1
    (folder / "pid.json").write_text(json.dumps(record))
    (folder / "empty.json").write_text("{}")
    fleet.up()
    wait_until(lambda: "task.adopted" in fleet.kinds(task), "it is adopted")
    assert lives(agent)
    go.touch()
    fleet.wait_state(task, "completed")
    assert len(ran.read_text().split()) == 1


@pytest.mark.parametrize(
    "obstacle", ["mkfifo exit.json.room", "mkdir exit.json.room", "mkfifo exit.json", "mkdir exit.json"]
)
def test_an_obstacle_does_not_disarm_the_keeper(fleet: Fleet, obstacle: str) -> None:
    """R-TERM-05, R-TERM-06: whatever stands where a record belongs, the ladder continues and the record is written."""
    note = fleet.root / "daemon"
    fleet.up()
    script = f"setsid sleep 600 & echo $! > {note}; cd $HOLDFAST_RUN_DIR; rm -f exit.json.room; {obstacle}; exit 0"
    task = fleet.wait_state(start(fleet, script), "completed")
    assert not lives(pid_in(note))
    assert [run["outcome"] for run in task["runs"]] == ["completed"]


@pytest.mark.parametrize(
    "forged",
    sampled(
        [
            {"cause": "exec_failed", "code": None, "signal": None, "detail": "half \ud800, none \0"},
            {"cause": "exited", "code": "one", "signal": None, "detail": ""},
            {"cause": "exited", "code": None, "signal": [9], "detail": ""},
        ],
        keep=1,
    ),
    ids=["words that no store holds", "a code that is no number", "a signal that is none"],
)
def test_a_forged_ending_is_told_or_is_none(fleet: Fleet, forged: dict[str, object]) -> None:
    """R-TERM-09: its keeper is killed and the record of its end is its own. Found by `fuzz:records`: half a character
    in it could not be stored, and the run was never settled."""
    fleet.env["HOLDFAST_LOST_MAX"] = "0"
    fleet.up(env=OFF)
    (fleet.root / "forged.json").write_text(json.dumps(forged))
    script = f"cp {fleet.root}/forged.json $HOLDFAST_RUN_DIR/exit.json; kill -9 $PPID; sleep 600"
    task = fleet.wait_state(start(fleet, script), "failed")
    assert len(task["runs"]) == 1
    assert "attempt.trouble" not in fleet.kinds(task["id"])
    assert "Traceback" not in fleet.log()


def test_a_child_that_was_there_before_us_lives(fleet: Fleet) -> None:
    """R-TERM-10: `sh -c 'daemon & exec holdfast up'`: strays are ended, a stranger's process is not."""
    note = fleet.root / "stranger"
    words = f"sleep 600 & echo $! > {note}; exec {sys.executable} -m holdfast up"
    with (fleet.root / "supervisor.log").open("ab") as log:
        outer = subprocess.Popen(
            ["sh", "-c", words], cwd=fleet.root, env=fleet.env | OFF, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    stranger = pid_in(note)
    try:
        wait_until(fleet.supervisor_pid, "the supervisor is registered")
        ran = fleet.root / "ran"
        task = start(fleet, f"[ -e {ran} ] && exit 0; setsid sleep 600 & echo $! > {ran}; kill -9 $PPID; sleep 60")
        fleet.wait_state(task, "completed")
        assert not lives(pid_in(ran))
        assert lives(stranger)
        outer.send_signal(signal.SIGTERM)
        assert outer.wait(timeout=60) == 0
        assert fleet.supervisor_pid() is None
        assert lives(stranger)
    finally:
        os.kill(stranger, signal.SIGKILL)
        if outer.poll() is None:
            outer.kill()
            outer.wait()
