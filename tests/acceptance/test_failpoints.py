"""The supervisor killed at every durable step and outside effect, then started again: nothing lost, leaked or repeated.

One case per point (its first hit). The complete matrix, with every hit, other faults and double faults, has its own
runner; this is the part that every change has to pass.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.fleet import Fleet, processes_of

from holdfast.api.queries import Queries

# Every point that `play` reaches, in the order of a life. test_the_list_is_complete keeps it true.
POINTS = """
    backup.rename tx.store.commit tx.writer.commit
    tx.task.claim tx.task.set_base tx.workspace.intend workspace.marker worktree.add worktree.added worktree.checkout
    worktree.ready directory.make directory.made tx.workspace.ready
    tx.run.intend rundir.made rundir.intent keeper.locked process.spawn process.spawned tx.run.started tx.run.ended
    worktree.commit worktree.committed shadow.clone shadow.made salvage.ref salvage.saved tx.workspace.salvaged
    tx.task.settle tx.workspace.dispose rundir.forgotten tx.task.resume
    trash.rename trash.renamed admin.drop admin.dropped branch.delete branch.deleted tx.task.forget_branch
    tx.workspace.trashed trash.deleted tx.workspace.gone
""".split()  # noqa: SIM905 - forty names read better as a paragraph than as forty lines
# Reached only with an earlier supervisor's tasks to take over.
RECOVERY_POINTS = ["tx.task.adopt"]


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
    branch = queries.task(success)["branch"]
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


def test_the_list_is_complete(fleet: Fleet) -> None:
    """Each case really reaches its point, and no point is forgotten."""
    trace = fleet.root / "trace"
    expected = play(fleet)
    fleet.env["HOLDFAST_FAULT_TRACE"] = str(trace)
    finish(fleet)
    del fleet.env["HOLDFAST_FAULT_TRACE"]
    check(fleet, expected)
    assert {line.split(":")[0] for line in trace.read_text().split()} == set(POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(fleet: Fleet, point: str) -> None:
    """R-TREE-01, R-TERM-10: kill -9 at this point, start again, once more: everything ends once and is clean."""
    expected = play(fleet)
    trace = fleet.root / "trace"
    dying = fleet.up(
        "--agents", 2, "--idle-exit", "0s", env={"HOLDFAST_FAULT": point, "HOLDFAST_FAULT_TRACE": str(trace)}
    )
    assert dying.wait(timeout=90) == -signal.SIGKILL, fleet.log()
    assert f"{point}:1" in trace.read_text().split()
    finish(fleet)
    check(fleet, expected)


@pytest.mark.parametrize("point", ["tx.run.started", "tx.run.ended", "tx.task.settle", "trash.renamed"])
@pytest.mark.parametrize("again", [*RECOVERY_POINTS, "tx.store.commit"])
def test_killed_again_during_recovery(fleet: Fleet, point: str, again: str) -> None:
    """A crash during the recovery is a crash like any other. Points that the recovery does not reach just end well."""
    expected = play(fleet)
    for fault in (point, again):
        dying = fleet.up("--agents", 2, "--idle-exit", "0s", env={"HOLDFAST_FAULT": fault})
        assert dying.wait(timeout=90) in (0, -signal.SIGKILL), fleet.log()
    finish(fleet)
    check(fleet, expected)


@pytest.mark.parametrize(
    "point", ["before-fork", "after-fork", "after-pid-record", "after-exit-record", "before-empty-record"]
)
def test_keeper_killed_at(fleet: Fleet, tmp_path: Path, point: str) -> None:
    """The keeper killed at each of its steps: never two agents, never a lost task (its supervisor lives)."""
    count = tmp_path / "count"
    task_id = fleet.add(
        "count", "--workspace", "none", command=("sh", "-c", f"echo $HOLDFAST_RUN_NUMBER >> {count}; sleep 0.2")
    )
    fleet.env["HOLDFAST_LOST_MAX"] = "1"
    fleet.env["HOLDFAST_ENV_PASS"] = "HOLDFAST_KEEPER_FAULT"
    failing = fleet.add("count", "--workspace", "none", command=("sh", "-c", f"echo $HOLDFAST_RUN_NUMBER >> {count}"))
    supervisor = fleet.up("--agents", 1, "--idle-exit", "0s", env={"HOLDFAST_KEEPER_FAULT": point})
    assert supervisor.wait(timeout=60) == 0, fleet.log()
    queries = Queries(str(fleet.home))
    assert queries.task(task_id)["state"] == "completed"  # its environment does not carry the fault
    task = queries.task(failing)
    outcomes = [run["outcome"] for run in task["runs"]]
    if point in ("after-exit-record", "before-empty-record"):
        assert outcomes == ["completed"]  # the exit record survived its writer
    else:
        assert (task["state"], task["failure_reason"], outcomes) == ("failed", "lost_too_often", ["lost", "lost"])
    assert processes_of(fleet.home) == {}
