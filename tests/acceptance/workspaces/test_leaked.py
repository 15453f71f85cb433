"""A crash storm's leftovers: a start claims at once, and cleans beside that. The goal is HOLDFAST_LEAKED_COUNT=1000."""

from __future__ import annotations

import fcntl
import os
import resource
import time

from tests.fleet import Fleet, in_company, wait_until
from tests.leaks import leak_many

from holdfast.workspaces.names import REPO_LOCK

COUNT = int(os.environ.get("HOLDFAST_LEAKED_COUNT", "30"))
GOAL = 5.0  # seconds from the start of the process to the claim, on a machine of its own


def test_a_start_with_many_leaked_worktrees(fleet: Fleet) -> None:
    """R-TREE-08: claimed at once, while no tree can be removed yet; every leaked tree is gone later, its work saved;
    foreign ones are untouched. More leftovers than the settings allow are a warning, at once and at the end."""
    leaked = leak_many(fleet, COUNT)
    waiting = fleet.add("wait", "--workspace", "directory", command=("true",))
    many = {
        "HOLDFAST_SWEEP_WARN_ABOVE": str(COUNT - 1),
        "HOLDFAST_SWEEP_SLOW_ABOVE": str(COUNT if COUNT <= 100 else 100),
    }
    with (fleet.repo / ".git" / REPO_LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the sweep's long part cannot end before this is released
        began = time.time()
        supervisor = fleet.up("--idle-exit", "0s", env=many)
        fleet.wait_state(waiting, "completed")
        assert not [event for event in fleet.events() if event["kind"] == "sweep.completed"]
    claimed = next(event["at"] for event in fleet.events(waiting) if event["kind"] == "task.claimed")
    assert claimed - began < in_company(GOAL)
    gone = wait_until(lambda: ended(supervisor.pid), "it has nothing left to do", 60 + COUNT)
    assert gone is not None
    status, used = gone
    supervisor.returncode = os.waitstatus_to_exitcode(status)
    assert supervisor.returncode == 0, fleet.log()
    told = {event["kind"]: event for event in fleet.events() if event["component"] == "sweep"}
    done = told["sweep.completed"]["data"]
    print(
        f"\n{COUNT} leaked: claimed after {claimed - began:.2f} s, gone after {time.time() - began:.1f} s, "
        f"{used.ru_utime + used.ru_stime:.1f} s of CPU, {done}"
    )
    assert (done["swept_count"], done["failed_count"], done["healed"]) == (COUNT, 0, len(leaked.lost)), done
    assert len(done["foreign"]) == len(leaked.foreign)
    assert "a crash storm is likely" in told["sweep.backlog"]["message"]
    assert told["sweep.backlog"]["level"] == told["sweep.completed"]["level"] == "warning"
    assert ("slow" in told["sweep.completed"]["message"]) == (COUNT > 100)
    folder = leaked.foreign[0].parent
    assert {path.name for path in folder.iterdir()} == {path.name for path in leaked.foreign}
    assert sorted(fleet.worktrees()) == sorted(map(str, leaked.foreign))
    assert fleet.branches() == []
    assert {row["task"] for row in fleet.json("salvage", "list")} == set(leaked.dirty)
    assert "problem" not in fleet.doctor()


def ended(pid: int) -> tuple[int, resource.struct_rusage] | None:
    found, status, used = os.wait4(pid, os.WNOHANG)
    return (status, used) if found else None
