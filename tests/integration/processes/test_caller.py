"""Each fact alone tells that a process is inside a run: its cgroup, its keeper, the marks of an ancestor."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.base.errors import Refused
from holdfast.processes import caller
from holdfast.processes.caller import Caller, find_caller
from holdfast.processes.cgroups import base_name
from holdfast.processes.supervisor_facts import FIRST_NAMESPACES, read_namespaces, record_surroundings
from holdfast.supervisor.home_lock import HomeLock

ASK = "import sys; from holdfast.processes.caller import find_caller; print(find_caller(sys.argv[1]))"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    run = tmp_path / "home" / "runs" / "r1"
    run.mkdir(parents=True)
    (run / "intent.json").write_text(json.dumps({"metadata": {"task": "t1"}}))
    return tmp_path / "home"


def test_the_cgroup_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = caller._read
    cases = ((home, "r1", Caller("t1", "r1")), (home / "other", "r2", None), (home / "bound", "r1", Caller("t1", "r1")))
    for owner, run, found in cases:
        content = f"9:name=systemd:/\n0::/user.slice/{base_name(str(owner))}/{run}\n".encode()
        monkeypatch.setattr(caller, "_read", lambda path, c=content: c if path == "/proc/self/cgroup" else read(path))
        assert find_caller(str(home)) == found


@pytest.mark.parametrize(("name", "found"), [("keeper.py", Caller("t1", "r1")), ("shell.py", None)])
def test_the_keeper_alone(home: Path, tmp_path: Path, name: str, found: Caller | None) -> None:
    """An ancestor that works in the run's directory counts only if it runs the keeper's program."""
    program = tmp_path / name
    program.write_text(
        "import os, subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', sys.argv[1], sys.argv[2]], cwd='/', env={}, check=True)\n"
    )
    done = subprocess.run(
        [sys.executable, program, ASK, home],
        cwd=home / "runs" / "r1",
        env={},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(found)


@pytest.mark.parametrize(("owner", "found"), [("home", Caller("t1", "r1")), ("other", None)])
def test_an_ancestors_marks_alone(home: Path, owner: str, found: Caller | None) -> None:
    marks = {"HOLDFAST_RUN_DIR": str(home.parent / owner / "runs" / "r1"), "HOLDFAST_TASK_ID": "t1"}
    done = subprocess.run(
        ["/bin/sh", "-c", 'env -i "$@"; exit $?', "sh", sys.executable, "-c", ASK, home],
        env={**marks, "PATH": os.environ["PATH"]},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(found)


def test_more_ancestors_than_anybody_has_hide_nobody(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red team R2-2: beyond the limit it is not known who calls, so nothing is done."""
    monkeypatch.setattr(caller, "MOST_ANCESTORS", 0)
    with pytest.raises(Refused, match="ancestors"):
        find_caller(str(home))


# -- namespaces (red team R7) ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def supervised(home: Path, **namespaces: int) -> Iterator[None]:
    """A supervisor of the home, as far as its lock and its record go. `namespaces`: those that it is in."""
    record_surroundings(str(home), "")
    path = home / "supervisor.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "pid": 1, "namespaces": {**kept["namespaces"], **namespaces}}))
    lock = HomeLock(str(home))
    lock.take()
    try:
        yield
    finally:
        lock.release()


def unshared(*options: str) -> list[str]:
    """The beginning of a command in new namespaces. The test is skipped where nobody may make them."""
    command = [shutil.which("unshare") or "unshare", *options]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as why:
        pytest.skip(f"no namespaces here: {why}")
    return command


def ask(home: Path, *before: str) -> str:
    done = subprocess.run(
        [*before, sys.executable, "-c", ASK, str(home)], env={}, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "options", ["-pCf --mount-proc", "-UrpCf --mount-proc", "-pf --mount-proc", "-Urpf", "-C", "-UrC"]
)
def test_a_namespace_makes_nobody_a_person(home: Path, options: str) -> None:
    """A process in a new namespace sees neither the keeper above it nor its own cgroup."""
    command = unshared(*options.split())
    with supervised(home):
        assert "namespace" in ask(home, *command)
        assert "namespace" in ask(home, *command, "sh", "-c", '"$@"; exit $?', "sh"), "its parent is not 0 there"
        assert ask(home) == "None", "the person is in the namespaces of the supervisor"
    assert ask(home, *command) == "None", "no supervisor lives: nothing is compared"


def test_a_person_in_the_first_namespaces_is_a_person(home: Path) -> None:
    """A systemd unit with PrivateUsers or PrivatePIDs has namespaces of its own. Its user has the first ones."""
    if read_namespaces() != FIRST_NAMESPACES:
        pytest.skip("the tests run in a container")
    with supervised(home, pid=1, user=2, cgroup=3):
        assert ask(home) == "None"


@pytest.mark.parametrize("options", ["-m", "-Ur", "-Urm", "-n"])
def test_other_namespaces_are_no_reason(home: Path, options: str) -> None:
    """Snaps, PrivateTmp, toolboxes: the ancestors are visible there, and none of them is a keeper."""
    command = unshared(*options.split())
    with supervised(home):
        assert ask(home, *command) == "None"


@pytest.mark.parametrize("name", ["keeper.py", "shell.py"])
def test_a_user_namespace_hides_no_keeper(home: Path, tmp_path: Path, name: str) -> None:
    """The directory and the environment of the keeper cannot be read there, but its command line can."""
    program = tmp_path / name
    program.write_text("import subprocess, sys; subprocess.run(sys.argv[1:], cwd='/', env={}, check=False)")
    done = subprocess.run(
        [sys.executable, program, *unshared("-Ur"), sys.executable, "-c", ASK, home],
        cwd=home / "runs" / "r1",
        env={},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ("user namespace below" in done.stderr) == (name == "keeper.py")


def test_what_a_supervisor_started_is_nobody_in_a_user_namespace(home: Path) -> None:
    """A gate has no keeper above it, and its marks cannot be read."""
    command = unshared("-Ur")
    with supervised(home):
        path = home / "supervisor.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "pid": os.getpid()}))
        assert "user namespace below" in ask(home, *command)
        assert ask(home) == "None"
