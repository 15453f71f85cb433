"""Homes, disks and databases that cannot be used as they are: 69, one line, and nothing lost."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from tests.fleet import Fleet, lives, wait_until
from tests.fuse import mounted_as
from tests.refusals import fill, mounted, refused, small_disk, without_rights
from tests.sampling import sampled

WRITING = (("add", "x", "--", "true"), ("run", "x", "--", "true"), ("init",), ("up",), ("up", "--detach"))


# -- homes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_a_home_without_permission(fleet: Fleet, mode: int) -> None:
    """The directory above it belongs to somebody else, so to say: it cannot be made private and used."""
    above = fleet.root / "above"
    above.mkdir()
    above.chmod(mode)
    env = {"HOLDFAST_HOME": str(above / "home")}
    try:
        for arguments in WRITING:
            line = refused(fleet, *arguments, env=env, prefix=without_rights(), code=69)
            assert str(above / "home") in line
            assert "Permission denied" in line
            assert "HOLDFAST_HOME" in line
        assert refused(fleet, "ps", env=env, prefix=without_rights(), code=69)
    finally:
        above.chmod(0o700)
    assert list(above.iterdir()) == []


def test_a_home_on_a_read_only_disk(fleet: Fleet) -> None:
    """Looking still works where SQLite can; whatever writes is refused, and nothing is lost."""
    task_id = fleet.add("kept", command=("true",))
    with mounted(fleet.home, "--bind", str(fleet.home)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(fleet.home)], check=True)
        for arguments in (*WRITING, ("cancel", task_id)):
            line = refused(fleet, *arguments, code=69)
            assert str(fleet.home) in line, arguments
        fleet.cli("ps", code=None)
    assert [row["id"] for row in fleet.json("ps")] == [task_id]
    assert fleet.doctor().endswith("All well.\n")


@pytest.mark.parametrize("kind", ["fuse.sshfs", "fuse.glusterfs"])
def test_a_home_on_a_network_file_system(fleet: Fleet, kind: str) -> None:
    """DESIGN, Store: WAL corrupts in silence there. Seen as the kernel tells it, on a real mount."""
    fleet.home.mkdir(mode=0o700)
    with mounted_as(kind, fleet.home):
        for arguments in WRITING:
            line = refused(fleet, *arguments, code=69)
            assert f"network file system ({kind})" in line, arguments
            assert "local disk" in line
    assert list(fleet.home.iterdir()) == []
    fleet.add("x", command=("true",))


@pytest.mark.parametrize("name", sampled(["runs", "workspaces", "shadows", "backups"], keep=2))
def test_a_file_in_place_of_a_directory(fleet: Fleet, name: str) -> None:
    """Named before a supervisor stumbles over it again and again."""
    task_id = fleet.add("kept", command=("true",))
    (fleet.home / name).write_text("not ours")
    line = refused(fleet, "up", code=69)
    assert str(fleet.home / name) in line
    assert "move it away" in line
    assert (fleet.home / name).read_text() == "not ours"
    (fleet.home / name).unlink()
    fleet.cli("up", "--idle-exit", "0s")
    assert fleet.show(task_id)["state"] == "completed"


@pytest.mark.parametrize(
    "name", sampled(["supervisor.lock", "doorbell", "turnstile.lock", "helpers.lock", "supervisor.log"], keep=2)
)
def test_a_directory_in_place_of_a_file(fleet: Fleet, name: str) -> None:
    """The system's own words with the name of the file; what is queued stays queued, and an accepted task is told."""
    task_id = fleet.add("kept", command=("true",))
    (fleet.home / name).unlink(missing_ok=True)
    (fleet.home / name).mkdir()
    if name in ("turnstile.lock", "supervisor.lock", "helpers.lock", "doorbell"):
        done = fleet.cli("up", "--idle-exit", "0s", code=69)
        assert str(fleet.home / name) in done.stderr.splitlines()[-1]
        assert "Is a directory" in done.stderr.splitlines()[-1]
    else:
        assert "Is a directory" in refused(fleet, "up", "--detach", code=69)
    if name == "doorbell":
        fleet.add("accepted though nobody can be told", command=("true",))
    (fleet.home / name).rmdir()
    fleet.cli("up", "--idle-exit", "0s")
    assert fleet.show(task_id)["state"] == "completed"


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["user", "repo"])
def test_settings_that_cannot_be_read(fleet: Fleet, where: str) -> None:
    """Not permitted, a directory, not UTF-8, nested beyond reason: the file is named, nothing is queued."""
    path = fleet.root / "config.toml" if where == "user" else fleet.repo / "holdfast.toml"
    env = {"HOLDFAST_CONFIG": str(path)} if where == "user" else {}

    def said() -> str:
        return refused(fleet, "add", "x", "--", "true", env=env, prefix=without_rights(), code=2)

    path.write_text("agents = 3\n")
    path.chmod(0o000)
    assert "Permission denied" in said()
    path.chmod(0o600)
    for content in (b"\xff\xfe\x00", b"agent = '\xe9'\n", b"x = " + b"[" * 5000, b"a." * 5000 + b"b = 1", b"[[[\n"):
        path.write_bytes(content)
        assert str(path) in said()
    path.unlink()
    path.mkdir()
    assert str(path) in said()
    path.rmdir()
    assert not fleet.home.exists() or fleet.json("ps") == []


# -- full disks --------------------------------------------------------------------------------------------------------


def has_room(fleet: Fleet) -> bool:
    return fleet.cli("add", "later", "--delay", "1h", "--", "true", code=None).returncode == 0


def test_adding_on_a_full_disk(fleet: Fleet) -> None:
    """Refused whole: what was acknowledged before is there, nothing is half there, and with room it works again."""
    fleet.env["HOLDFAST_DISK_FLOOR"] = "0"
    with small_disk(fleet.home, "2m"):
        kept = [fleet.add(f"task {number}", command=("true",)) for number in range(3)]
        fill(fleet.home / "ballast")
        wait_until(lambda: not has_room(fleet), "the store is full")
        before = fleet.json("ps")
        for arguments in (("add", "x" * 50000, "--", "true"), ("run", "x" * 50000, "--", "true")):
            line = refused(fleet, *arguments, code=69)
            assert "is full" in line
            assert "nothing was written" in line
            assert "Free space" in line
        assert fleet.json("ps") == before
        assert {row["id"] for row in before} >= set(kept)
        (fleet.home / "ballast").unlink()
        assert fleet.json("ps") == before
        fleet.add("room again", command=("true",))
        assert fleet.doctor().endswith("All well.\n")


def test_a_home_that_never_had_room(fleet: Fleet) -> None:
    """The disk is full before the store is made: a clear refusal, and with room it is made as if nothing had been."""
    fleet.env["HOLDFAST_DISK_FLOOR"] = "0"
    with small_disk(fleet.home, "1m"):
        fill(fleet.home / "ballast")
        for arguments in (("add", "x", "--", "true"), ("up",)):
            line = refused(fleet, *arguments, code=69)
            assert "full" in line or "No space left" in line
        (fleet.home / "ballast").unlink()
        fleet.add("x", command=("true",))
        assert len(fleet.json("ps")) == 1


def test_a_reserve_whose_maker_was_killed_is_made_whole(fleet: Fleet) -> None:
    """An empty file of that name keeps no room back."""
    fleet.cli("up", "--idle-exit", "0s")
    reserve = fleet.home / "reserve"
    reserve.write_bytes(b"")
    fleet.cli("up", "--idle-exit", "0s")
    assert kept_back(reserve) >= 256 * 1024


def kept_back(reserve: Path) -> int:
    try:
        return reserve.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def test_the_reserve_makes_room_for_the_news(fleet: Fleet) -> None:
    """DESIGN, Store: on a full disk the supervisor gives its reserve up, records what happens, and keeps room again."""
    go = fleet.root / "go"
    fleet.env["HOLDFAST_DISK_FLOOR"] = "0"
    with small_disk(fleet.home, "8m"):
        fleet.cli("up", "--detach")
        supervisor = fleet.supervisor_pid()
        assert supervisor is not None
        reserve = fleet.home / "reserve"
        try:
            wait_until(lambda: kept_back(reserve) >= 256 * 1024, "room is kept back")
            task_id = fleet.add_scenario({"wait_for": str(go)}, {"print": "done"})
            wait_until(lambda: "run.started" in fleet.kinds(task_id), "the agent runs")
            [run] = fleet.show(task_id)["runs"]
            output = fleet.home / "runs" / run["id"] / "out.log"
            wait_until(lambda: output.stat().st_size > 0, "it has said its first words: later ones fit beside them")
            fill(fleet.home / "ballast")
            wait_until(lambda: not has_room(fleet) or not reserve.exists(), "the store is full")
            go.touch()
            wait_until(lambda: not reserve.exists(), "the reserve is given up")
            wait_until(lambda: [a for a in fleet.json("alerts") if a["key"] == "disk:full"], "an alert tells it")
            assert "is full" in fleet.cli("alerts").stdout
            (fleet.home / "ballast").unlink()
            assert fleet.wait_state(task_id, "completed")["outcome"] == "completed"
            wait_until(lambda: kept_back(reserve) >= 256 * 1024, "room is kept back again")
            assert fleet.supervisor_pid() == supervisor
        finally:
            (fleet.home / "ballast").unlink(missing_ok=True)
            fleet.cli("down", "--now", code=None)
            wait_until(lambda: not lives(supervisor), "the supervisor has stopped")
        assert fleet.doctor().endswith("All well.\n")


def test_a_supervisor_starts_on_a_full_disk(fleet: Fleet) -> None:
    """With the reserve of the last one it starts, or it says clearly that it cannot; either way nothing is lost."""
    fleet.env["HOLDFAST_DISK_FLOOR"] = "0"
    with small_disk(fleet.home, "8m"):
        fleet.cli("up", "--idle-exit", "0s")
        task_id = fleet.add("kept", command=("true",))
        assert kept_back(fleet.home / "reserve") >= 256 * 1024
        fill(fleet.home / "ballast")
        told = fleet.root / "told"
        with told.open("wb") as log:
            starting = fleet.start("up", "--idle-exit", "0s", stdout=log.fileno(), stderr=log.fileno())
        wait_until(lambda: "full" in told.read_text(), "it starts, or it ends, and says that the disk is full")
        starting.kill()
        starting.wait()
        assert fleet.json("ps", "--all")[0]["id"] == task_id
        (fleet.home / "ballast").unlink()
        fleet.cli("up", "--idle-exit", "0s")
        assert fleet.show(task_id)["state"] == "completed"
        assert fleet.doctor().endswith("All well.\n")


# -- databases ---------------------------------------------------------------------------------------------------------


def test_a_directory_in_place_of_the_database(fleet: Fleet) -> None:
    fleet.home.mkdir(mode=0o700)
    path = fleet.home / "holdfast.db"
    path.mkdir()
    for arguments in (("ps",), *WRITING):
        line = refused(fleet, *arguments, code=69)
        assert f"{path} cannot be used: it is a directory" in line, arguments
    path.rmdir()
    fleet.add("x", command=("true",))


@pytest.mark.parametrize("mode", [0o400, 0o000])
def test_a_database_without_permission(fleet: Fleet, mode: int) -> None:
    task_id = fleet.add("kept", command=("true",))
    path = fleet.home / "holdfast.db"
    path.chmod(mode)
    for arguments in (("add", "x", "--", "true"), ("cancel", task_id), ("up",)):
        line = refused(fleet, *arguments, prefix=without_rights(), code=69)
        assert str(path) in line, arguments
        assert "may write" in line, arguments
    path.chmod(0o600)
    assert [(row["id"], row["state"]) for row in fleet.json("ps")] == [(task_id, "queued")]
    fleet.cli("cancel", task_id)


def test_a_log_that_was_deleted(fleet: Fleet) -> None:
    """What was checkpointed is there and whole; a store whose only copy was in the log is refused, not made again."""
    task_id = fleet.add("kept", command=("true",))
    path = fleet.home / "holdfast.db"
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    assert [row["id"] for row in fleet.json("ps")] == [task_id]
    fleet.add("x", command=("true",))
    assert fleet.doctor().endswith("All well.\n")
    apsw.Connection(str(fleet.root / "bare.db")).execute("PRAGMA journal_mode = WAL; PRAGMA user_version = 0; VACUUM")
    bare = (fleet.root / "bare.db").read_bytes()
    assert len(bare) >= 512
    path.write_bytes(bare)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    for arguments in (("add", "x", "--", "true"), ("up",), ("ps",)):
        line = refused(fleet, *arguments, code=69)
        assert str(path) in line
        assert path.read_bytes() == bare


def test_a_database_of_somebody_else(fleet: Fleet) -> None:
    """A good SQLite file that is not ours, under our name and version: refused, not filled with our tables."""
    fleet.add("x", command=("true",))
    path = fleet.home / "holdfast.db"
    version = apsw.Connection(str(path)).execute("PRAGMA user_version").get
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    theirs = apsw.Connection(str(path))
    theirs.execute(f"CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1); PRAGMA user_version = {version}")
    theirs.close()
    for arguments in (("ps",), ("add", "x", "--", "true"), ("up",)):
        line = refused(fleet, *arguments, code=69)
        assert "was changed by something other than Holdfast" in line, arguments
        assert "backups" in line
    assert apsw.Connection(str(path)).execute("SELECT x FROM theirs").get == 1


_HOLD = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""
_HOLD_TURN = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
_IMPATIENT = """
import sys
from holdfast.store.sqlite.engine import connection, store
connection.BUSY_TIMEOUT_MS, store.PATIENCE = 300, 0.3
from holdfast.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


@contextlib.contextmanager
def holding(script: str, path: Path) -> Iterator[int]:
    holder = subprocess.Popen([sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


@pytest.mark.parametrize(("script", "name"), [(_HOLD, "holdfast.db"), (_HOLD_TURN, "turnstile.lock")])
def test_a_store_that_stays_locked(fleet: Fleet, script: str, name: str) -> None:
    """It gives up after its patience (shortened here) and says who holds it; looking is never held up."""
    task_id = fleet.add("kept", command=("true",))
    with holding(script, fleet.home / name) as pid:
        for arguments in (("add", "x", "--", "true"), ("cancel", task_id)):
            done = subprocess.run(
                [sys.executable, "-c", _IMPATIENT, *arguments],
                cwd=fleet.repo,
                env=fleet.env,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 69, done.stderr
            [line] = done.stderr.splitlines()
            assert f"held by pid {pid}" in line
            assert "Nothing was written" in line
        assert [(row["id"], row["state"]) for row in fleet.json("ps")] == [(task_id, "queued")]
    fleet.cli("cancel", task_id)


def test_a_writer_that_waits_for_a_lock_goes_on(fleet: Fleet) -> None:
    """Not every lock is trouble: a command waits for its turn, and then does what it was told."""
    fleet.add("first", command=("true",))
    with holding(_HOLD, fleet.home / "holdfast.db"):
        waiting = fleet.start("add", "second", "--json", "--", "true")
        wait_until(lambda: _waits_in_turn(fleet, waiting.pid), "it has taken its turn and waits for the database")
    out, _err = waiting.communicate(timeout=60)
    assert json.loads(out)["state"] == "queued"
    assert [row["prompt"] for row in fleet.json("ps")] == ["first", "second"]


def _waits_in_turn(fleet: Fleet, pid: int) -> bool:
    inode = (fleet.home / "turnstile.lock").stat().st_ino
    locks = Path("/proc/locks").read_text().splitlines()
    return any("FLOCK" in line and f" {pid} " in line and f":{inode} " in line for line in locks)


def test_every_copy_of_a_store_can_take_its_place(fleet: Fleet) -> None:
    """The remedy that the refusals name: the newest copy from backups/ in place of the damaged file."""
    task_id = fleet.add("kept", command=("true",))
    fleet.cli("up", "--idle-exit", "0s")
    path = fleet.home / "holdfast.db"
    path.write_bytes(b"garbage" * 1000)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    assert "backups" in refused(fleet, "ps", code=69)
    newest = sorted((fleet.home / "backups").iterdir())[-1]
    os.replace(newest, path)
    assert [row["id"] for row in fleet.json("ps", "--all")] == [task_id]
    fleet.cli("up", "--idle-exit", "0s")
    assert fleet.show(task_id)["state"] == "completed"
