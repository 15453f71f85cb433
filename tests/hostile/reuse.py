"""PIDs that are used again, forced: `reuse.py CASE DIRECTORY` is process 1 of a PID namespace of its own, in which it
may say which pid comes next. Each case ends well, or with an AssertionError that the test shows."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fleet import Fleet, lives, wait_until

TRIES = 200
NEXT = Path("/proc/sys/kernel/ns_last_pid")


class Stranger:
    """A process of somebody else under a pid that was one of ours. Any signal but CONT would end or stop it."""

    def __init__(self, pid: int) -> None:
        for _ in range(TRIES):
            NEXT.write_text(str(pid - 1))
            self.process = subprocess.Popen(["sleep", "100"])
            if self.process.pid == pid:
                return
            self.process.kill()
            self.process.wait()
        raise AssertionError(f"pid {pid} could not be had in {TRIES} tries")

    def assert_unharmed(self) -> None:
        assert self.process.poll() is None, "the stranger was killed"
        state = Path(f"/proc/{self.process.pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        assert state in (b"S", b"R"), f"the stranger is in state {state!r}"


def end_and_collect(pid: int) -> None:
    """Of a process whose parent is dead, so that it is ours: its pid is free then."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def running(fleet: Fleet, *command: object) -> tuple[str, str, int]:
    """(task, run, agent) of a fresh task whose agent runs."""
    task_id = fleet.add("work", "--workspace", "none", command=command)
    runs = wait_until(lambda: [r for r in fleet.show(task_id)["runs"] if r["state"] == "started"], "it runs")
    return task_id, runs[0]["id"], runs[0]["pid"]


def keeper_of(fleet: Fleet, run_id: str) -> int:
    from holdfast.processes.run_dir import RunDirectory

    identities = RunDirectory(str(fleet.home / "runs" / run_id)).identities()
    assert identities is not None
    return identities[0].pid


def assert_settles(fleet: Fleet, task_id: str, stranger: Stranger) -> None:
    """Frozen (nobody can prove anything) until an operator vouches, or proven by a cgroup: the stranger is not ours."""

    def settled() -> str:
        if "task.frozen" in fleet.kinds(task_id):
            return "frozen"
        state = str(fleet.show(task_id)["state"])
        return state if state in ("failed", "cancelled") else ""

    if wait_until(settled, "the task is frozen or settled") == "frozen":
        stranger.assert_unharmed()
        assert len(fleet.show(task_id)["runs"]) == 1
        fleet.cli("cancel", task_id, "--assume-dead")
        assert fleet.show(task_id)["state"] == "cancelled"
    stranger.assert_unharmed()


def keeper_between_two_supervisors(fleet: Fleet) -> None:
    supervisor = fleet.up()
    task_id, run_id, agent = running(fleet, "sleep", "60")
    keeper = keeper_of(fleet, run_id)
    fleet.kill_supervisor(supervisor)
    end_and_collect(keeper)
    wait_until(lambda: not lives(agent), "the agent dies with its keeper")
    stranger = Stranger(keeper)
    fleet.up()
    assert_settles(fleet, task_id, stranger)


def stop_between_writes(fleet: Fleet, supervisor: subprocess.Popen[bytes]) -> None:
    """One that is stopped inside a transaction keeps everybody from writing (a known limit): it continues a little."""
    import apsw

    stat = Path(f"/proc/{supervisor.pid}/stat")
    while True:
        supervisor.send_signal(signal.SIGSTOP)
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it is stopped")
        connection = apsw.Connection(str(fleet.home / "holdfast.db"))
        try:
            with (fleet.home / "turnstile.lock").open("r+b") as turnstile:
                fcntl.flock(turnstile, fcntl.LOCK_EX | fcntl.LOCK_NB)
                connection.execute("BEGIN IMMEDIATE; ROLLBACK")
            return
        except (BlockingIOError, apsw.BusyError):
            supervisor.send_signal(signal.SIGCONT)
        finally:
            connection.close()


def keeper_of_an_adopted_run(fleet: Fleet) -> None:
    """The recorded wish to cancel comes first, then the reuse, then the supervisor that would signal."""
    fleet.kill_supervisor(fleet.up())
    first = fleet.up()
    task_id, run_id, agent = running(fleet, "sleep", "60")
    keeper = keeper_of(fleet, run_id)
    fleet.kill_supervisor(first)
    second = fleet.up()
    wait_until(lambda: "task.adopted" in fleet.kinds(task_id), "the task is adopted")
    stop_between_writes(fleet, second)
    from holdfast.api.commands import Commands

    Commands(str(fleet.home)).cancel(task_id, "the test")
    end_and_collect(keeper)
    wait_until(lambda: not lives(agent), "the agent dies with its keeper")
    stranger = Stranger(keeper)
    second.send_signal(signal.SIGCONT)
    assert_settles(fleet, task_id, stranger)


def agent_whose_tree_is_left(fleet: Fleet) -> None:
    """The leader is gone and collected, its pid is a stranger's; what it left ignores TERM and must be killed. (It is
    in a session of its own: the kernel does not give away a pid that still names a session.)"""
    fleet.env["HOLDFAST_HEALTH_GRACE"] = "40s"
    fleet.up()
    left = fleet.root / "left.pid"
    go = fleet.root / "go"
    daemon = f"setsid sh -c \"trap '' TERM; echo \\$\\$ > {left}; sleep 60\""
    script = f"{daemon} & until test -e {go}; do sleep 0.1; done"
    task_id, run_id, agent = running(fleet, "sh", "-c", script)
    wait_until(lambda: left.exists() and left.read_text().strip(), "the child has left its mark")
    child = int(left.read_text())
    go.touch()
    wait_until((fleet.home / "runs" / run_id / "exit.json").exists, "the keeper has collected the leader")
    assert lives(child)
    stranger = Stranger(agent)
    began = time.monotonic()
    fleet.cli("cancel", task_id, code=None)
    wait_until(lambda: fleet.show(task_id)["state"] in ("cancelled", "completed"), "the task is settled")
    assert time.monotonic() - began < 30
    assert not lives(child)
    stranger.assert_unharmed()


CASES = {
    case.__name__: case for case in (keeper_between_two_supervisors, keeper_of_an_adopted_run, agent_whose_tree_is_left)
}


def main() -> None:
    fleet = Fleet(Path(sys.argv[2]))
    fleet.env["HOLDFAST_LOST_MAX"] = "0"
    fleet.env["HOLDFAST_PROCESSES_CGROUP"] = sys.argv[3]
    try:
        CASES[sys.argv[1]](fleet)
        print("unharmed")
    finally:
        fleet.close()


if __name__ == "__main__":
    main()
