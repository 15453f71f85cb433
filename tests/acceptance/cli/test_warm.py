"""The tests' own short cut: what is forked from a warm interpreter is what a user's shell would have started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.fleet import Fleet, _warm, lives, processes_of, wait_filled, wait_until

SEEN = ("PPid", "Umask", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "CapEff", "Uid", "Groups")


def surroundings(pid: int, root: str) -> dict[str, object]:
    """All that a process inherits, and that somebody may see."""
    place = Path(f"/proc/{pid}")
    links = []
    for file in (place / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            links.append(os.readlink(file).partition("[")[0])
    status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
    stat = (place / "stat").read_text().rpartition(")")[2].split()
    return {name: status[name].strip() for name in SEEN} | {
        "command": (place / "cmdline").read_bytes().rstrip(b"\0").split(b"\0"),
        "environment": (place / "environ").read_bytes().rstrip(b"\0").split(b"\0"),
        "cwd": os.readlink(place / "cwd"),
        "leads its session": int(stat[3]) == pid,
        "streams": [os.readlink(place / "fd" / str(number)) for number in range(3)],
        "open": sorted(name for name in links if not name.startswith(("/proc/", root))),  # beside what it works with
        "limits": (place / "limits").read_text(),
        "groups": (place / "cgroup").read_text(),
        "oom": (place / "oom_score_adj").read_text(),
    }


def at_rest(pid: int, root: str) -> dict[str, object]:
    """The same in two looks, one after another: while it starts, it opens and closes this and that."""
    seen: list[dict[str, object]] = [{}]

    def is_still() -> bool:
        seen.append(surroundings(pid, root))
        return seen[-1] == seen[-2]

    wait_until(is_still, "it has started, and nothing of it changes")
    return seen[-1]


def has_swept(fleet: Fleet, times: int) -> bool:
    return [event["kind"] for event in fleet.events()].count("sweep.completed") >= times


def catches(pid: int, number: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) & 1 << number - 1)


@contextlib.contextmanager
def supervisor_of(fleet: Fleet, *, warm: bool) -> Iterator[subprocess.Popen[bytes]]:
    kept, fleet.may_be_warm = fleet.may_be_warm, fleet.may_be_warm and warm
    try:
        yield fleet.up("--agents", 2)
    finally:
        fleet.may_be_warm = kept


def test_a_warm_supervisor_is_a_cold_one(fleet: Fleet) -> None:
    """The same parent, session, signals, mask, rights, limits, files, directory, command line and environment."""
    found: list[dict[str, object]] = []
    for warm in (True, False):
        with supervisor_of(fleet, warm=warm) as supervisor:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # in whatever order it learns to hear them
                wait_until(partial(catches, supervisor.pid, number), "it can be told to end")
            wait_until(partial(has_swept, fleet, len(found) + 1), "its first look around is over")
            found.append(at_rest(supervisor.pid, str(fleet.root)))
            assert found[-1]["PPid"] == str(os.getpid())
            supervisor.terminate()
            assert supervisor.wait(timeout=60) == 0
    assert found[0] == found[1]


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_the_same_life(fleet: Fleet, warm: bool) -> None:
    """An agent sees the environment that the supervisor was given, a killed supervisor leaves its keepers to the
    next one, and nothing is left at the end."""
    fleet.may_be_warm = fleet.may_be_warm and warm
    fleet.env |= {"HOLDFAST_ENV_PASS": "SEEN", "SEEN": "by the agent", "TZ": "Asia/Tokyo"}
    first = fleet.up()
    script = f"echo $SEEN $TZ > {fleet.root}/seen.txt; exec sleep 1000"
    task_id = fleet.add("work", command=("sh", "-c", script))
    run = fleet.wait_started(task_id)["runs"][-1]
    wait_filled(fleet.root / "seen.txt", "the agent has said what it sees")
    first.kill()
    assert first.wait() == -signal.SIGKILL
    assert not lives(first.pid)
    assert lives(run["pid"])
    dying = fleet.up(env={"HOLDFAST_FAULT": "tx.run.stopping:1:kill"})
    fleet.cli("cancel", task_id, code=None)  # 69 where it died before we looked
    assert dying.wait(timeout=60) == -signal.SIGKILL
    last = fleet.up("--idle-exit", "0s")
    assert fleet.wait_state(task_id, "cancelled")["runs"][-1]["pid"] == run["pid"]
    assert last.wait(timeout=60) == 0
    assert (fleet.root / "seen.txt").read_text() == "by the agent Asia/Tokyo\n"
    assert processes_of(fleet.root) == {}


def test_a_witness_sees_a_warm_supervisor(fleet: Fleet) -> None:
    """By its environment too: its directory does not name the home."""
    supervisor = fleet.up()
    assert processes_of(fleet.home)[supervisor.pid].rstrip().endswith("-m holdfast up")


def test_a_command_that_takes_too_long_is_ended(fleet: Fleet) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        fleet.cli("up", timeout=1)
    wait_until(lambda: processes_of(fleet.root) == {}, "what it had started goes with it")


def test_a_server_that_was_killed_is_started_anew(fleet: Fleet) -> None:
    """A supervisor that a test plays in its own process ends every child that it does not know."""
    assert "holdfast" in fleet.cli("help").stdout
    server = _warm()._process
    server.kill()
    server.wait()
    assert "holdfast" in fleet.cli("help").stdout
    assert _warm()._process.pid != server.pid
