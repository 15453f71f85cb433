"""Limits per run (R-TERM-14): hitting one ends that run alone, with its own reason; the supervisor is unharmed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.fleet import Fleet, wait_until

TIERS = {"cgroup": "auto", "rlimit": "off"}
EAT = """
import os, sys, time
blocks = []
for _ in range(400):
    blocks.append(bytearray(os.urandom(1 << 20)))
    time.sleep({pause})
time.sleep(60)
"""
FORKS = """
import os, time
for _ in range(60):
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    except OSError:
        pass
time.sleep(60)
"""


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


@pytest.mark.parametrize("tier", TIERS)
def test_each_limit_ends_its_run_with_its_own_reason(fleet: Fleet, tier: str) -> None:
    """R-TERM-14: memory, processes and output, in one supervisor, beside a run that does nothing wrong."""
    fleet.env["HOLDFAST_PROCESSES_CGROUP"] = TIERS[tier]
    fleet.env["HOLDFAST_CRASH_MAX_IN_WINDOW"] = "1"
    supervisor = fleet.up("--agents", 6)
    place = ("--workspace", "directory")
    good = fleet.add_scenario({"wait_for": str(fleet.root / "go")}, options=("--memory", "200MB", *place))
    slow = fleet.add("x", *place, "--memory", "64MB", command=python(EAT.format(pause=0.02)))
    fast = fleet.add("x", *place, "--memory", "64MB", command=python(EAT.format(pause=0)))
    forks = fleet.add("x", *place, "--processes", 20, command=python(FORKS))
    chatty = fleet.add("x", *place, "--max-output", "30MB", command=("sh", "-c", "yes 'all work and no play'"))
    for task in (slow, fast):
        ended = fleet.wait_state(task, "failed")
        assert (ended["outcome"], ended["failure_reason"]) == ("out_of_memory", "crash_loop")
        assert "memory" in ended["reason"] or "held" in ended["reason"]
    assert fleet.wait_state(forks, "paused")["outcome"] == "process_limit"
    assert fleet.wait_state(chatty, "paused")["outcome"] == "output_limit"
    assert fleet.show(good)["state"] == "running"
    (fleet.root / "go").touch()
    assert fleet.wait_state(good, "completed")["outcome"] == "completed"
    assert supervisor.poll() is None
    assert len(fleet.show(chatty)["runs"]) == 1, "a run that hit a limit is not simply tried again"


def test_endless_output_keeps_its_beginning_and_its_end(fleet: Fleet) -> None:
    """The middle is punched out of the file: little disk, valid offsets, and readers skip the hole."""
    fleet.env["HOLDFAST_LIMITS_OUTPUT_KEPT"] = "4MiB"
    fleet.up()
    body = "i=0; while [ $i -lt 60 ]; do head -c 1048575 /dev/zero | tr '\\0' x; echo; i=$((i+1)); done"
    script = f'echo first words; {body}; while [ ! -e "{fleet.root}/punched" ]; do sleep 0.1; done; echo last words'
    task = fleet.add("x", "--workspace", "directory", command=("sh", "-c", script))
    run = wait_until(lambda: fleet.show(task)["runs"], "it runs")[0]["id"]
    log = fleet.home / "runs" / run / "out.log"
    wait_until(log.exists, "its agent has started")
    wait_until(lambda: log.stat().st_size > 60_000_000 and log.stat().st_blocks * 512 < 20_000_000, "it is punched")
    Path(fleet.root / "punched").touch()
    fleet.wait_state(task, "completed")
    shown = fleet.cli("logs", task).stdout
    assert shown.startswith("first words\n")
    assert shown.endswith("last words\n")
    assert " bytes are not kept]\n" in shown
    assert "\0" not in shown
    assert len(shown) < 12_000_000


def test_agents_are_the_first_to_go_when_memory_is_short(fleet: Fleet) -> None:
    """R-TERM-14: the kernel's choice falls on agents before keepers and supervisors."""
    supervisor = fleet.up()
    task = fleet.add_scenario({"hang": True}, options=("--workspace", "directory"))
    agent = wait_until(lambda: [run["pid"] for run in fleet.show(task)["runs"] if run["pid"]], "it runs")[0]
    keeper = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])

    def score(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    assert score(agent) >= 500
    assert score(keeper) == score(supervisor.pid)
    assert score(supervisor.pid) == (-500 if _may_protect_itself() else score(os.getpid()))
    fleet.cli("cancel", task)


def _may_protect_itself() -> bool:
    """CAP_SYS_RESOURCE: without it a process may only make itself a likelier victim."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff"))
    return bool(int(line.split()[1], 16) >> 24 & 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--memory", "0"), "0 is not a limit"),
        (("--memory", "lots"), "is not a size"),
        (("--processes", "0"), "not between 1 and"),
        (("--cpu-weight", "10001"), "not between 1 and 10000"),
        (("--max-output", "5"), "is not a size"),
        (("--stuck-after", "soon"), "--stuck-after"),
        (("--stuck-after", "0s"), "--stuck-after: '0s' is not at least 100ms"),
        (("--timeout", "10ms"), "--timeout: '10ms' is not at least 100ms"),
        (("--memory", "1k"), "--memory: '1k' is not 0, or at least 1MiB"),
    ],
)
def test_limits_that_make_no_sense_are_refused(fleet: Fleet, options: tuple[str, ...], says: str) -> None:
    refused = fleet.cli("add", "x", *options, "--", "true", code=2)
    assert says in refused.stderr


def test_quick_output_is_cut_at_the_end_of_its_run(fleet: Fleet) -> None:
    """`limits.output_kept`: an agent that ends before the keeper's next look leaves no more than a slow one."""
    fleet.up()
    text = "yes $(printf %099d 0) | head -c 30000000"
    task = fleet.add("x", command=("sh", "-c", text), env={"HOLDFAST_LIMITS_OUTPUT_KEPT": "4MiB"})
    [run] = fleet.wait_state(task, "completed")["runs"]
    log = os.stat(fleet.home / "runs" / run["id"] / "out.log")
    assert log.st_size == 30_000_000
    assert log.st_blocks * 512 < 10 << 20, "the first MiB, the last four, and what is too little to be freed"
    assert len(fleet.cli("logs", task).stdout) < 10 << 20
