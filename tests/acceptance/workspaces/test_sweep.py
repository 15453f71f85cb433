"""The sweep: what killed supervisors, people and restored backups leave is removed or healed; foreign things stay."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.fleet import Fleet, lives, state_of, wait_until
from tests.other_user import as_other_user, reachable_directory

EIO = ",".join(f"trash.rename:{hit}:EIO" for hit in range(1, 40))


def snapshot(*roots: Path) -> dict[str, tuple[object, ...]]:
    """Every file with its mode, time and content; but for SQLite's own shared memory, which every reader maps."""
    found: dict[str, tuple[object, ...]] = {}
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.name.startswith("holdfast.db-"):
                continue
            about = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
            found[str(path)] = (about.st_mode, about.st_mtime_ns, about.st_size, content)
    return found


def leak(fleet: Fleet, *scripts: str, options: tuple[object, ...] = ()) -> list[str]:
    """Tasks that are over and whose workspaces nobody could removed; then their supervisor is killed."""
    tasks = [fleet.add("leak", *options, command=("sh", "-c", script)) for script in scripts]
    supervisor = fleet.up(env={"HOLDFAST_FAULT": EIO})
    for task in tasks:
        fleet.wait_state(task, "completed", "failed")
        wait_until(lambda: any("cleanup-failed" in kind for kind in fleet.kinds(task)), "it could not be put away")  # noqa: B023 - at once
    fleet.kill_supervisor(supervisor)
    return tasks


def place(fleet: Fleet, task: str) -> Path:
    return Path(fleet.show(task)["workspace"]["path"])


def change(fleet: Fleet, statement: str, *values: object) -> None:
    """Behind Holdfast's back, as an older backup would."""
    connection = apsw.Connection(str(fleet.home / "holdfast.db"))
    connection.set_busy_timeout(10_000)
    connection.execute(statement, values)
    connection.close()


def sweeps(fleet: Fleet) -> list[dict[str, Any]]:
    return [event for event in fleet.events() if event["kind"] == "sweep.completed"]


@contextmanager
def sleeper(cwd: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(["sleep", "1000"], cwd=cwd, env={**os.environ, **env}, start_new_session=True)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def test_everything_that_can_be_left_is_found_and_healed(fleet: Fleet) -> None:
    """R-TREE-06, R-TREE-07, R-CLEAN-07: a dry run changes nothing; a sweep heals all of it; a second finds nothing."""
    leaked, dirty, lost = leak(fleet, "true", "echo work > work.txt; exit 1", "echo lost > lost.txt; exit 1")
    kept, dropped = (
        fleet.add("keep", "--preserve-on-failure", command=("sh", "-c", "echo kept > kept.txt; exit 1"))
        for _ in range(2)
    )
    fleet.up("--idle-exit", "0s", env={"HOLDFAST_FAULT": EIO}).wait(60)
    workspaces, admin = place(fleet, kept).parent, fleet.repo / ".git" / "worktrees"
    spoil(fleet, lost, dropped, workspaces, admin)
    strangers = make_strangers(fleet, workspaces)
    run = fleet.show(leaked)["runs"][0]["id"]
    folder = fleet.home / "runs" / run
    marker = {"HOLDFAST_RUN_DIR": str(folder)}
    token = json.loads((folder / "intent.json").read_text())["token"]
    with sleeper(fleet.root, **marker, HOLDFAST_RUN_TOKEN=token) as ours, sleeper(fleet.root, **marker) as unproven:
        before = snapshot(fleet.home, fleet.repo)
        planned = fleet.json("sweep", "--dry-run")
        assert snapshot(fleet.home, fleet.repo) == before
        actions = {row["action"] for row in planned}
        wanted = {
            "wait",
            "keep",
            "let-go",
            "take-in",
            "drop-marker",
            "drop-entry",
            "drop-trash",
            "end-process",
            "report",
        }
        assert wanted <= actions, actions
        done = fleet.json("sweep")[0]
        assert ours.wait(30) == -signal.SIGTERM
        assert lives(unproven.pid)
        assert [row for row in done["reported"] if f"pid {unproven.pid}" in row]
    assert done["failed_count"] == 0, done["failed"]
    assert (done["swept_count"], done["preserved"], done["root_owned_skipped"]) == (8, 1, 0), done
    assert done["prune_succeeded"] is True
    assert done["backlog_count"] == done["swept_count"]
    assert set(done["foreign"]) == {str(workspaces / "plain"), str(workspaces / "byhand")}
    assert done["odd"] == 2
    assert all(path.exists() for path in strangers)
    saved = {row["task"] for row in fleet.json("salvage", "list")}
    assert {dirty, lost} <= saved
    left = {path.name for path in workspaces.iterdir()}
    assert left == {kept, f"{kept}.owner.json", *(path.name for path in strangers if path.parent == workspaces)}
    assert not list((fleet.home / "workspaces" / ".trash").iterdir())
    assert (place(fleet, kept) / "kept.txt").read_text() == "kept\n"
    assert {Path(path).name for path in fleet.worktrees()} == {kept, "byhand", "unmounted"}
    again = fleet.json("sweep")[0]
    assert (again["swept_count"], again["healed"], again["failed_count"]) == (0, 0, 0), again
    assert "problem" not in fleet.doctor()


def spoil(fleet: Fleet, lost: str, dropped: str, workspaces: Path, admin: Path) -> None:
    """By hand: half-removed, vanished, forgotten things of ours."""
    change(fleet, "UPDATE workspaces SET state = 'gone' WHERE task_id = ?", lost)  # the ledger forgot it
    subprocess.run(["rm", "-r", workspaces / dropped], check=True)  # preserved, and somebody removed it
    (workspaces / "zzzzzzzzzz.owner.json").write_text(
        json.dumps({"workspace": "w", "task": "zzzzzzzzzz", "repo": "r", "path": str(workspaces / "zzzzzzzzzz")})
    )
    for name in ("aaaaaaaaaa", "bbbbbbbbbb-half-made"):  # in the trash, and no row waits for it
        (fleet.home / "workspaces" / ".trash" / name / "deep").mkdir(parents=True)
    initializing = admin / "half"  # git was killed before it wrote where the tree is
    initializing.mkdir()
    (initializing / "locked").write_text(f"holdfast task={lost}")
    fleet.git("worktree", "add", "--detach", "--lock", "--reason", "holdfast task=gone", str(workspaces / "yyyyyyyyyy"))
    subprocess.run(["rm", "-r", workspaces / "yyyyyyyyyy"], check=True)  # a locked entry without its tree


def make_strangers(fleet: Fleet, workspaces: Path) -> list[Path]:
    """What people make: in our folder, beside it, and on a disk that is not mounted at the moment."""
    plain = workspaces / "plain"
    plain.mkdir()
    (plain / "precious.txt").write_text("precious")
    fleet.git("worktree", "add", "--detach", str(workspaces / "byhand"))
    odd = fleet.home / "workspaces" / "My Notes"
    odd.mkdir()
    (workspaces / "Notes.txt").write_text("odd")
    elsewhere = fleet.root / "unmounted"
    fleet.git("worktree", "add", "--detach", str(elsewhere))
    elsewhere.rename(fleet.root / "away")
    return [
        plain,
        workspaces / "byhand",
        odd,
        workspaces / "Notes.txt",
        fleet.repo / ".git" / "worktrees" / "unmounted",
    ]


@pytest.mark.parametrize("state", ["failed", "queued"])
def test_work_that_only_a_marker_knows_is_not_lost(fleet: Fleet, state: str) -> None:
    """After a restored backup: a task that is over is salvaged; one that continues finds its tree as it was."""
    (task,) = leak(fleet, "[ -e one.txt ] && echo more > two.txt && exit 0; echo one > one.txt; exit 1")
    (place(fleet, task) / "late.txt").write_text("late")
    change(fleet, "UPDATE workspaces SET state = 'gone' WHERE task_id = ?", task)
    if state == "queued":
        change(
            fleet, "UPDATE tasks SET state = 'queued', outcome = NULL, owner = NULL, ended_at = NULL WHERE id = ?", task
        )
    fleet.up("--idle-exit", "0s").wait(60)
    ended = fleet.wait_state(task, "failed" if state == "failed" else "completed")
    fleet.wait_clean()
    if state == "failed":
        assert [row["files"] for row in ended["salvages"]] == [1, 2]  # its ending saved one already
    else:
        assert fleet.file_on_branch(f"holdfast/{task}", "two.txt") == "more"
        assert fleet.file_on_branch(f"holdfast/{task}", "late.txt") == "late"
    assert sweeps(fleet)[-1]["data"]["healed"] >= 1
    assert "All well." in fleet.doctor()


def test_a_running_supervisor_sweeps_when_asked(fleet: Fleet) -> None:
    """R-TREE-06, R-TREE-07: on demand, and by `doctor --fix`; what lives is not touched."""
    supervisor = fleet.up()
    go = fleet.root / "go"
    task = fleet.add("live", command=("sh", "-c", f"echo x > x; until [ -e {go} ]; do sleep 0.1; done"))
    fleet.wait_started(task)
    tree = place(fleet, task)
    wait_until((tree / "x").exists, "its agent works")
    wait_until(lambda: sweeps(fleet), "that of the start is over")
    trash = fleet.home / "workspaces" / ".trash" / "aaaaaaaaaa"
    trash.mkdir(parents=True)
    done = fleet.json("sweep")[0]
    assert (done["swept_count"], done["failed_count"], done["foreign"]) == (1, 0, []), done
    assert not trash.exists()
    assert (tree / "x").exists()
    tree.with_name(f"{task}.owner.json").unlink()  # an agent can reach it: nothing could be removed without it
    trash.mkdir(parents=True)
    assert "marker" in fleet.cli("doctor", code=1).stdout
    said = fleet.cli("doctor", "--fix").stdout
    assert "All well." in said
    assert json.loads(tree.with_name(f"{task}.owner.json").read_text())["task"] == task
    go.touch()
    fleet.wait_state(task, "completed")
    fleet.wait_clean()
    fleet.cli("down")
    supervisor.wait(30)
    assert [event["data"]["swept_count"] for event in sweeps(fleet)] == [0, 1, 1]


def test_what_may_not_be_deleted_is_skipped_with_the_command_that_fixes_it() -> None:
    """R-TREE-09: a file of root in the trash of another user."""
    with reachable_directory() as root:
        fleet = as_other_user(Fleet(root))
        try:
            (task,) = leak(fleet, "mkdir deep; echo x > deep/x")
            deep = place(fleet, task) / "deep"
            os.chown(deep, 0, 0)
            done = json.loads(fleet.cli("sweep", "--json", code=1).stdout)
            assert (done["swept_count"], done["root_owned_skipped"], done["backlog_count"]) == (0, 1, 1), done
            (told,) = done["skipped"]
            command = told.partition("`")[2].partition("`")[0]
            assert command.startswith("sudo rm -rf --one-file-system -- ")
            subprocess.run(command.removeprefix("sudo "), shell=True, check=True)
            again = fleet.json("sweep")[0]
            assert (again["swept_count"], again["root_owned_skipped"]) == (1, 0), again
            assert "All well." in fleet.doctor()
        finally:
            fleet.close()


def test_doctor_is_content_while_a_workspace_is_put_away(fleet: Fleet) -> None:
    """What a living supervisor is just doing is not a problem: the tree is in the trash, its marker is still there."""
    task = fleet.add("work", command=("sh", "-c", "echo work > work.txt"))
    supervisor = fleet.up(env={"HOLDFAST_FAULT": "marker.remove:1:stop"})
    wait_until(lambda: state_of(supervisor.pid) == "T", "the supervisor stands still before it removes the marker")
    try:
        assert fleet.show(task)["workspace"]["state"] == "trashed"
        told = fleet.cli("doctor", code=None)
    finally:
        supervisor.send_signal(signal.SIGCONT)
    assert "problem" not in told.stdout, told.stdout
    fleet.wait_clean()
