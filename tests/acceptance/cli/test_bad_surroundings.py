"""Odd surroundings: closed and full streams, foreign locales, a deleted directory, absurd variables, wrong clocks."""

from __future__ import annotations

import errno
import json
import os
import pty
import subprocess
import sys
import time

import pytest
from tests.fleet import Fleet
from tests.refusals import nothing_changes, refused, without_rights
from tests.sampling import sampled

UNICODE = "naïve café 日本語 😀"
CENTURY = 100 * 365.25 * 86400


def redirected(how: str) -> list[str]:
    """Put before a command: run it with its streams redirected as a shell would."""
    return ["sh", "-c", f'exec "$@" {how}', "sh"]


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", sampled(["<&- >&- 2>&-", ">&-", "<&-", "2>&-", "<&- >&-"], keep=2))
def test_closed_streams_lead_nowhere(fleet: Fleet, how: str) -> None:
    """A file that we open must never get the number of a closed stream, and with it our output."""
    task_id = fleet.add("kept", command=("true",))
    for arguments in (
        ("ps",),
        ("ps", "--json"),
        ("show", task_id),
        ("events",),
        ("--help",),
        ("--version",),
        ("doctor",),
    ):
        fleet.cli(*arguments, prefix=redirected(how))
    fleet.cli("add", "second", "--", "true", prefix=redirected(how))
    assert fleet.cli("show", "zz0000", prefix=redirected(how), code=3).stdout == ""
    if "<&-" in how:
        fleet.cli("add", "-", "--", "true", prefix=redirected(how), code=2)
    assert [row["prompt"] for row in fleet.json("ps")] == ["kept", "second"]
    assert fleet.doctor().endswith("All well.\n")


def test_a_run_with_closed_streams(fleet: Fleet) -> None:
    """A supervisor started by a service manager that gives it no streams at all."""
    task_id = fleet.add("x", command=("sh", "-c", "cat > prompt.txt"))
    fleet.cli("up", "--idle-exit", "0s", prefix=redirected("<&- >&- 2>&-"))
    assert fleet.show(task_id)["state"] == "completed"
    assert fleet.file_on_branch(f"holdfast/{task_id}", "prompt.txt") == "x"
    fleet.doctor()


@pytest.mark.parametrize(
    "arguments", [("ps", "--all"), ("ps", "--json"), ("events",), ("--help",), ("--version",), ("doctor",)]
)
def test_output_that_cannot_be_written(fleet: Fleet, arguments: tuple[str, ...]) -> None:
    """/dev/full in place of a file on a full disk: one line and a failure, not a traceback and not a success."""
    fleet.add("kept", command=("true",))
    done = fleet.cli(*arguments, prefix=redirected(">/dev/full"), code=1)
    assert "could not be written: No space left on device" in done.stderr.splitlines()[-1]
    assert len(fleet.json("ps")) == 1


def test_an_id_that_cannot_be_printed_is_still_queued(fleet: Fleet) -> None:
    """Promise 1: the refusal says that what was done is kept, and where to see it."""
    line = fleet.cli("add", "x", "--", "true", prefix=redirected(">/dev/full"), code=1).stderr.splitlines()[-1]
    assert "is kept" in line
    assert "holdfast ps" in line
    assert [row["prompt"] for row in fleet.json("ps")] == ["x"]


def test_a_complaint_that_cannot_be_written_keeps_its_code(fleet: Fleet) -> None:
    fleet.add("x", command=("true",))
    for how in ("2>/dev/full", "2>&-", ">/dev/full 2>/dev/full"):
        assert fleet.cli("show", "zz0000", prefix=redirected(how), code=3).stdout == ""


# -- letters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "POSIX"},
        {"LANG": "", "LC_ALL": ""},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LANG": "xx_XX.no-such-charset"},
    ],
    ids=str,
)
def test_foreign_letters_in_a_poor_locale(fleet: Fleet, env: dict[str, str]) -> None:
    """A prompt arrives whole in every locale; what a terminal cannot show is escaped, never an error."""
    task_id = fleet.add("-", command=("sh", "-c", "cat > prompt.txt"), stdin=UNICODE.encode(), env=env)
    fleet.cli("ps", env=env)
    assert json.loads(fleet.cli("show", task_id, "--json", env=env).stdout)["prompt"] == UNICODE
    fleet.cli("up", "--idle-exit", "0s", env=env)
    fleet.cli("why", task_id, env=env)
    assert fleet.show(task_id)["prompt"] == UNICODE
    assert fleet.file_on_branch(f"holdfast/{task_id}", "prompt.txt") == UNICODE


@pytest.mark.parametrize("columns", sampled(["1", "x", "0", "-5", "99999999"], keep=2))
def test_a_terminal_without_width(fleet: Fleet, columns: str) -> None:
    fleet.add(UNICODE, command=("true",))
    for arguments in (("ps",), ("add", "--help"), ("--help",), ("events",)):
        fleet.cli(*arguments, env={"COLUMNS": columns})
        fleet.cli(*arguments, env={"COLUMNS": columns, "LINES": columns})
    master, slave = pty.openpty()
    try:
        environment = {**fleet.env, "COLUMNS": columns, "TERM": "xterm"}
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "ps"],
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(slave)
        os.close(master)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


# -- directories and variables -----------------------------------------------------------------------------------------


def test_a_directory_that_was_deleted_under_us(fleet: Fleet) -> None:
    """Looking works from anywhere; what needs a repository says where to go."""
    gone = fleet.root / "gone"
    gone.mkdir()
    away = ["sh", "-c", f'rmdir "{gone}" && exec "$@"', "sh"]
    with nothing_changes(fleet):
        for arguments in (("add", "x", "--", "true"), ("run", "x", "--", "true"), ("init",)):
            gone.mkdir(exist_ok=True)
            assert "has been deleted" in refused(fleet, *arguments, cwd=gone, prefix=away, code=2)
        for arguments in (("ps",), ("doctor",), ("events",)):
            gone.mkdir(exist_ok=True)
            fleet.cli(*arguments, cwd=gone, prefix=away)
    gone.mkdir(exist_ok=True)
    fleet.cli("add", "x", "--repo", fleet.repo, "--", "true", cwd=gone, prefix=away)


def test_no_home_of_the_user(fleet: Fleet) -> None:
    """Without HOME the system's list of users says where; a relative or empty HOME is no better than none."""
    task_id = fleet.add("x", command=("true",))
    for how in (["env", "-u", "HOME"], ["env", "HOME="], ["env", "HOME=relative"]):
        assert [row["id"] for row in map(json.loads, fleet.cli("ps", "--json", prefix=how).stdout.splitlines())] == [
            task_id
        ]
    for how in (["env", "HOLDFAST_HOME=", "HOME=relative"], ["env", "HOLDFAST_HOME=", "XDG_STATE_HOME=relative"]):
        assert "/" in refused(fleet, "show", task_id, prefix=how, code=69)
    assert not list(fleet.repo.glob("re*"))


def test_no_path(fleet: Fleet) -> None:
    """Looking needs no program; what needs git says so."""
    empty = fleet.root / "empty-path"
    empty.mkdir()
    with nothing_changes(fleet):
        for path in ("", str(empty), "/nonexistent"):
            fleet.cli("ps", env={"PATH": path})
            for arguments in (("add", "x", "--", "true"), ("run", "x", "--", "true"), ("init",), ("up",)):
                line = refused(fleet, *arguments, env={"PATH": path}, code=2)
                assert "git" in line
                assert "Install it" in line
            assert "problem  git" in fleet.cli("doctor", env={"PATH": path}, code=1).stdout


@pytest.mark.parametrize("mask", sampled(["777", "000", "077"], keep=2))
def test_a_weird_umask(fleet: Fleet, mask: str) -> None:
    """Our own files stay ours, and private; a mask that takes our own rights does not lock us out of them."""
    masked = [*without_rights(), "sh", "-c", f'umask {mask} && exec "$@"', "sh"]
    task_id = fleet.add("x", command=("sh", "-c", "echo 1 > one.txt"), prefix=masked)
    fleet.cli("up", "--idle-exit", "0s", prefix=masked)
    assert json.loads(fleet.cli("show", task_id, "--json", prefix=masked).stdout)["state"] == "completed"
    assert fleet.file_on_branch(f"holdfast/{task_id}", "one.txt") == "1"
    assert (fleet.home.stat().st_mode & 0o777) == 0o700
    fleet.doctor()


@pytest.mark.parametrize(
    "name",
    sampled(["with\nnewline", "quote'\"$(x)`", "-dash", "with space", "ünïcödé 日本", "tab\there", "a" * 200], keep=3),
)
def test_homes_with_odd_names(fleet: Fleet, name: str) -> None:
    """From prompt to branch and back to nothing, in a home with such a name."""
    env = {"HOLDFAST_HOME": str(fleet.root / name)}
    fleet.env.update(env)
    fleet.home = fleet.root / name
    good = fleet.add("x", command=("sh", "-c", "echo 1 > one.txt"))
    bad = fleet.add("x", command=("sh", "-c", "echo 2 > two.txt; exit 1"))
    fleet.cli("up", "--idle-exit", "0s")
    assert fleet.show(good)["state"] == "completed"
    assert fleet.file_on_branch(f"holdfast/{good}", "one.txt") == "1"
    fleet.cli("salvage", "restore", bad, "--branch", "saved")
    assert fleet.file_on_branch("saved", "two.txt") == "2"
    assert fleet.worktrees() == []
    assert fleet.doctor().endswith("All well.\n")


def test_homes_that_cannot_be_meant(fleet: Fleet) -> None:
    """Relative: another home in every directory. Not UTF-8: the store cannot hold it. Too long: the system says so."""
    for arguments in (("add", "x", "--", "true"), ("ps",), ("up",), ("init",)):
        for relative in ("relative", "./x", "~nobody-at-all/x"):
            line = refused(fleet, *arguments, env={"HOLDFAST_HOME": relative}, code=2)
            assert "full path" in line
            assert relative in line
        latin = str(fleet.root / "caf\udce9")
        assert "not UTF-8" in refused(fleet, *arguments, env={"HOLDFAST_HOME": latin}, code=69)
    for name in ("x" * 300, "/".join(["y" * 120] * 40)):
        long = str(fleet.root / name)
        line = refused(fleet, "add", "x", "--", "true", env={"HOLDFAST_HOME": long}, code=69)
        assert os.strerror(errno.ENAMETOOLONG) in line or "unable to open" in line
        assert refused(fleet, "ps", env={"HOLDFAST_HOME": long}, code=69)
    assert sorted(path.name for path in fleet.repo.iterdir()) == [".git", "README.md", "src"]


def test_no_directory_for_temporary_files(fleet: Fleet) -> None:
    env = {"TMPDIR": "/nonexistent"}
    task_id = fleet.add("x", command=("true",), env=env)
    fleet.cli("up", "--idle-exit", "0s", env=env)
    assert fleet.show(task_id)["state"] == "completed"
    fleet.cli("rehearse", fleet.scenario({"print": "x"}), env=env)


# -- clocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-time.time() + 3600, 2 * CENTURY - time.time()], ids=["1970", "2170"])
def test_a_clock_that_is_far_off(fleet: Fleet, offset: float) -> None:
    """Leases and deadlines count on clocks that nobody sets: work continues, limits pass, crashes are counted."""
    fleet.env.update({"HOLDFAST_CLOCK_OFFSET": str(offset), "HOLDFAST_RESUME_DEFAULT_HOLD": "1s"})
    done = fleet.add("x", command=("sh", "-c", "echo 1 > one.txt"))
    crashing = fleet.add_scenario({"crash": "SIGKILL"})
    limited = fleet.add_scenario({"limit": {"kind": "rate"}, "run": 1}, {"print": "again", "run": 2})
    fleet.up()
    assert fleet.file_on_branch(f"holdfast/{fleet.wait_state(done, 'completed')['id']}", "one.txt") == "1"
    task = fleet.wait_state(crashing, "failed")
    assert task["failure_reason"] == "crash_loop"
    assert len(task["runs"]) == 3
    assert fleet.wait_state(limited, "completed")["resume_attempts"] == 0
    fleet.wait_clean()
    for arguments in (("ps", "--all"), ("events",), ("why", done), ("show", limited)):
        fleet.cli(*arguments)
    fleet.doctor()


@pytest.mark.parametrize("hours", [24, -24])
def test_a_clock_that_jumps_between_enqueue_and_claim(fleet: Fleet, hours: int) -> None:
    """A task without a delay is taken at once, whatever the clock says; a running one survives the jump."""
    task_id = fleet.add("x", command=("true",), env={"HOLDFAST_CLOCK_OFFSET": str(hours * 3600)})
    fleet.up()
    assert fleet.wait_state(task_id, "completed")["outcome"] == "completed"
    told = [event["seq"] for event in fleet.events()]
    assert told == sorted(told)


def test_waits_that_were_decided_by_a_wrong_clock_end(fleet: Fleet) -> None:
    """A delay and a pause from a clock in 2170, set right since: they do not last until 2170."""
    ahead = {"HOLDFAST_CLOCK_OFFSET": str(2 * CENTURY - time.time()), "HOLDFAST_RESUME_DEFAULT_HOLD": "1h"}
    limited = fleet.add_scenario({"limit": {"kind": "rate"}, "run": 1}, {"print": "again", "run": 2})
    first = fleet.up(env=ahead)
    fleet.wait_state(limited, "paused")
    fleet.cli("down")
    first.wait()
    delayed = fleet.add("x", "--delay", "1h", command=("true",), env=ahead)
    later = fleet.add("x", "--delay", "1h", command=("true",))
    fleet.up()
    fleet.wait_state(delayed, "completed")
    fleet.wait_state(limited, "completed")
    assert fleet.show(later)["state"] == "queued"


def test_a_clock_that_makes_no_sense(fleet: Fleet) -> None:
    for offset in ("", "x", "nan", "inf", "1e308"):
        line = refused(fleet, "add", "x", "--", "true", env={"HOLDFAST_CLOCK_OFFSET": offset}, code=2)
        assert "HOLDFAST_CLOCK_OFFSET" in line
    assert not fleet.home.exists() or fleet.json("ps") == []


def test_a_user_without_a_directory(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """No HOME, no entry in the list of users (a container started with --user): the refusal says what to set."""
    from holdfast.base import home
    from holdfast.base.errors import Unavailable

    for name in ("HOME", "HOLDFAST_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    with pytest.raises(Unavailable, match="Set HOLDFAST_HOME"):
        home.home_directory()
