"""Backup and restore, from outside: one checked file, while everything runs; back again, whatever dies in between."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import sqlite3
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import PATIENCE, Fleet, processes_of, wait_filled, wait_until, waits_for_lock

ADDING = "restore.unpacked shadow.restore shadow.restored restore.added restore.prepared".split()  # noqa: SIM905
CONTENT_POINTS = [*ADDING, "restore.kept", "restore.switch", "restore.switched", "restore.done"]
FILE_POINTS = [*ADDING, "restore.aside", "restore.rename", "restore.renamed", "restore.done"]
BACKUP_POINTS = ["backup.copied", "backup.bundled", "backup.named"]


def ids(fleet: Fleet) -> set[str]:
    return {row["id"] for row in fleet.json("ps", "--all")}


def finish(fleet: Fleet) -> None:
    supervisor = fleet.up("--agents", 2, "--idle-exit", "0s")
    assert supervisor.wait(timeout=60) == 0, fleet.log()


def with_saved_work(fleet: Fleet) -> str:
    """A failed task whose half-done file lives in the shadow only."""
    task_id = fleet.add_scenario({"write": {"path": "half.txt", "text": "half\n"}}, {"exit": 1})
    finish(fleet)
    return task_id


def value(fleet: Fleet, statement: str) -> Any:
    with closing(sqlite3.connect(fleet.home / "holdfast.db")) as database:
        return database.execute(statement).fetchone()[0]


def check_whole(fleet: Fleet) -> None:
    assert value(fleet, "PRAGMA integrity_check") == "ok"
    assert "All well." in fleet.doctor()


class TestBackup:
    def test_while_everything_runs(self, fleet: Fleet) -> None:
        """A single file with a manifest; the supervisor and its agent do not notice."""
        saved = with_saved_work(fleet)
        supervisor = fleet.up()
        running = fleet.add("wait", command=("sh", "-c", f"until [ -e {fleet.root}/go ]; do sleep 0.1; done"))
        fleet.wait_state(running, "running")
        target = fleet.root / "all.tar"
        (made,) = fleet.json("backup", target)
        assert made == {
            "path": str(target),
            "size": target.stat().st_size,
            "tasks": 2,
            "salvages": 1,
            "store_only": False,
        }
        with tarfile.open(target) as tar:
            names = tar.getnames()
            content = tar.extractfile("manifest.json")
            assert content is not None
            manifest = json.load(content)
        assert names[:2] == ["manifest.json", "store.db"]
        assert set(manifest["members"]) == set(names[1:])
        assert manifest["counts"]["tasks"] == {"failed": 1, "running": 1}
        assert target.stat().st_mode & 0o077 == 0
        (fleet.root / "go").touch()
        fleet.wait_state(running, "completed")
        fleet.cli("down")
        assert supervisor.wait(timeout=PATIENCE) == 0
        assert fleet.show(saved)["state"] == "failed"

    def test_names_and_overwriting(self, fleet: Fleet) -> None:
        fleet.cli("init")
        made = [Path(fleet.json("backup")[0]["path"]) for _ in range(2)]
        assert {path.parent for path in made} == {fleet.home / "backups"}
        assert len(set(made)) == 2
        target = fleet.root / "mine.db"
        target.write_text("precious")
        assert "--force" in fleet.cli("backup", target, code=4).stderr
        assert target.read_text() == "precious"
        fleet.cli("backup", "--store-only", "--force", target)
        with closing(sqlite3.connect(target)) as copy:
            assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        fleet.cli("backup", fleet.root / "no" / "such" / "place", code=2)
        assert sorted(path.name for path in fleet.root.glob("*.part")) == []

    @pytest.mark.parametrize("point", BACKUP_POINTS)
    def test_killed_in_between(self, fleet: Fleet, point: str) -> None:
        """No half file under the real name; the next one works and leaves nothing behind."""
        fleet.cli("init")
        target = fleet.root / "all.tar"
        fleet.cli("backup", target, env={"HOLDFAST_FAULT": point}, code=-signal.SIGKILL)
        assert not target.exists()
        fleet.cli("backup", target)
        assert [path.name for path in fleet.root.glob("*.part")] == []
        assert not (fleet.home / "backups" / ".staging").exists()

    def test_a_full_disk(self, fleet: Fleet) -> None:
        fleet.cli("init")
        target = fleet.root / "all.tar"
        said = fleet.cli("backup", target, env={"HOLDFAST_FAULT": "backup.named:1:ENOSPC"}, code=69).stderr
        assert "No space left" in said
        assert not target.exists()


class TestRestore:
    def test_onto_an_empty_machine(self, fleet: Fleet) -> None:
        """The home is lost: tasks, history and saved work come back from one file."""
        saved = with_saved_work(fleet)
        target = fleet.root / "all.tar"
        (fleet.home / "trust.json").write_text('{"trusted": []}')
        fleet.cli("backup", target)
        events = len(fleet.events(saved))
        shutil.rmtree(fleet.home)
        fleet.cli("restore", target, "--yes")
        assert ids(fleet) == {saved}
        assert len(fleet.events(saved)) == events
        assert json.loads((fleet.home / "trust.json").read_text()) == {"trusted": []}
        fleet.cli("salvage", "restore", saved, "--branch", "back")
        assert fleet.git("show", "back:half.txt") == "half"
        check_whole(fleet)

    def test_over_a_living_store(self, fleet: Fleet) -> None:
        """The current store is kept aside; fences and numbers of events only rise; newer saved work stays."""
        first = with_saved_work(fleet)
        target = fleet.root / "all.tar"
        fleet.cli("backup", target)
        second = with_saved_work(fleet)
        fleet.cli("retry", first)
        finish(fleet)
        seq = value(fleet, "SELECT max(seq) FROM events")
        fence = value(fleet, f"SELECT fence FROM tasks WHERE id = '{first}'")
        said = fleet.cli("restore", target, "--yes").stdout
        assert ids(fleet) == {first}
        assert value(fleet, f"SELECT fence FROM tasks WHERE id = '{first}'") > fence
        (told,) = [event for event in fleet.events() if event["kind"] == "store.restored"]
        assert told["seq"] > seq
        (kept,) = (fleet.home / "backups").glob("before-restore-*.db")
        assert str(kept) in said
        assert value(fleet, "PRAGMA integrity_check") == "ok"
        problems = [line for line in fleet.cli("doctor", code=1).stdout.splitlines() if line.startswith("problem")]
        assert len(problems) == 2  # the directories of two runs that came later: told, not deleted
        assert all("run directory" in line for line in problems)
        fleet.cli("restore", kept, "--yes")  # and back again, from the bare store
        assert ids(fleet) == {first, second}
        fleet.cli("salvage", "restore", second, "--branch", "back")
        assert fleet.git("show", "back:half.txt") == "half"

    @pytest.mark.parametrize("keep_home", [True, False])
    def test_a_task_that_was_running_goes_on(self, fleet: Fleet, keep_home: bool) -> None:
        """Backed up while its agent ran; its processes are gone when the store comes back: it runs again, once."""
        supervisor = fleet.up()
        count = fleet.root / "count"
        script = f"echo x >> {count}; [ -e {fleet.root}/go ] || exec sleep 1000; echo new > new.txt"
        task_id = fleet.add("count", command=("sh", "-c", script))
        wait_until(count.exists, "the agent runs")
        fleet.wait_state(task_id, "running")
        fleet.cli("backup", fleet.root / "all.tar")
        fleet.cli("down", "--now")
        supervisor.wait(timeout=PATIENCE)
        if keep_home:
            fleet.cli("cancel", task_id)
        else:
            shutil.rmtree(fleet.home)
            fleet.git("worktree", "prune")
        fleet.cli("restore", fleet.root / "all.tar", "--yes")
        assert fleet.show(task_id)["state"] == "running"
        (fleet.root / "go").touch()
        finish(fleet)
        assert fleet.show(task_id)["state"] == "completed"
        assert [run["outcome"] for run in fleet.show(task_id)["runs"]][-1] == "completed"
        assert fleet.file_on_branch(f"holdfast/{task_id}", "new.txt") == "new"
        assert len(count.read_text().split()) == 2

    def test_work_in_a_workspace_that_was_only_intended_is_not_lost(self, fleet: Fleet) -> None:
        """Backed up while it was being made. Its agent has worked there since; the store is lost."""
        supervisor = fleet.up()
        task_id = fleet.add(
            "work",
            command=(
                "sh",
                "-c",
                f"[ -e work ] && exit; mkdir {fleet.root}/ran || exit 1; echo precious > work; exec sleep 1000",
            ),
        )
        work = fleet.home / "workspaces" / fleet.show(task_id)["repo_id"] / task_id / "work"
        wait_filled(work, "the agent works")
        fleet.cli("down", "--now")
        supervisor.wait(timeout=PATIENCE)
        with closing(sqlite3.connect(fleet.home / "holdfast.db")) as database, database:  # as it was then
            database.execute("UPDATE workspaces SET state = 'intended'")
        fleet.cli("backup", fleet.root / "all.tar")
        fleet.cli("restore", fleet.root / "all.tar", "--yes")
        finish(fleet)
        assert fleet.show(task_id)["state"] == "completed"
        assert fleet.file_on_branch(f"holdfast/{task_id}", "work") == "precious"

    def test_a_damaged_store_with_its_wal(self, fleet: Fleet) -> None:
        """A -wal of the old file beside the new one would corrupt it: it goes aside with the damaged file."""
        first = with_saved_work(fleet)
        target = fleet.root / "all.tar"
        fleet.cli("backup", target)
        database = fleet.home / "holdfast.db"
        with closing(sqlite3.connect(database)) as holding:  # keeps the -wal from being removed
            holding.execute("SELECT 1 FROM tasks").fetchall()
            fleet.add("later", command=("true",))
            assert Path(f"{database}-wal").stat().st_size > 0
            wal = Path(f"{database}-wal").read_bytes()
        Path(f"{database}-wal").write_bytes(wal)
        database.write_bytes(b"SQLite format 3\0" + b"\xff" * 20000)
        assert "holdfast restore" in fleet.cli("ps", code=69).stderr
        fleet.cli("restore", target, "--yes")
        assert ids(fleet) == {first}
        (aside,) = (fleet.home / "backups").glob("damaged-*.db")
        assert aside.read_bytes().startswith(b"SQLite format 3\0\xff")
        assert Path(f"{aside}-wal").read_bytes() == wal
        check_whole(fleet)

    def test_killed_over_a_living_store(self, fleet: Fleet) -> None:
        """Old or new, never none, never a mixture; and the same command then finishes."""
        first = with_saved_work(fleet)
        target = fleet.root / "all.tar"
        fleet.cli("backup", target)
        for point in CONTENT_POINTS:
            before = {*ids(fleet), fleet.add("later", command=("true",))}
            fleet.cli("restore", target, "--yes", env={"HOLDFAST_FAULT": point}, code=-signal.SIGKILL)
            assert ids(fleet) == ({first} if point in ("restore.switched", "restore.done") else before), point
            check_whole(fleet)
        fleet.cli("restore", target, "--yes")
        assert ids(fleet) == {first}
        check_whole(fleet)

    def test_killed_over_a_damaged_store(self, fleet: Fleet) -> None:
        """There is a file at the path at any time: an absent one would be taken for a beginning."""
        first = with_saved_work(fleet)
        target = fleet.root / "all.tar"
        fleet.cli("backup", target)
        for point in FILE_POINTS:
            (fleet.home / "holdfast.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 20000)
            fleet.cli("restore", target, "--yes", env={"HOLDFAST_FAULT": point}, code=-signal.SIGKILL)
            assert (fleet.home / "holdfast.db").stat().st_size > 0, point
            fleet.cli("ps", code=0 if point in ("restore.renamed", "restore.done") else 69)
            assert fleet.cli("add", "x", "--", "true", code=None).returncode in (0, 69), point
        fleet.cli("restore", target, "--yes")
        assert ids(fleet) == {first}
        check_whole(fleet)

    @pytest.mark.parametrize("point", ["restore.unpacked", "restore.prepared", "restore.switch"])
    def test_a_full_disk(self, fleet: Fleet, point: str) -> None:
        """One line, the old store as it was, nothing left over; with room it works."""
        fleet.cli("init")
        target = fleet.root / "all.tar"
        fleet.cli("backup", target)
        task_id = fleet.add("later", command=("true",))
        said = fleet.cli("restore", target, "--yes", env={"HOLDFAST_FAULT": f"{point}:1:ENOSPC"}, code=69).stderr
        assert "No space left" in said
        assert ids(fleet) == {task_id}
        assert not (fleet.home / ".restoring").exists()
        fleet.cli("restore", target, "--yes")
        assert ids(fleet) == set()

    def test_a_task_that_is_just_being_added_is_not_lost(self, fleet: Fleet) -> None:
        """`add` waits for its turn while the store is switched, and then adds to the one that is there."""
        fleet.cli("init")
        fleet.cli("backup", fleet.root / "all.tar")
        env = {"HOLDFAST_FAULT": "restore.switch:1:stop"}
        restoring = fleet.start(
            "restore", fleet.root / "all.tar", "--yes", env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(
            lambda: Path(f"/proc/{restoring.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it stopped"
        )
        adding = fleet.start("add", "x", "--json", "--", "true")
        wait_until(lambda: waits_for_lock(adding.pid), "the add waits for its turn")
        restoring.send_signal(signal.SIGCONT)
        assert restoring.wait(timeout=PATIENCE) == 0
        out, _err = adding.communicate(timeout=PATIENCE)
        assert ids(fleet) == {json.loads(out)["id"]}

    def test_asks_first(self, fleet: Fleet) -> None:
        """On a terminal a person has to type yes; without one --yes is needed."""
        fleet.cli("init")
        fleet.cli("backup", fleet.root / "all.tar")
        task_id = fleet.add("later", command=("true",))
        assert "--yes" in fleet.cli("restore", fleet.root / "all.tar", code=1).stderr
        for answer, left in ((b"no\n", {task_id}), (b"yes\n", set())):
            ours, theirs = pty.openpty()
            process = fleet.start(
                "restore", fleet.root / "all.tar", stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            os.write(ours, answer)
            assert process.wait(timeout=PATIENCE) == (1 if left else 0)
            os.close(ours)
            os.close(theirs)
            assert ids(fleet) == left


class TestRefusals:
    def test_while_a_supervisor_or_an_agent_lives(self, fleet: Fleet) -> None:
        supervisor = fleet.up()
        task_id = fleet.add("wait", command=("sleep", "1000"))
        fleet.wait_state(task_id, "running")
        fleet.wait_started(task_id)
        target = fleet.root / "all.tar"
        fleet.cli("backup", target)
        assert "holdfast down" in fleet.cli("restore", target, "--yes", code=4).stderr
        fleet.kill_supervisor(supervisor)
        assert "still running" in fleet.cli("restore", target, "--yes", code=4).stderr
        assert processes_of(fleet.home)
        again = fleet.up()
        fleet.cli("down", "--now")
        again.wait(timeout=PATIENCE)
        fleet.cli("restore", target, "--yes")

    def test_what_is_no_backup(self, fleet: Fleet) -> None:
        """Each is refused in one line, and the store is as it was."""
        fleet.cli("init")
        task_id = fleet.add("here", command=("true",))
        good = fleet.root / "good.tar"
        fleet.cli("backup", good)
        raw = good.read_bytes()
        place = raw.index(b"SQLite format 3\0")
        bad = {
            "text": b"hello\n",
            "empty": b"",
            "cut": raw[: len(raw) // 2],
            "flipped": raw[: place + 5000] + bytes([raw[place + 5000] ^ 1]) + raw[place + 5001 :],
        }
        for name, content in bad.items():
            path = fleet.root / f"{name}.tar"
            path.write_bytes(content)
            said = fleet.cli("restore", path, "--yes", code=1).stderr
            assert len(said.splitlines()) == 1, said
            assert ids(fleet) == {task_id}
        fleet.cli("restore", fleet.root / "none.tar", "--yes", code=3)
        fleet.cli("restore", code=2)
        check_whole(fleet)

    def test_from_the_future_or_with_a_stranger_in_it(self, fleet: Fleet) -> None:
        fleet.cli("init")
        future = fleet.root / "future.db"
        fleet.cli("backup", "--store-only", future)
        with closing(sqlite3.connect(future)) as copy:
            copy.execute("PRAGMA user_version = 99")
        assert "schema 99" in fleet.cli("restore", future, "--yes", code=1).stderr
        good, strange = fleet.root / "good.tar", fleet.root / "strange.tar"
        fleet.cli("backup", good)
        shutil.copy(good, strange)
        (fleet.root / "evil").write_text("x")
        with tarfile.open(strange, "a") as tar:
            tar.add(fleet.root / "evil", arcname="../../evil.json")
        assert "manifest does not name" in fleet.cli("restore", strange, "--yes", code=1).stderr
        assert list(fleet.root.parent.glob("evil*")) == []


def test_what_an_old_backup_brings_back_is_not_deleted_for_its_age(fleet: Fleet) -> None:
    """Into the home that it was made of, 200 days later: a supervisor would have deleted it in its first second."""
    task_id = with_saved_work(fleet)
    fleet.cli("backup", fleet.root / "old.tar")
    fleet.env["HOLDFAST_CLOCK_OFFSET"] = str(200 * 86400)
    (fleet.home / "clock.json").unlink()  # nobody set the clock: that time has passed
    fleet.up()
    wait_until(lambda: "retention.completed" in {event["kind"] for event in fleet.events()}, "its time is over")
    fleet.cli("down")
    assert ids(fleet) == set()
    fleet.cli("restore", fleet.root / "old.tar", "--yes")
    finish(fleet)
    assert ids(fleet) == {task_id}
    seen = json.loads((fleet.home / "clock.json").read_text())
    assert [round(by / 86400) for _to, by in seen["leaps"]] == [200]
