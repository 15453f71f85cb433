"""The system unit under a real systemd, as process 1 of namespaces of its own: started by `HOLDFAST_ROOT_SYSTEMD=1`.

It sees our units and nothing else of this machine's: not its services, not its /run, a cgroup of its own as the root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet import Fleet, lives, wait_until

SYSTEMD = "/lib/systemd/systemd"
_MOUNTED = [path for path in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if os.path.exists(f"{path}/cgroup.procs")]
CGROUPS = _MOUNTED[0] if _MOUNTED else ""

INIT = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
for hidden in /usr/lib/systemd/system /usr/lib/systemd/system-generators /etc/systemd /run /usr/local; do
    mount -t tmpfs tmpfs $hidden
done
umount -l -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /etc/systemd/system /run/systemd/system /run/lock
cp -r "$1"/usr/local/libexec /usr/local/
cp "$1"/etc/systemd/system/holdfast.service /etc/systemd/system/
for name in sysinit basic shutdown multi-user network-online rescue; do
    printf '[Unit]\\nDefaultDependencies=no\\n' > /usr/lib/systemd/system/$name.target
done
mkdir /etc/systemd/system/holdfast.service.d
printf '[Service]\\nRestartSec=0.2\\n' > /etc/systemd/system/holdfast.service.d/quick.conf
exec env -i container=test PATH="$PATH" /lib/systemd/systemd --system --unit=multi-user.target --log-target=console
"""


class Machine:
    """A systemd of ours, and commands inside."""

    def __init__(self, fleet: Fleet, init: int) -> None:
        self._fleet = fleet
        self.init = init

    def run(self, *command: object) -> str:
        inside = ["nsenter", "-t", str(self.init), "-m", "-p", "-u", "-i", "-n", "-C", "--", *map(str, command)]
        done = subprocess.run(
            inside, env=self._fleet.env, cwd=self._fleet.repo, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def shown(self, fact: str) -> str:
        return self.run("systemctl", "show", "--property", fact, "--value", "holdfast").strip()


@pytest.fixture
def machine(fleet: Fleet) -> Iterator[Machine]:
    if not os.environ.get("HOLDFAST_ROOT_SYSTEMD"):
        pytest.skip("NOT RUN by default: HOLDFAST_ROOT_SYSTEMD=1 starts a systemd of our own (`make faults`)")
    if os.geteuid() != 0 or not os.path.exists(SYSTEMD) or not CGROUPS or shutil.which("nsenter") is None:
        pytest.skip("NOT RUN: needs root, systemd, nsenter and cgroup v2")
    installed = fleet.root / "machine"
    fleet.cli("service", "install", "--system", "--run-as", "root", "--root", installed)
    group = Path(CGROUPS, f"holdfast-systemd-{os.getpid()}")
    group.mkdir()

    def enter() -> None:
        (group / "cgroup.procs").write_text("0")

    outside = subprocess.Popen(
        ["unshare", "-m", "-p", "-u", "-i", "-n", "-C", "-f", "--kill-child", "sh", "-c", INIT, "sh", installed],
        preexec_fn=enter,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        init = wait_until(lambda: _init_of(outside), "systemd is process 1 of its namespace")
        made = Machine(fleet, init)
        wait_until(lambda: _is_up(made), "systemd answers")
        yield made
    finally:
        outside.kill()
        outside.wait()
        wait_until(lambda: _removed(group), "every process of that machine is gone")


def _init_of(outside: subprocess.Popen[bytes]) -> int:
    children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
    return next((int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "systemd\n"), 0)


def _is_up(made: Machine) -> bool:
    with contextlib.suppress(AssertionError):
        return made.run("systemctl", "list-units", "--no-legend") != ""
    return False


def _removed(group: Path) -> bool:
    for folder, _folders, _files in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return not group.exists()


def test_agents_outlive_a_crash_of_the_service_and_end_when_it_stops(fleet: Fleet, machine: Machine) -> None:
    """R-TREE-11, R-TREE-10: KillMode is fit for adoption: the supervisor is killed, systemd starts it
    again, and the same agent goes on. A stop ends it, and its task stays queued. Root's sweep ran before each start."""
    entry = fleet.home / "workspaces" / ".trash" / "abcdefgh"
    entry.mkdir(parents=True)
    fleet.home.chmod(0o700)
    (entry.parent / "abcdefgh.trashed.json").write_text(json.dumps({"workspace": "abcdefgh"}))
    machine.run("systemctl", "start", "holdfast")
    assert os.listdir(entry.parent) == []
    task_id = fleet.add("x", command=("sleep", "600"))
    wait_until(lambda: any(run["state"] == "started" for run in fleet.show(task_id)["runs"]), "the agent runs")
    main = machine.shown("MainPID")
    agents = _agents(machine)
    assert agents, machine.run("systemctl", "status", "--no-pager", "holdfast")
    machine.run("kill", "-9", main)
    wait_until(lambda: machine.shown("NRestarts") == "1" and machine.shown("SubState") == "running", "it is back")
    assert machine.shown("MainPID") != main
    wait_until(
        lambda: [event["kind"] for event in fleet.events()].count("host.started") == 2, "the next supervisor is at work"
    )
    assert all(lives(pid) for pid in agents)
    assert _agents(machine) == agents
    machine.run("systemctl", "stop", "holdfast")
    assert machine.shown("ActiveState") == "inactive"
    assert machine.shown("Result") == "success"
    assert not any(lives(pid) for pid in agents)
    assert fleet.show(task_id)["state"] == "queued"


def _agents(machine: Machine) -> list[int]:
    """Processes (as seen from outside) in the cgroups that Holdfast made below the service's own."""
    base = Path(CGROUPS, f"holdfast-systemd-{os.getpid()}", "system.slice", "holdfast.service")
    return sorted(int(pid) for file in base.glob("holdfast-*/*/cgroup.procs") for pid in file.read_text().split())
