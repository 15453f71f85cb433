"""A pid or a boot id that is not what it was: a stranger is never signalled, and the task settles or is frozen."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fleet import lives, wait_until
from tests.hostile import reuse
from tests.hostile.stage import Stage, why_no_cgroups
from tests.sampling import sampled

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--")
PROBE = "import pathlib; pathlib.Path('/proc/sys/kernel/ns_last_pid').write_text('100')"


def why_no_namespace() -> str:
    if shutil.which(NAMESPACE[0]) is None:
        return "there is no `unshare` (util-linux)"
    done = subprocess.run([*NAMESPACE, sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode != 0 else ""


@pytest.mark.parametrize("cgroup", sampled(["off", "auto"], keep=1))
@pytest.mark.parametrize("case", sorted(reuse.CASES))
def test_a_pid_that_is_used_again(tmp_path: Path, case: str, cgroup: str) -> None:
    """R-TERM-10: between the record and the kill the kernel gives the pid to somebody else: (boot id, pid, start time)
    through an open pidfd tells them apart."""
    if why := why_no_namespace():
        pytest.skip(f"NOT RUN, pids cannot be forced: {why}")
    if cgroup == "auto" and (why := why_no_cgroups()):
        pytest.skip(f"NOT RUN in the cgroup tier: {why}")
    words = [*NAMESPACE, sys.executable, reuse.__file__, case, str(tmp_path), cgroup]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "unharmed" in done.stdout


@pytest.mark.parametrize("is_old", [True, False], ids=["written before the boot", "forged in this boot"])
def test_a_record_of_another_boot(plain_stage: Stage, is_old: bool) -> None:
    """R-TERM-10: after a reboot keeper and agent are dead, whatever has their pids (even with the same start time):
    lost, run again, and the strangers under these pids live. A record that was changed in this boot proves nothing."""
    fleet = plain_stage.fleet
    fleet.env["HOLDFAST_PROCESSES_CGROUP"] = "off"
    supervisor = fleet.up()
    go = fleet.root / "go"
    task_id = fleet.add("wait", "--workspace", "none", command=("sh", "-c", f"until test -e {go}; do sleep 0.1; done"))
    run = wait_until(lambda: [r for r in fleet.show(task_id)["runs"] if r["state"] == "started"], "the agent runs")[0]
    fleet.kill_supervisor(supervisor)
    os.kill(plain_stage.keeper_of(run["id"]), signal.SIGKILL)
    wait_until(lambda: not lives(run["pid"]), "the agent dies with its keeper")
    strangers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    try:
        record = plain_stage.record(run["id"], "pid.json")
        record["boot_id"] = "5d0f4a6e-0000-4000-8000-000000000000"
        for name, stranger in zip(("keeper", "agent"), strangers, strict=True):
            start = Path(f"/proc/{stranger.pid}/stat").read_bytes().rpartition(b")")[2].split()[19]
            record[name] = {"pid": stranger.pid, "start": int(start)}
        (fleet.home / "runs" / run["id"] / "pid.json").write_text(json.dumps(record))
        go.touch()
        # The kernel dates a change of a file. Tests cannot, but they can move our idea of when the machine started.
        fleet.up(env={"HOLDFAST_CLOCK_OFFSET": str(30 * 86400)} if is_old else {})
        if is_old:
            task = fleet.wait_state(task_id, "completed")
            assert [run["outcome"] for run in task["runs"]] == ["lost", "completed"]
            assert "restarted" in task["runs"][0]["reason"]
        else:
            wait_until(lambda: "task.frozen" in fleet.kinds(task_id), "it is frozen")
            fleet.cli("cancel", task_id, "--assume-dead")
        assert [stranger.poll() for stranger in strangers] == [None, None]
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait()
