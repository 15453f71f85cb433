"""R-CRASH-10: what the screen says of the supervisor and the store, whatever happens to them while it is open."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from tests.fleet import PATIENCE, Fleet, wait_until
from tests.tui.screen import play, text_of, until, until_seen
from textual.pilot import Pilot

from holdfast.api.fleet.status import LEASE
from holdfast.store.sqlite.engine import copies
from holdfast.supervisor.settings import SupervisorSettings
from holdfast.tui.actions import runner
from holdfast.tui.app import Top
from holdfast.tui.widgets import status

LOCKER = """
import fcntl, sys
with open(sys.argv[1], "r+b") as shm:
    fcntl.lockf(shm, fcntl.LOCK_EX, 8, 120)
    print("locked", flush=True)
    sys.stdin.read()
"""


def opened(fleet: Fleet) -> apsw.Connection:
    """As patient as ours: others come and go."""
    connection = apsw.Connection(str(fleet.home / "holdfast.db"))
    connection.set_busy_timeout(30_000)
    return connection


def change(fleet: Fleet, statement: str) -> None:
    with contextlib.closing(opened(fleet)) as connection:
        connection.execute(statement)


def stop_and_change(fleet: Fleet, supervisor: subprocess.Popen[bytes], statement: str) -> None:
    """Stopped within a transaction it would hold the store: then it continues, and is stopped at another time."""

    def done() -> bool:
        supervisor.send_signal(signal.SIGSTOP)
        wait_until(lambda: _state_of(supervisor.pid) == b"T", "it is stopped")
        connection = apsw.Connection(str(fleet.home / "holdfast.db"))
        try:
            connection.execute(statement)
        except apsw.BusyError:
            supervisor.send_signal(signal.SIGCONT)
            return False
        finally:
            connection.close()
        return True

    wait_until(done, "it is stopped between two transactions")


def _state_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """By another process: locks of one's own do not count."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-S", "-c", LOCKER, path], stdin=pipe, stdout=pipe) as locker:
        assert locker.stdout is not None
        assert locker.stdout.readline() == b"locked\n"
        yield


def test_the_supervisor_is_started_by_a_key_and_missed_when_it_is_killed(fleet: Fleet) -> None:
    """R-CRASH-10, R-CRASH-09: none, up, killed, up again, silent, of another version; a second start is refused."""
    task = fleet.add("write a poem", command=("true",))
    started: list[int] = []

    async def story(pilot: Pilot[None], _app: Top) -> None:
        await until_seen(pilot, task, "no supervisor is running", "1 queued")
        await pilot.press("U")
        await until_seen(pilot, "Started a supervisor (pid")  # told for some seconds only
        await until_seen(pilot, "supervisor up")
        pid = fleet.supervisor_pid()
        assert pid is not None
        started.append(pid)
        await until_seen(pilot, "nothing to do")  # it was done
        await pilot.press("U")
        await until_seen(pilot, "A supervisor is already running on", f"(pid {pid}).", "Nothing was changed.")
        await pilot.press("escape")
        os.kill(pid, signal.SIGKILL)
        await until_seen(pilot, "no supervisor is running")
        second = fleet.up()
        await until_seen(pilot, "supervisor up")
        try:
            stop_and_change(
                fleet,
                second,
                "UPDATE hosts SET lease_until = lease_until - 60, version = '99.1' WHERE state = 'active'",
            )
            await until_seen(pilot, f"supervisor pid {second.pid} has not answered for 1m", "it is version 99.1")
        finally:
            second.send_signal(signal.SIGCONT)
        await until_seen(pilot, "supervisor up")

    try:
        play(fleet, story)
    finally:
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert started
    assert SupervisorSettings(agents=1).lease_ttl == LEASE  # what "has not answered" is counted from


def test_an_action_that_waits_for_a_locked_store_holds_nobody_up(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-CRASH-10: no key waits for it, and neither does leaving; when the lock is gone it is done."""
    monkeypatch.setattr(runner, "SLOW", 0.2)
    task = fleet.add("write a poem", command=("true",))
    apps: list[Top] = []

    async def story(pilot: Pilot[None], app: Top) -> None:
        apps.append(app)
        await until_seen(pilot, task)
        await pilot.press("p")
        await until_seen(pilot, "Pause: not done yet")
        await pilot.press("2")
        await until(pilot, lambda: type(app.screen).__name__ == "WorkersView", "another screen is open")

    with contextlib.closing(opened(fleet)) as writing:
        writing.execute("BEGIN IMMEDIATE")
        play(fleet, story)  # returns, though the store is still locked
        assert not apps[0].actions.threads.finish(0.0)
        assert fleet.show(task)["state"] == "queued"
        writing.execute("ROLLBACK")
    assert apps[0].actions.threads.finish(PATIENCE)
    assert fleet.show(task)["state"] == "paused"


def test_the_screen_outlives_the_store(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-CRASH-10: a store that is locked, of a newer version, replaced by another file, or gone: the last picture
    stays, the header says why, and when it is back so is the screen."""
    monkeypatch.setattr(status, "PATIENCE", 0.2)
    first = fleet.add("the first one", command=("true",))
    store = fleet.home / "holdfast.db"
    with contextlib.closing(opened(fleet)) as connection:
        version = connection.execute("PRAGMA user_version").get

    async def story(pilot: Pilot[None], app: Top) -> None:
        await until_seen(pilot, first, "no supervisor is running")
        copies.copy_out(str(fleet.home), str(fleet.root / "copy.db"))

        second = fleet.add("the second one", command=("true",))
        await until_seen(pilot, first, second)
        with contextlib.closing(opened(fleet)) as writing:
            writing.execute("BEGIN IMMEDIATE")  # a writer that takes its time holds up no reader
            await pilot.press("5")
            await until_seen(pilot, "No workspaces")
            await pilot.press("1")
            await until_seen(pilot, second, "no supervisor is running")
            assert app.trouble is None

        with locked(f"{store}-shm"):
            await until_seen(pilot, "the store does not answer", second)
            await pilot.press("question_mark")  # and no key waits for it
            await until_seen(pilot, "Keys: fleet")
            await pilot.press("escape")
        await until_seen(pilot, "no supervisor is running", second)

        change(fleet, "PRAGMA user_version = 999")
        await until_seen(pilot, "has schema 999", "start `holdfast top` again", second)
        change(fleet, f"PRAGMA user_version = {version}")
        await until_seen(pilot, "no supervisor is running", second)

        copies.replace_file(str(fleet.home), str(fleet.root / "copy.db"), str(fleet.root / "aside.db"))  # as `restore`
        await until(pilot, lambda: second not in text_of(app) and first in text_of(app), "the copy is what is seen")

        fleet.home.rename(fleet.root / "purged")
        await until_seen(pilot, "There is no Holdfast store", first)
        third = fleet.add("the third one", command=("true",))
        await until_seen(pilot, third, "no supervisor is running")
        await until(pilot, lambda: first not in text_of(app), "nothing of the old store is seen")

    play(fleet, story, size=(600, 30))  # sentences stay on one line
    wait_until(lambda: fleet.supervisor_pid() is None, "nothing was started")
