"""Retention, from outside: what is old goes, what somebody may still need stays, whatever dies in between."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import Fleet, processes_of, wait_until
from tests.sampling import sampled

from holdfast.api.queries import Queries
from holdfast.base.errors import NotFound

AT_ONCE = {"HOLDFAST_RETENTION_EVENTS": "1ms", "HOLDFAST_RETENTION_RUNS": "1ms", "HOLDFAST_RETENTION_TASKS": "1ms"}
POINTS = "rundir.delete rundir.deleted tx.history.events tx.history.task tx.history.small".split()  # noqa: SIM905


def finish(fleet: Fleet, env: dict[str, str] | None = None) -> None:
    supervisor = fleet.up("--agents", 2, "--idle-exit", "0s", env=env)
    assert supervisor.wait(timeout=60) == 0, fleet.log()


def two_ends(fleet: Fleet) -> tuple[str, str]:
    """(a task that left nothing, a task that left a branch)"""
    nothing = fleet.add("nothing", command=("sh", "-c", "echo said"))
    branch = fleet.add("something", command=("sh", "-c", "echo new > new.txt"))
    finish(fleet)
    return nothing, branch


def wait_gone(fleet: Fleet, task_id: str) -> None:
    wait_until(lambda: fleet.show(task_id)["workspace"]["state"] == "gone", "its workspace is removed")


def rows(fleet: Fleet, statement: str) -> list[Any]:
    with closing(sqlite3.connect(fleet.home / "holdfast.db")) as database:
        return database.execute(statement).fetchall()


def test_nothing_goes_before_its_time(fleet: Fleet) -> None:
    nothing, branch = two_ends(fleet)
    before = len(fleet.events(nothing))
    finish(fleet)
    assert len(fleet.events(nothing)) == before
    assert len(list((fleet.home / "runs").iterdir())) == 2
    assert "retention.completed" not in [event["kind"] for event in fleet.events()]
    assert fleet.cli("logs", branch).returncode == 0


def test_old_history_goes_and_what_is_needed_stays(fleet: Fleet) -> None:
    """The task without a branch is forgotten; the one with a branch keeps its row, its end and its runs' records."""
    nothing, branch = two_ends(fleet)
    waiting = fleet.add("later", "--delay", "9h", command=("true",))
    highest = fleet.events()[-1]["seq"]
    supervisor = fleet.up(env=AT_ONCE)
    told = wait_until(
        lambda: [event for event in fleet.events() if event["kind"] == "retention.completed"], "old history went"
    )
    fleet.cli("down")
    assert supervisor.wait(timeout=60) == 0
    assert told[0]["data"]["tasks"] == 1
    assert told[0]["data"]["runs"] == 2
    with pytest.raises(NotFound):
        Queries(str(fleet.home)).task(nothing)
    assert rows(fleet, f"SELECT count(*) FROM events WHERE task_id = '{nothing}'") == [(0,)]
    assert fleet.kinds(branch) == ["task.completed"]
    assert fleet.show(branch)["runs"][0]["outcome"] == "completed"
    assert fleet.file_on_branch(f"holdfast/{branch}", "new.txt") == "new"
    assert fleet.kinds(waiting) == ["task.queued"]
    assert list((fleet.home / "runs").iterdir()) == []
    assert told[0]["seq"] > highest
    assert "retention" in fleet.cli("logs", branch, code=3).stderr
    assert "All well." in fleet.doctor()


def test_a_forgotten_task_takes_its_output_along(fleet: Fleet) -> None:
    """Also when output is kept for ever: a directory without a record would be a stray."""
    nothing, branch = two_ends(fleet)
    finish(fleet, {**AT_ONCE, "HOLDFAST_RETENTION_RUNS": "forever"})
    assert [task["id"] for task in fleet.json("ps", "--all")] == [branch]
    assert [path.name for path in (fleet.home / "runs").iterdir()] == [fleet.show(branch)["runs"][0]["id"]]
    assert nothing not in fleet.cli("events", "--json").stdout
    assert "All well." in fleet.doctor()


def test_the_numbers_of_events_only_rise(fleet: Fleet) -> None:
    """Who follows from the last number neither misses nor repeats anything, even when everything was forgotten."""
    two_ends(fleet)
    highest = rows(fleet, "SELECT max(seq) FROM events")[0][0]
    with closing(sqlite3.connect(fleet.home / "holdfast.db")) as database, database:
        database.execute("DELETE FROM events")
    assert fleet.cli("events", "--json").stdout == ""
    assert Queries(str(fleet.home)).last_seq() == highest
    task_id = fleet.add("next", command=("true",))
    assert [event["seq"] for event in fleet.events(task_id)] == [highest + 1]
    assert [event["seq"] for event in fleet.json("events", "--after", highest)] == [highest + 1]


def test_unfinished_and_saved_and_alarming_stays(fleet: Fleet) -> None:
    """A paused task's history and logs, a task with saved work, an open alert: none of it is old, whatever its age."""
    paused = fleet.add_scenario({"limit": {"kind": "usage", "for": "9h"}})
    saved = fleet.add_scenario({"write": {"path": "half.txt", "text": "half\n"}}, {"exit": 1})
    parent = fleet.add("parent", command=("true",))
    child = fleet.add("child", "--after", parent, "--delay", "9h", command=("true",))
    supervisor = fleet.up()
    fleet.wait_state(paused, "paused")
    fleet.wait_state(saved, "failed")
    fleet.wait_state(parent, "completed")
    for task_id in (saved, parent):
        wait_gone(fleet, task_id)
    fleet.cli("down")
    supervisor.wait(timeout=60)
    kinds = fleet.kinds(paused)
    with closing(sqlite3.connect(fleet.home / "holdfast.db")) as database, database:
        for key, acked in (("open", None), ("seen", 1.0)):
            database.execute(
                "INSERT INTO alerts (key, at, level, message, remedy, acked_at) VALUES (?, 1, 'critical', 'm', 'r', ?)",
                (key, acked),
            )
            database.execute(
                "INSERT INTO events (at, level, component, kind, message, reason, data)"
                " VALUES (1, 'critical', 'alerts', 'alert.raised', 'm', ?, '{}')",
                (key,),
            )
    again = fleet.up(env=AT_ONCE)
    wait_until(lambda: "retention.completed" in [event["kind"] for event in fleet.events()], "old history went")
    fleet.cli("down")
    again.wait(timeout=60)
    assert fleet.kinds(paused) == kinds
    assert rows(fleet, "SELECT key FROM alerts") == [("open",)]
    assert rows(fleet, "SELECT reason FROM events WHERE kind = 'alert.raised'") == [("open",)]
    runs = {path.name for path in (fleet.home / "runs").iterdir()}
    assert runs == {run["id"] for run in fleet.show(paused)["runs"]}
    assert fleet.kinds(saved) == ["task.failed"]
    fleet.cli("salvage", "restore", saved, "--branch", "back")
    assert fleet.git("show", "back:half.txt") == "half"
    assert fleet.show(child)["needs"] == [{"id": parent, "state": "completed"}]
    assert "All well." in fleet.doctor()


@pytest.mark.parametrize("point", sampled(POINTS, keep=2))
def test_killed_while_forgetting(fleet: Fleet, point: str) -> None:
    """kill -9 at each step: the doctor finds nothing wrong, and the next pass finishes the work."""
    nothing, branch = two_ends(fleet)
    finish(fleet)  # a supervisor whose row is old enough to be dropped
    dying = fleet.up("--idle-exit", "0s", env={**AT_ONCE, "HOLDFAST_FAULT": point})
    assert dying.wait(timeout=60) == -signal.SIGKILL, fleet.log()
    assert "All well." in fleet.doctor()
    finish(fleet, AT_ONCE)
    assert "All well." in fleet.doctor()
    assert [task["id"] for task in fleet.json("ps", "--all")] == [branch]
    assert nothing not in str(rows(fleet, "SELECT task_id FROM events"))
    assert list((fleet.home / "runs").iterdir()) == []


def test_a_long_log_is_put_aside(fleet: Fleet) -> None:
    """The detached supervisor continues in a new file; three old ones are kept; a crash in between loses nothing."""
    fleet.home.mkdir(mode=0o700)
    log = fleet.home / "supervisor.log"
    for number in (1, 2, 3):
        Path(f"{log}.{number}").write_text(f"old {number}\n")
    log.write_text("long\n" * 1000)
    fleet.cli("up", "--detach", env={"HOLDFAST_RETENTION_LOG_SIZE": "1KiB"})
    pid = fleet.supervisor_pid()
    aside = Path(f"{log}.1")  # is not there while the older ones are renamed
    wait_until(lambda: aside.exists() and aside.read_text().startswith("long"), "the log was put aside")
    task_id = fleet.add("x", command=("true",))
    wait_until(lambda: log.exists() and task_id in log.read_text(), "it continues in the new file")
    assert os.path.samefile(f"/proc/{pid}/fd/2", log)
    assert Path(f"{log}.2").read_text() == "old 1\n"
    assert Path(f"{log}.3").read_text() == "old 2\n"
    assert not Path(f"{log}.4").exists()
    fleet.cli("down")
    wait_until(lambda: processes_of(fleet.home) == {}, "it is gone")


@pytest.mark.parametrize("point", ["log.rename", "log.renamed", "log.rotated"])
def test_killed_while_the_log_is_put_aside(fleet: Fleet, point: str) -> None:
    fleet.cli("init")
    log = fleet.home / "supervisor.log"
    log.write_text("long\n" * 1000)
    env = {**fleet.env, "HOLDFAST_RETENTION_LOG_SIZE": "1KiB", "HOLDFAST_FAULT": point}
    fleet.cli("up", "--detach", env=env, code=None)
    wait_until(lambda: fleet.supervisor_pid() is None and processes_of(fleet.home) == {}, "it died")
    fleet.cli("up", "--detach", env={"HOLDFAST_RETENTION_LOG_SIZE": "1KiB"})
    wait_until(lambda: Path(f"{log}.1").exists() and Path(f"{log}.1").read_text().startswith("long"), "put aside")
    fleet.cli("down")
    wait_until(lambda: processes_of(fleet.home) == {}, "it is gone")
