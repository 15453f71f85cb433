"""The supervisor killed at every durable step and outside effect, then started again: nothing lost, leaked or repeated.

The complete matrix, with every point, every hit, other faults and double faults, has its own runner (docs/faults.md).
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.fleet import Fleet, processes_of
from tests.sampling import sampled

from holdfast.api.queries import Queries

# One of each kind. tests/faults/test_matrix.py goes to every point, in processes forked from a warm interpreter; here
# the whole way is walked once: the installed command, its environment variables, a fresh interpreter.
POINTS = [
    "worktree.added",
    "process.spawned",
    "tx.task.settle",
    "tx.task.claim",
    "tx.run.ended",
    "salvage.saved",
    "trash.renamed",
    "writer.committed",
]


def play(fleet: Fleet) -> dict[str, str]:
    """One task for each kind of ending; their ids by the state they must end in."""
    return {
        fleet.add_scenario(
            {"write": {"path": "done.txt", "text": "done\n"}},
            {"commit": "Do it"},
            {"write": {"path": "left.txt", "text": "left\n"}},
        ): "completed",
        fleet.add_scenario({"write": {"path": "lost?.txt", "text": "no\n"}}, {"exit": 1}): "failed",
        fleet.add_scenario({"run": 1, "limit": {"kind": "usage", "for": "1ms"}}, {"print": "on"}): "completed",
        fleet.add_scenario(
            {"write": {"path": "result.txt", "text": "r\n"}}, options=("--workspace", "directory")
        ): "completed",
    }


def finish(fleet: Fleet) -> None:
    supervisor = fleet.up("--agents", 2, "--idle-exit", "0s")
    assert supervisor.wait(timeout=90) == 0, fleet.log()


def check(fleet: Fleet, expected: dict[str, str]) -> None:
    """The promises, from what is really there."""
    queries = Queries(str(fleet.home))
    for task_id, state in expected.items():
        task = queries.task(task_id)
        assert task["state"] == state, task
        kinds = Counter(event["kind"] for event in queries.events(task_id=task_id))
        assert kinds["task.completed"] + kinds["task.failed"] == 1
        counted = [run["outcome"] for run in task["runs"] if run["outcome"] not in ("lost", "usage_limited")]
        assert counted == [state], task["runs"]
        fences = [e["data"]["fence"] for e in queries.events(task_id=task_id) if "fence" in e["data"]]
        assert fences == sorted(fences)
    success, failure, _limit, directory = expected
    branch = str(queries.task(success)["branch"])
    assert fleet.file_on_branch(branch, "done.txt") == "done"
    assert fleet.file_on_branch(branch, "left.txt") == "left"
    assert fleet.branches() == [branch]
    for task_id, name, content in ((failure, "lost?.txt", "no"), (directory, "result.txt", "r")):
        fleet.cli("salvage", "restore", task_id, "--branch", f"back-{task_id}")
        assert fleet.git("show", f"back-{task_id}:{name}") == content
    assert fleet.worktrees() == []
    assert processes_of(fleet.home) == {}
    assert [path.name for path in (fleet.home / "workspaces").rglob("*")] in ([], [".trash"])
    assert "All well." in fleet.doctor()


@pytest.mark.parametrize("point", sampled(POINTS, keep=3))
def test_killed_at(fleet: Fleet, point: str) -> None:
    """R-TREE-01, R-TERM-10: kill -9 at this point, start again, once more: everything ends once and is clean."""
    expected = play(fleet)
    trace = fleet.root / "trace"
    dying = fleet.up(
        "--agents", 2, "--idle-exit", "0s", env={"HOLDFAST_FAULT": point, "HOLDFAST_FAULT_TRACE": str(trace)}
    )
    assert dying.wait(timeout=90) == -signal.SIGKILL, fleet.log()
    assert [point, "1"] in [line.split(":")[:2] for line in trace.read_text().split()]
    finish(fleet)
    check(fleet, expected)


@pytest.mark.parametrize("point", sampled(["tx.run.started", "tx.task.settle"], keep=1))
@pytest.mark.parametrize("again", sampled(["tx.task.adopt", "tx.store.commit"], keep=1))
def test_killed_again_during_recovery(fleet: Fleet, point: str, again: str) -> None:
    """A crash during the recovery is a crash like any other. Points that the recovery does not reach just end well."""
    expected = play(fleet)
    for fault in (point, again):
        dying = fleet.up("--agents", 2, "--idle-exit", "0s", env={"HOLDFAST_FAULT": fault})
        assert dying.wait(timeout=90) in (0, -signal.SIGKILL), fleet.log()
    finish(fleet)
    check(fleet, expected)


@pytest.mark.parametrize(
    "point",
    sampled(["keeper.recorded", "keeper.finish", "keeper.fork", "keeper.forked", "keeper.leader_ended"], keep=2),
)
def test_keeper_killed_at(fleet: Fleet, tmp_path: Path, point: str) -> None:
    """The keeper killed at each of its steps, every time: never two agents, never an endless loop. Its supervisor's
    environment has the fault; an agent's own environment cannot bring one."""
    count = tmp_path / "count"
    script = ("sh", "-c", f"echo $HOLDFAST_RUN_NUMBER >> {count}")
    seen = tmp_path / "seen"
    fleet.env["HOLDFAST_LOST_MAX"] = "1"
    fleet.env["HOLDFAST_ENV_PASS"] = "*"
    spared = fleet.add("count", "--workspace", "none", command=("sh", "-c", f"env > {seen}"))
    first = fleet.up("--agents", 1, "--idle-exit", "0s", env={"HOLDFAST_FAULT": "nothing.of.it"})
    assert first.wait(timeout=60) == 0, fleet.log()
    queries = Queries(str(fleet.home))
    assert queries.task(spared)["state"] == "completed"  # its supervisor does not carry the fault
    assert "HOLDFAST_FAULT" not in seen.read_text()
    failing = fleet.add("count", "--workspace", "none", command=script)
    supervisor = fleet.up("--agents", 1, "--idle-exit", "0s", env={"HOLDFAST_FAULT": point})
    assert supervisor.wait(timeout=60) == 0, fleet.log()
    task = queries.task(failing)
    outcomes = [run["outcome"] for run in task["runs"]]
    if point in ("keeper.leader_ended", "keeper.finish"):
        assert outcomes == ["completed"]  # the exit record survived its writer
    else:
        assert (task["state"], task["failure_reason"], outcomes) == ("failed", "lost_too_often", ["lost", "lost"])
    assert processes_of(fleet.home) == {}
