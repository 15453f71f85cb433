"""Each fact alone tells that a process is inside a run: its cgroup, its keeper, the marks of an ancestor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.base.errors import Refused
from holdfast.processes import caller
from holdfast.processes.caller import Caller, find_caller
from holdfast.processes.cgroups import base_name

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
