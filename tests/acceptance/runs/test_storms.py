"""Storms: the supervisor killed again and again, many clients at once."""

from __future__ import annotations

import os
import random
import subprocess
from collections import Counter

import pytest
from tests.fleet import Fleet, processes_of, wait_until
from tests.sampling import amount

from holdfast.api.queries import Queries

TASKS = KILLS = amount(12, in_all=20)
ADDS = amount(30, in_all=200)


@pytest.mark.slow
def test_kills_of_the_supervisor_lose_nothing_and_repeat_nothing(fleet: Fleet) -> None:
    """R-TERM-10, R-TREE-01: a dozen tasks (20 in `make test-all`), kill -9 at as many random moments: all end exactly
    once, nothing is left."""
    seed = int(os.environ.get("HOLDFAST_STORM_SEED", "7"))
    print(f"seed {seed}")
    dice = random.Random(seed)
    tasks = [
        fleet.add_scenario(
            {"write": {"path": "work.txt", "text": f"task {number}\n"}},
            {"sleep": f"{dice.randrange(50, 900)}ms"},
            {"commit": "Work"} if number % 2 else {"write": {"path": "extra.txt", "text": "left over\n"}},
            *([{"exit": 1}] if number % 5 == 0 else []),
        )
        for number in range(TASKS)
    ]
    for _ in range(KILLS):
        supervisor = fleet.up("--agents", 6)
        moment = dice.uniform(0.0, 1.2)
        try:
            supervisor.wait(timeout=moment)
        except subprocess.TimeoutExpired:
            fleet.kill_supervisor(supervisor)
    supervisor = fleet.up("--agents", 6, "--idle-exit", "200ms")
    assert supervisor.wait(timeout=120) == 0, fleet.log()

    queries = Queries(str(fleet.home))
    for number, task_id in enumerate(tasks):
        task = queries.task(task_id)
        expected = "failed" if number % 5 == 0 else "completed"
        assert task["state"] == expected, (seed, task)
        kinds = Counter(event["kind"] for event in queries.events(task_id=task_id))
        assert kinds["task.completed"] + kinds["task.failed"] == 1, (seed, kinds)
        ends = [run["outcome"] for run in task["runs"] if run["outcome"] != "lost"]
        assert ends == ["failed" if number % 5 == 0 else "completed"], (seed, task["runs"])
        if expected == "completed":
            assert fleet.file_on_branch(str(task["branch"]), "work.txt") == f"task {number}"
        else:
            assert task["salvages"] or fleet.git("show", f"{task['branch']}:work.txt") == f"task {number}"
    assert fleet.worktrees() == []
    assert processes_of(fleet.home) == {}
    assert not any((fleet.home / "workspaces").iterdir()) or [
        path.name for path in (fleet.home / "workspaces").rglob("*")
    ] == [".trash"]
    assert "All well." in fleet.doctor()


def test_many_adds_at_once_are_as_many_tasks(fleet: Fleet) -> None:
    """Nothing lost, and no "locked" error: parallel `holdfast add` processes (200 in `make test-all`; two hundred
    that only write are in tests/integration/store/test_sqlite_specifics.py)."""
    fleet.cli("init")
    waiting = list(range(ADDS))
    running: list[subprocess.Popen[bytes]] = []
    acknowledged: list[str] = []
    errors: list[str] = []

    def collect(process: subprocess.Popen[bytes]) -> None:
        out, err = process.communicate()
        if process.returncode == 0:
            acknowledged.append(out.decode().split()[0])
        else:
            errors.append(err.decode())

    while waiting or running:
        while waiting and len(running) < ADDS:
            number = waiting.pop()
            running.append(fleet.start("add", f"task {number}", "--", "true"))
        collect(running.pop(0))
    assert errors == []
    assert len(set(acknowledged)) == ADDS
    tasks = Queries(str(fleet.home)).tasks(everything=True)
    assert {task["id"] for task in tasks} == set(acknowledged)
    assert sorted(task["seq"] for task in tasks) == list(range(1, ADDS + 1))


def test_a_supervisor_meets_clients_that_write_at_the_same_time(fleet: Fleet) -> None:
    """Adds while the supervisor's writer is busy: every one is accepted and run to its end."""
    fleet.up("--agents", 8)
    ids = [fleet.add("quick", "--workspace", "directory", command=("true",)) for _ in range(15)]
    for task_id in ids:
        fleet.wait_state(task_id, "completed")
    fleet.wait_clean()
    wait_until(lambda: fleet.json("workspaces") == [], "no workspace is left")
    fleet.doctor()
