"""A fleet in one of the tiers in which Holdfast ends process trees, and hostile trees to end there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import Fleet, processes_of, wait_until
from tests.hostile import tree
from tests.hostile.witness import Witness
from tests.other_user import as_other_user, give, reachable_directory

TIERS = ("cgroup", "subreaper", "unprivileged")
CGROUP_SETTING = {"cgroup": "auto", "subreaper": "off", "unprivileged": "auto"}


@dataclass(frozen=True, slots=True)
class Planted:
    """A task whose agent is a hostile tree, all of it alive."""

    task_id: str
    run_id: str
    witness: Witness
    count: int

    def send(self, word: str) -> None:
        """What the leader does next: `exit` or `crash`."""
        (self.witness.marks / "go.new").write_text(word)
        (self.witness.marks / "go.new").rename(self.witness.marks / "go")


class Stage:
    def __init__(self, fleet: Fleet, tier: str) -> None:
        self.fleet = fleet
        self.tier = tier
        self._marks: list[Path] = []
        fleet.env["HOLDFAST_PROCESSES_CGROUP"] = CGROUP_SETTING[tier]

    def plant(self, *options: object, leader: str = "obey", seconds: float = 60, quiet: bool = False) -> Planted:
        """Queue a tree; returns when its run is recorded as started and every kind of member is alive."""
        marks = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))  # short: a socket's path must fit into 108 bytes
        self._marks.append(marks)
        script = marks / "tree.py"
        shutil.copyfile(tree.__file__, script)
        if self.tier == "unprivileged":
            give(marks)
        words = (
            self.fleet.python or sys.executable,
            "-I",
            "-S",
            script,
            marks,
            seconds,
            leader,
            *(("quiet",) if quiet else ()),
        )
        task_id = self.fleet.add("a hostile tree", "--workspace", "none", *options, command=words)
        witness = Witness(marks, kinds_here())
        try:
            count = witness.wait_complete()
        except AssertionError:
            print(self.fleet.log(), *(path.read_text() for path in self.fleet.home.glob("runs/*/*.log")), sep="\n")
            raise
        run_id = wait_until(lambda: self._started(task_id), "its run is recorded as started")
        self.check_tier(run_id)
        return Planted(task_id, run_id, witness, count)

    def _started(self, task_id: str) -> str:
        runs = self.fleet.show(task_id)["runs"]
        return str(runs[-1]["id"]) if runs and runs[-1]["state"] == "started" else ""

    # -- what the run directory says ------------------------------------------------------------------------------

    def record(self, run_id: str, name: str) -> dict[str, Any]:
        content = (self.fleet.home / "runs" / run_id / name).read_bytes()
        found: dict[str, Any] = json.loads(content)
        return found

    def keeper_of(self, run_id: str) -> int:
        return int(self.record(run_id, "pid.json")["keeper"]["pid"])

    def has_cgroup(self, run_id: str) -> bool:
        return self.record(run_id, "pid.json").get("tier") == "cgroup"

    def check_tier(self, run_id: str) -> None:
        """The run is in the tier that we mean to test."""
        record = self.record(run_id, "pid.json")
        assert record["tier"] == ("cgroup" if self.tier == "cgroup" else "subreaper")
        assert os.path.isdir(record["leaf"]) if self.tier == "cgroup" else not record["leaf"]

    def assert_no_leaf(self, run_id: str) -> None:
        """Nothing leaked: the run's cgroup is gone with its last process."""
        leaf = self.record(run_id, "pid.json")["leaf"]
        assert not leaf or not os.path.exists(leaf), f"the cgroup {leaf} was left behind"

    def close(self) -> None:
        for marks in self._marks:
            Witness(marks).end()
            shutil.rmtree(marks, ignore_errors=True)


def kinds_here() -> frozenset[str]:
    if shutil.which("tmux") is None:
        pytest.fail("tmux is missing, and a hostile tree without its server proves less: run scripts/setup.sh as root")
    return frozenset(tree.KINDS)


def why_no_cgroups() -> str:
    """Probed by doing: the reason why this user cannot make a cgroup v2 leaf here, or nothing."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2] == "cgroup2"]
    if not mounts:
        return "no cgroup v2 is mounted"
    probe = Path(mounts[0]) / f"holdfast-test-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return f"{mounts[0]}: {error.strerror}"
    return ""


def _end_what_is_left(fleet: Fleet) -> None:
    """A failed test leaves things; by pid, and only what names the fleet's own directory."""
    fleet.close()
    for pid in processes_of(fleet.root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def staged(tier: str, tmp_path: Path) -> Iterator[Stage]:
    """A fleet in that tier; skips by name and reason where this machine cannot have it. Nothing may be left."""
    if tier == "cgroup" and (why := why_no_cgroups()):
        pytest.skip(f"NOT RUN in the cgroup tier: {why}")
    with contextlib.ExitStack() as closing:
        if tier == "unprivileged":
            root = closing.enter_context(reachable_directory())
            fleet = as_other_user(Fleet(root))
        else:
            root = tmp_path
            fleet = Fleet(root)
        stage = Stage(fleet, tier)
        closing.callback(stage.close)
        closing.callback(_end_what_is_left, fleet)
        yield stage
        fleet.close()
        wait_until(lambda: processes_of(root) == {}, "no process of the fleet is left")
