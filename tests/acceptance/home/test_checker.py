"""`holdfast doctor --invariants`: green on a home that is well, red for each promise that somebody breaks by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from tests.fleet import Fleet
from tests.sampling import sampled

from holdfast.checker.witness import blob_id


def promises(fleet: Fleet, *arguments: object, code: int) -> list[str]:
    """`promise rule` of each violation."""
    done = fleet.cli("doctor", "--invariants", *arguments, "--json", code=code)
    return [f"{word['promise']} {word['rule']}" for word in map(json.loads, done.stdout.splitlines())]


@pytest.fixture
def ended(fleet: Fleet) -> tuple[Fleet, str]:
    """A home where one task has failed: its work is salvaged, everything is removed."""
    task_id = fleet.add("fail", command=("sh", "-c", "echo work > work.txt; exit 1"))
    assert fleet.up("--idle-exit", "0s").wait(timeout=60) == 0
    return fleet, task_id


def change(fleet: Fleet, statement: str) -> None:
    connection = apsw.Connection(str(fleet.home / "holdfast.db"))
    connection.execute(statement)
    connection.close()


def test_all_is_well(ended: tuple[Fleet, str]) -> None:
    fleet, task_id = ended
    witness = fleet.root / "witness"
    lines = [
        {"acknowledged": task_id},
        {"wrote": "work.txt", "task": task_id, "blob": blob_id(b"work\n")},
        {"ran": fleet.show(task_id)["runs"][0]["id"], "task": task_id},
    ]
    witness.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "The five promises hold." in fleet.cli("doctor", "--invariants", "--at-rest", "--witness", witness).stdout
    assert promises(fleet, "--at-rest", "--witness", witness, code=0) == []


def test_it_holds_while_agents_work(fleet: Fleet) -> None:
    gate = fleet.root / "gate"
    task_id = fleet.add("wait", command=("sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done"))
    supervisor = fleet.up("--idle-exit", "0s")
    fleet.wait_state(task_id, "running")
    assert promises(fleet, code=0) == []
    assert "lost rest" in promises(fleet, "--at-rest", code=1)
    gate.touch()
    assert supervisor.wait(timeout=60) == 0
    assert promises(fleet, "--at-rest", code=0) == []


def _directory(fleet: Fleet, _task: str) -> None:
    (fleet.home / "workspaces" / "some-repo" / "some-task").mkdir(parents=True)


def _marker(fleet: Fleet, _task: str) -> None:
    folder = fleet.home / "workspaces" / "some-repo"
    folder.mkdir(parents=True)
    (folder / "task.owner.json").write_text("{}")


def _trash(fleet: Fleet, _task: str) -> None:
    (fleet.home / "workspaces" / ".trash" / "old").mkdir(parents=True)


def _run_directory(fleet: Fleet, _task: str) -> None:
    (fleet.home / "runs" / "unknown").mkdir()


def _entry(fleet: Fleet, _task: str) -> None:
    fleet.git("worktree", "add", "-q", "--detach", str(fleet.home / "workspaces" / "x" / "y"))
    subprocess.run(["rm", "-r", str(fleet.home / "workspaces" / "x")], check=True)


def _branch(fleet: Fleet, task: str) -> None:
    fleet.git("branch", f"holdfast/{task}", fleet.show(task)["base_commit"])


def _second_ending(fleet: Fleet, task: str) -> None:
    change(
        fleet,
        "INSERT INTO events (at, level, component, kind, task_id, message, data) "
        f"VALUES (1, 'info', 'x', 'task.completed', '{task}', 'again', '{{}}')",
    )


def _old_fence(fleet: Fleet, task: str) -> None:
    change(
        fleet,
        "INSERT INTO events (at, level, component, kind, task_id, message, data) "
        f"VALUES (1, 'info', 'x', 'run.ended', '{task}', 'late', '{{\"fence\": 0}}')",
    )


def _open_run(fleet: Fleet, task: str) -> None:
    change(fleet, f"UPDATE runs SET state = 'started' WHERE task_id = '{task}'")


def _budget(fleet: Fleet, task: str) -> None:
    for _n in range(13):
        change(
            fleet,
            "INSERT INTO spends (task_id, generation, budget, wall, boottime, boot_id) "
            f"VALUES ('{task}', 0, 'runs', 1, 1, 'b')",
        )


def _silence(fleet: Fleet, task: str) -> None:
    change(fleet, f"UPDATE tasks SET reason = NULL WHERE id = '{task}'")


def _salvage(fleet: Fleet, _task: str) -> None:
    (shadow,) = (fleet.home / "shadows").glob("*.git")
    for ref in fleet.git("for-each-ref", "--format=%(refname)", "refs/salvage", cwd=shadow).split():
        fleet.git("update-ref", "-d", ref, cwd=shadow)


def _scratch(fleet: Fleet, _task: str) -> None:
    (fleet.home / "scratch" / "half").mkdir(parents=True)


def _host(fleet: Fleet, _task: str) -> None:
    change(fleet, "UPDATE hosts SET state = 'active'")


def _workspace(fleet: Fleet, _task: str) -> None:
    change(fleet, "UPDATE workspaces SET state = 'preserved', disposition = NULL")


Breaking = Callable[[Fleet, str], None]
BREAKS: dict[str, tuple[Breaking, str]] = {
    "directory": (_directory, "leaked directory"),
    "marker": (_marker, "leaked marker"),
    "trash": (_trash, "leaked trash"),
    "run directory": (_run_directory, "leaked run directory"),
    "worktree entry": (_entry, "leaked worktree entry"),
    "empty branch": (_branch, "leaked branch"),
    "second ending": (_second_ending, "twice ending"),
    "old fence": (_old_fence, "twice fence"),
    "open run": (_open_run, "twice runs"),
    "budget": (_budget, "loops budget"),
    "no reason": (_silence, "silent reason"),
    "salvage": (_salvage, "lost salvage"),
    "scratch": (_scratch, "leaked rest"),
    "dead host": (_host, "silent rest"),
    "vanished workspace": (_workspace, "lost workspace"),
}


@pytest.mark.parametrize("name", sampled(BREAKS, keep=9))
def test_a_broken_promise_is_named(ended: tuple[Fleet, str], name: str) -> None:
    fleet, task_id = ended
    breaking, expected = BREAKS[name]
    breaking(fleet, task_id)
    assert expected in promises(fleet, "--at-rest", code=1)


@pytest.mark.parametrize(
    "forged",
    [
        "UPDATE tasks SET state = 'completed' WHERE id = '{task}'",
        "UPDATE events SET kind = 'task.completed' WHERE task_id = '{task}' AND kind = 'task.failed'",
        "DELETE FROM events WHERE task_id = '{task}' AND kind = 'task.failed'",
        "UPDATE tasks SET state = 'completed' WHERE id = '{task}'; "
        "INSERT INTO events (at, level, component, kind, task_id, message, data) "
        "VALUES (1, 'info', 'x', 'task.completed', '{task}', 'reviewed by alice', '{{}}')",
    ],
    ids=["state", "ending", "no ending", "state and ending"],
)
def test_a_forged_ending_is_named(ended: tuple[Fleet, str], forged: str) -> None:
    """Finding F10: a process of the same user can write to the store. A row that contradicts the others is named;
    docs/security.md says what nobody can see."""
    fleet, task_id = ended
    change(fleet, forged.format(task=task_id))
    assert promises(fleet, "--at-rest", code=1) == ["twice ending"]


def test_forgotten_history_is_no_violation(ended: tuple[Fleet, str]) -> None:
    """Retention keeps how a task ended and forgets its retry: two endings with numbers missing in between."""
    fleet, task_id = ended
    fleet.cli("retry", task_id)
    assert fleet.up("--idle-exit", "0s").wait(timeout=60) == 0
    change(
        fleet,
        f"DELETE FROM events WHERE task_id = '{task_id}' "
        "AND kind NOT IN ('task.completed', 'task.failed', 'task.cancelled')",
    )
    assert promises(fleet, "--at-rest", code=0) == []


@pytest.fixture
def stray(ended: tuple[Fleet, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that carries the marker of a run which is over."""
    fleet, task_id = ended
    run_dir = fleet.home / "runs" / fleet.show(task_id)["runs"][0]["id"]
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        env={**os.environ, "HOLDFAST_RUN_DIR": str(run_dir)},
        stdin=subprocess.PIPE,
        cwd=Path("/"),
    )
    yield process
    process.kill()
    process.communicate()


def test_a_stray_process_is_named(ended: tuple[Fleet, str], stray: subprocess.Popen[bytes]) -> None:
    fleet, _task = ended
    done = fleet.cli("doctor", "--invariants", code=1)
    assert f"pid {stray.pid}" in done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"acknowledged": "nobody"}, "lost task"),
        ({"wrote": "gone.txt", "task": "TASK", "blob": blob_id(b"gone")}, "lost bytes"),
        ({"ran": "unknown", "task": "TASK"}, "leaked agent"),
    ],
)
def test_what_was_witnessed_must_be_there(ended: tuple[Fleet, str], line: dict[str, str], expected: str) -> None:
    fleet, task_id = ended
    witness = fleet.root / "witness"
    witness.write_text(json.dumps(line).replace("TASK", task_id) + "\n")
    assert promises(fleet, "--witness", witness, code=1) == [expected]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--at-rest",), 2),
        (("--invariants", "--witness", "/nonexistent"), 2),
    ],
)
def test_bad_questions_get_one_line(ended: tuple[Fleet, str], arguments: tuple[str, ...], code: int) -> None:
    fleet, _task = ended
    assert len(fleet.cli("doctor", *arguments, code=code).stderr.splitlines()) == 1


def test_without_a_store_there_is_nothing_to_check(fleet: Fleet) -> None:
    assert "nothing to check" in fleet.cli("doctor", "--invariants", code=69).stderr


def test_resumes_by_force_are_no_loop(fleet: Fleet) -> None:
    """R-RES-03: an operator's word beyond the limit is recorded and allowed: nothing that continued by itself."""
    fleet.up(env={"HOLDFAST_RESUME_AUTO": "false"})
    limit = {"limit": {"kind": "rate", "for": "1ms"}}
    task = fleet.add_scenario({"say": "I begin"}, limit, options=("--max-resumes", 0))
    for _ in range(3):
        fleet.wait_state(task, "paused")
        fleet.cli("resume", task, "--force")
    assert fleet.show(task)["resume_attempts"] == 3
    assert promises(fleet, code=0) == []
