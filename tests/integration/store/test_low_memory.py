"""What the campaign's families `limits` and `small-disk` found, each as a test of its own: the system refuses memory,
threads or room."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fleet import Fleet
from tests.refusals import small_disk

from holdfast.base import clock
from holdfast.base.errors import DiskFull, Unavailable, WorkspaceProblem, is_transient
from holdfast.base.ids import new_id
from holdfast.base.low_memory import is_out_of_memory
from holdfast.core.model import Task, TaskSpec
from holdfast.store.sqlite.engine.disk_reserve import free_bytes
from holdfast.store.sqlite.engine.group_commit import GroupWriter
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.store.sqlite.transaction import SqliteTransaction


def add_task(tx: SqliteTransaction) -> Task:
    repo = tx.workspaces.register_repo("/src/app", "/src/app/.git", clock.now())
    return tx.tasks.add(TaskSpec(id=new_id(), repo_id=repo.id, prompt="do it", agent="scripted"), clock.now())


def stored(store: SqliteStore) -> set[str]:
    return {str(row["id"]) for row in store.view("tasks")}


@pytest.mark.parametrize(
    "refused",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
        WorkspaceProblem("git branch --no-track holdfast/x failed (128): fatal: couldn't set 'refs/heads/holdfast/x'"),
    ],
    ids=["memory", "thread", "process", "git's rename"],
)
def test_what_the_system_refuses_for_a_while_never_fails_a_task(refused: Exception) -> None:
    """Promise 1. Found by `limits:up/as=…`, `limits:up/nproc=…` and `fsync:every/rename=EIO@1`: it was taken for
    a fault of the task."""
    assert is_transient(refused)


def test_a_fault_of_ours_is_not_taken_for_a_refusal() -> None:
    assert not is_out_of_memory(ImportError("No module named 'nonsense'"))
    assert not is_out_of_memory(RuntimeError("dictionary changed size during iteration"))
    assert not is_transient(RuntimeError("dictionary changed size during iteration"))


def test_a_library_that_cannot_be_loaded_for_want_of_memory_is_told_in_one_line(fleet: Fleet) -> None:
    """Promise 5. Found by `limits:cold/as=6000` and others: what the loader and the interpreter say
    of it themselves were tracebacks."""
    bare = _peak_of_a_bare_interpreter()
    for more in (2_000, 4_000, 6_000, 8_000, 11_000):
        limited = ["prlimit", f"--as={(bare + more) * 1024}"]
        done = fleet.cli("add", "too much", "--", "true", code=None, prefix=limited)
        assert done.returncode in (0, Unavailable.exit_code), done.stderr
        assert done.returncode == 0 or done.stderr.startswith("holdfast: "), done.stderr


def _peak_of_a_bare_interpreter() -> int:
    """In KiB."""
    asked = [sys.executable, "-c", "print(open('/proc/self/status').read())"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return next(int(line.split()[1]) for line in told.splitlines() if line.startswith("VmPeak:"))


@pytest.mark.parametrize(
    "error",
    [
        ImportError("/x/apsw.so: failed to map segment from shared object"),
        SystemError("<built-in function compile> returned NULL without setting an exception"),
        SystemError("error return without exception set"),
    ],
)
def test_what_loader_and_interpreter_say_is_understood(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_a_batch_without_memory_is_refused_as_a_whole_and_the_next_is_written(tmp_path: Path) -> None:
    """Promise 1. Found by `limits:up/data=…`: the operation that met it was refused, and half of it was committed."""
    store = SqliteStore(str(tmp_path))

    def starved(tx: SqliteTransaction) -> None:
        add_task(tx)
        raise MemoryError

    async def main() -> tuple[list[object], Task]:
        writer = GroupWriter(str(tmp_path))
        try:
            both = await asyncio.gather(writer.write(add_task), writer.write(starved), return_exceptions=True)
            return list(both), await writer.write(add_task)
        finally:
            writer.close()

    (first, second), last = asyncio.run(main())
    assert isinstance(second, Unavailable)
    assert "not enough memory" in str(second)
    assert stored(store) == {task.id for task in (first, last) if isinstance(task, Task)}
    store.close()


def test_a_copy_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    """Found by `small-disk:2M/up:…`: half a copy filled the disk that was too full for it. (A limit on the size of
    files stands for the disk: no room for the copy, though the disk seems to have some.)"""
    store = SqliteStore(str(tmp_path))
    kept = store.backup("whole")
    size = os.path.getsize(kept)
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            signal.alarm(60)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, resource.RLIM_INFINITY))
            try:
                SqliteStore(str(tmp_path)).backup("half")
            except Unavailable:
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [os.path.basename(kept)]
    store.close()


def test_a_copy_never_takes_the_room_that_the_log_needs(tmp_path: Path) -> None:
    """Found by `small-disk:2M/up:…`: three copies filled a small disk, and nothing could be recorded any more."""
    with small_disk(tmp_path / "home", "2M"):
        store = SqliteStore(str(tmp_path / "home"))
        ballast = tmp_path / "home" / "ballast"
        ballast.write_bytes(b"\0" * (free_bytes(str(tmp_path / "home")) - 600 * 1024))
        with pytest.raises(DiskFull):
            store.backup("too much")
        assert store.write(add_task).id in stored(store)
        assert not list((tmp_path / "home" / "backups").glob("*.part"))
        store.close()


def test_a_log_on_a_small_disk_is_brought_over_before_it_fills_it(tmp_path: Path) -> None:
    """Found by `small-disk:2M/pause:316`: the log took all room that was left, and could never begin again, because the
    database could not grow. On a large disk SQLite's own measure (1,000 pages, 4 MB) stands."""

    async def write(home: Path) -> int:
        writer = GroupWriter(str(home))
        try:
            for _ in range(60):
                await writer.write(add_task)
            return (home / "holdfast.db-wal").stat().st_size
        finally:
            writer.close()

    with small_disk(tmp_path / "home", "2M"):
        store = SqliteStore(str(tmp_path / "home"))
        assert asyncio.run(write(tmp_path / "home")) < 512 * 1024
        assert len(stored(store)) == 60
        store.close()


def test_clean_up_that_cannot_record_its_failure_says_so_and_goes_on(fleet: Fleet) -> None:
    """Promises 2 and 5. Found by `small-disk:2M/working:…`: the clean-up died with a traceback, and was told twice."""
    task = fleet.add("leave it", command=("true",))
    refused = "tx.workspace.move:3:EIO,tx.workspace.cleanup_failed:1:EIO"
    said = fleet.cli("up", "--idle-exit", "0s", env={"HOLDFAST_FAULT": refused})
    assert "clean-up waits: " in said.stdout + said.stderr, (said.stdout, said.stderr)
    fleet.cli("up", "--idle-exit", "0s")
    assert fleet.json("show", task)[0]["workspace"]["state"] == "gone"
