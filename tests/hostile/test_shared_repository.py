"""One repository for many: two homes, many tasks at once, the user at work in it, and worktrees of the user's own.

`HOLDFAST_STORM=1` (or `make storm`): 64 workspaces at once, three rounds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet import Fleet, processes_of, wait_until

from holdfast.api.commands import Commands, NewTask

MANY, ROUNDS = (64, 3) if os.environ.get("HOLDFAST_STORM") else (6, 1)
NOTICEABLE = 20.0  # seconds; a command of the user's that takes longer on a machine that is busy waits for somebody


class User:
    """Somebody who works in the same repository all the time: every command must succeed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.commits = self.rounds = 0
        self.failed: list[str] = []
        self.slowest = 0.0
        fleet.git("clone", "--quiet", "--bare", str(fleet.repo), str(fleet.root / "origin.git"))
        fleet.git("remote", "add", "origin", str(fleet.root / "origin.git"))

    def __enter__(self) -> User:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.is_set():
            self.rounds += 1
            branch = f"mine-{self.rounds}"
            (self._fleet.repo / "notes.txt").write_text(f"{self.rounds}\n")
            self._git("add", "notes.txt")
            self.commits += self._git("commit", "--quiet", "-m", f"Note {self.rounds}")
            self._git("branch", branch)
            self._git("fetch", "--quiet", "origin")
            self._git("status", "--porcelain")
            self._git("worktree", "list")
            self._git("branch", "-D", branch)
            self._git("gc", "--quiet")
            self._over.wait(0.2)  # a pace, not a wait: nobody types faster

    def _git(self, *words: str) -> bool:
        began = time.monotonic()
        done = subprocess.run(
            ["git", *words], cwd=self._fleet.repo, env=self._fleet.env, capture_output=True, text=True, check=False
        )
        self.slowest = max(self.slowest, time.monotonic() - began)
        if done.returncode != 0:
            self.failed.append(f"git {words}: {done.stderr}")
        return done.returncode == 0


@pytest.fixture
def other_home(fleet: Fleet) -> Iterator[Fleet]:
    """A second home, with a supervisor of its own, on the same repository."""
    (fleet.root / "second").mkdir()
    with contextlib.closing(Fleet(fleet.root / "second")) as second:
        second.repo = fleet.repo
        yield second


def queue(fleet: Fleet, count: int, script: str) -> list[str]:
    commands = Commands(str(fleet.home))
    wanted = [
        NewTask(prompt=f"task {number}", directory=str(fleet.repo), command=("sh", "-c", script))
        for number in range(count)
    ]
    return [commands.add(one).id for one in wanted]


def entries_of(fleet: Fleet, *names: str) -> dict[str, dict[str, bytes]]:
    """Every byte of the admin entries of those worktrees."""
    found = {}
    for name in names:
        folder = fleet.repo / ".git" / "worktrees" / name
        files = [path for path in folder.rglob("*") if path.is_file()]
        found[name] = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return found


def unmounted_worktree(fleet: Fleet) -> Path:
    """The user's own worktrees on a disk that is not there now; where the disk has gone."""
    disk = fleet.root / "disk"
    fleet.git("worktree", "add", "--quiet", "-b", "mine", str(disk / "mine"))
    fleet.git("worktree", "add", "--quiet", "--detach", str(disk / "looking"))
    (disk / "mine" / "unsaved.txt").write_text("mine")
    disk.rename(fleet.root / "unmounted")
    return disk


def test_many_at_once_from_two_homes_and_the_user_notices_nothing(fleet: Fleet, other_home: Fleet) -> None:
    """R-TREE-04, R-TREE-07, R-TREE-13: every workspace is made at the first try, while the user commits, branches,
    fetches and collects garbage; nothing is left of them. The user's own worktrees on a disk that is away stay byte for
    byte through all of it, with doctor, clean-up and purge."""
    disk = unmounted_worktree(fleet)
    entries = entries_of(fleet, "mine", "looking")
    wait = f"echo $HOLDFAST_TASK_ID > work.txt; until [ -e {fleet.root}/go ]; do sleep 0.2; done"
    homes = (fleet, other_home)
    with User(fleet) as user:
        for home in homes:
            home.up("--agents", MANY)
        for _round in range(ROUNDS):
            (fleet.root / "go").unlink(missing_ok=True)
            tasks = [(home, task) for home in homes for task in queue(home, MANY // 2, wait)]
            for home, task in tasks:
                home.wait_started(task)
            assert len(fleet.worktrees()) == MANY + len(entries)
            (fleet.root / "go").touch()
            for home, task in tasks:
                runs = home.wait_state(task, "completed", "failed", "paused", "cancelled", patience=300)["runs"]
                assert [run["outcome"] for run in runs] == ["completed"], home.events(task)
            for home in homes:
                home.wait_clean()
    assert user.failed == []
    assert user.commits > 0
    after = entries_of(fleet, *entries)
    assert all(after[name][file] == entries[name][file] for name in entries for file in ("gitdir", "HEAD", "index"))
    entries = after  # their reflogs were rewritten by the user's own gc
    assert user.slowest < NOTICEABLE
    for home in homes:
        troubled = [event for event in home.events() if event["level"] in ("warning", "error", "critical")]
        assert troubled == []
    for home in homes:
        lost = [task for task in all_tasks([home]) if f"holdfast/{task}" not in fleet.branches()]
        told = [f"{event['kind']}: {event['message']}" for task in lost for event in home.events(task)]
        assert told == [], "\n".join(told)
    assert fleet.git("rev-list", "--count", "main") == str(1 + user.commits)
    assert fleet.git("for-each-ref", "refs/heads/mine-*") == ""
    fleet.git("fsck", "--no-dangling", "--strict")
    failing = fleet.add("leaves something", command=("sh", "-c", "echo kept > kept.txt; exit 1"))
    fleet.wait_state(failing, "failed")
    fleet.wait_clean()
    for home in homes:
        home.cli("down")
    assert "The five promises hold." in fleet.cli("doctor", "--invariants").stdout
    fleet.cli("doctor", code=None)
    other_home.cli("purge", "--yes", code=None)
    assert set(fleet.branches()) >= {f"holdfast/{task}" for task in all_tasks([fleet]) if task != failing}
    fleet.cli("purge", "--yes", "--discard-work", code=None)
    assert not list(fleet.home.glob("holdfast.db*"))
    assert entries_of(fleet, *entries) == entries
    assert sorted(path.name for path in (fleet.repo / ".git" / "worktrees").iterdir()) == sorted(entries)
    (fleet.root / "unmounted").rename(disk)
    assert fleet.git("status", "--porcelain", cwd=disk / "mine") == "?? unsaved.txt"
    assert fleet.git("status", "--porcelain", cwd=disk / "looking") == ""


def all_tasks(homes: tuple[Fleet, ...] | list[Fleet]) -> list[str]:
    from holdfast.api.queries import Queries

    return [str(task["id"]) for home in homes for task in Queries(str(home.home)).tasks(everything=True)]


def test_a_stopped_supervisor_leaves_no_worktree_and_no_process(fleet: Fleet) -> None:
    """R-TREE-17: stopped for longer than its keepers wait, in the middle of several tasks, then continued: their agents
    are ended, each task is run again once, and when they are done no worktree and no process is left over."""
    fleet.env["HOLDFAST_HEALTH_ORPHAN_GRACE"] = "5s"
    supervisor = fleet.up("--agents", 4)
    script = (
        f'echo x >> {fleet.root}/ran-$HOLDFAST_TASK_ID; echo "$HOLDFAST_RUN_NUMBER" >> work.txt; '
        f"until [ -e {fleet.root}/go ]; do sleep 0.1; done"
    )
    os.environ["HOLDFAST_HEALTH_ORPHAN_GRACE"] = "5s"  # a task's own, taken when it is queued
    try:
        tasks = queue(fleet, 4, script)
    finally:
        del os.environ["HOLDFAST_HEALTH_ORPHAN_GRACE"]
    for task in tasks:
        fleet.wait_started(task)
    supervisor.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: not any("sh -c" in words for words in processes_of(fleet.home).values()), "no agent is left")
    finally:
        supervisor.send_signal(signal.SIGCONT)
    (fleet.root / "go").touch()
    for task in tasks:
        runs = fleet.wait_state(task, "completed", patience=120)["runs"]
        assert [run["outcome"] for run in runs] == ["lost", "completed"]
        assert (fleet.root / f"ran-{task}").read_text() == "x\nx\n"
        assert fleet.file_on_branch(f"holdfast/{task}", "work.txt") == "1\n2"
    fleet.wait_clean()
    assert fleet.worktrees() == []
    fleet.cli("down")
    wait_until(lambda: processes_of(fleet.home) == {}, "no process is left")
    assert "The five promises hold." in fleet.cli("doctor", "--invariants", "--at-rest").stdout
    assert list((fleet.home / "workspaces").rglob("*.owner.json")) == []


def test_a_repository_that_is_deleted_under_its_tasks(fleet: Fleet) -> None:
    """R-TREE-05, R-TREE-13: one task runs, one waits. The waiting one fails and says why, in no other directory; what
    the running one wrote is saved; the home is not stuck."""
    doomed = fleet.make_repo(fleet.root / "doomed")
    fleet.up("--agents", 1)
    script = f"echo precious > work.txt; until [ -e {fleet.root}/go ]; do sleep 0.1; done; exit 1"
    running = fleet.add("runs", command=("sh", "-c", script), cwd=doomed)
    waiting = fleet.add("waits", command=("sh", "-c", "pwd"), cwd=doomed)
    fleet.wait_started(running)
    (workspace,) = (fleet.home / "workspaces").glob(f"*/{running}")
    wait_until((workspace / "work.txt").exists, "it has written")
    shutil.rmtree(doomed)
    (fleet.root / "go").touch()
    fleet.wait_state(running, "failed")
    assert "doomed" in fleet.wait_state(waiting, "failed")["reason"]
    fleet.wait_clean()
    (shadow,) = (fleet.home / "shadows").glob("*.git")
    (saved,) = fleet.json("salvage", "list", running)
    assert fleet.git("show", f"{saved['commit']}:work.txt", cwd=shadow) == "precious"
    after = fleet.add("continues", command=("true",))
    fleet.wait_state(after, "completed")
