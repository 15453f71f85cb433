"""Defects that a second reader found by reading alone; each would have passed every other test."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator

import apsw
import pytest
from tests.fleet import Fleet

from holdfast.processes.children import Children


def fail(fleet: Fleet, name: str, repo: str = "repo") -> str:
    """A task that leaves unsaved work behind: it is salvaged."""
    script = f"echo {name} > {name}.txt; exit 1"
    task_id = fleet.add(name, command=("sh", "-c", script), cwd=fleet.root / repo)
    assert fleet.up("--idle-exit", "0s").wait(timeout=60) == 0
    return task_id


def test_work_saved_after_a_backup_is_not_purged_in_silence(fleet: Fleet) -> None:
    """A restore takes the rows back, not the saved work: purge counts what is there, not what the store knows."""
    fleet.cli("init", "--no-file")
    target = fleet.root / "all.tar"
    fleet.cli("backup", target)
    newer = fail(fleet, "newer")
    fleet.cli("restore", target, "--yes")
    refused = fleet.cli("purge", "--yes", code=1)
    assert newer in refused.stderr
    out = fleet.root / "out"
    fleet.cli("purge", "--yes", "--export", out)
    (bundle,) = out.glob("*.bundle")
    fleet.git("fetch", "--quiet", str(bundle), "refs/salvage/*:refs/back/*")
    (ref,) = fleet.git("for-each-ref", "--format=%(refname)", "refs/back").split()
    assert fleet.git("show", f"{ref}:newer.txt") == "newer"


def test_the_log_beside_a_bare_store_comes_with_it(fleet: Fleet) -> None:
    """A store that was rescued from a crash: the newest of it is in its -wal."""
    fleet.add("in the file", "--delay", "1h", command=("true",))
    reader = apsw.Connection(str(fleet.home / "holdfast.db"))
    reader.execute("SELECT count(*) FROM tasks").get  # noqa: B018 - holds the log open, so that nobody folds it in
    fleet.add("in the log", "--delay", "1h", command=("true",))
    rescued = fleet.root / "rescued.db"
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{fleet.home}/holdfast.db{suffix}", f"{rescued}{suffix}")
    assert os.path.getsize(f"{rescued}-wal") > 0
    reader.close()
    fleet.add("later", "--delay", "1h", command=("true",))
    fleet.cli("restore", rescued, "--yes")
    assert {row["prompt"] for row in fleet.json("ps")} == {"in the file", "in the log"}


def test_a_repository_with_sha256_is_backed_up_and_restored(fleet: Fleet) -> None:
    repo = fleet.root / "modern"
    repo.mkdir()
    fleet.git("init", "--quiet", "-b", "main", "--object-format=sha256", cwd=repo)
    (repo / "a.txt").write_text("a\n")
    fleet.git("add", ".", cwd=repo)
    fleet.git("commit", "--quiet", "-m", "Start", cwd=repo)
    task_id = fail(fleet, "modern", "modern")
    target = fleet.root / "all.tar"
    fleet.cli("backup", target)
    shutil.rmtree(fleet.home)
    fleet.cli("restore", target, "--yes")
    fleet.cli("salvage", "restore", task_id, "--branch", "back")
    assert fleet.git("show", "back:modern.txt", cwd=repo) == "modern"


def test_a_failed_backup_leaves_nothing_on_the_disk_that_was_too_full(fleet: Fleet) -> None:
    fleet.cli("init", "--no-file")
    target = fleet.root / "all.tar"
    fleet.cli("backup", target, env={"HOLDFAST_FAULT": "backup.named:1:ENOSPC"}, code=69)
    assert list(fleet.root.glob("all.tar*")) == []
    assert [path.name for path in (fleet.home / "backups").iterdir() if not path.name.endswith(".db")] == []


def test_a_starting_supervisor_leaves_a_running_backup_alone(fleet: Fleet) -> None:
    fleet.cli("init", "--no-file")
    theirs = fleet.home / "backups" / "holdfast-20260101-000000.tar.part"
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("being written")
    ours = fleet.home / "backups" / "000007-start.db.part"
    ours.write_text("left by a killed supervisor")
    assert fleet.up("--idle-exit", "0s").wait(timeout=60) == 0
    assert theirs.exists()
    assert not ours.exists()


def test_a_shell_in_a_preserved_workspace_is_no_leak(fleet: Fleet) -> None:
    """Our own message says to look into it: whoever does is no stray of ours."""
    task_id = fleet.add("keep", "--preserve-on-failure", command=("sh", "-c", "exit 1"))
    assert fleet.up("--idle-exit", "0s").wait(timeout=60) == 0
    path = fleet.show(task_id)["workspace"]["path"]
    shell = subprocess.Popen([sys.executable, "-c", "input()"], cwd=path, stdin=subprocess.PIPE)
    try:
        assert "The five promises hold." in fleet.cli("doctor", "--invariants").stdout
    finally:
        shell.kill()
        shell.communicate()


@pytest.fixture
def many_descriptors() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"a process may have only {hard} descriptors here; this needs more than 1024")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    yield 1100
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_helper_is_ended_whatever_the_number_of_its_descriptor(many_descriptors: int) -> None:
    """A large fleet has more than 1,024 files open, and select() cannot see those."""
    held = [os.open(os.devnull, os.O_RDONLY) for _n in range(many_descriptors)]
    try:
        children = Children()
        pid = children.spawn(
            ["sleep", "1000"], cwd="/", env=dict(os.environ), stdin=held[0], stdout=held[0], stderr=held[0]
        )
        assert children.end_group_and_reap(pid) == -15
    finally:
        for fd in held:
            os.close(fd)
