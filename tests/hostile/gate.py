"""Hold a keeper at any of its steps, without a change to it.

A keeper with a trace file opens it at each of its crash points. Where the path is a FIFO the open waits for a reader:
us. Before we let it go we put a new FIFO in the path's place, so it is held again at the next one.

A keeper takes its trace file from the supervisor only. Here each task has a gate of its own: the fleet runs keepers
with an edit (`mutations.BY_TASK`), which take it from a variable of their task.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.fleet import Fleet, processes_of, wait_until
from tests.harness.mutations import TRACE_OF_TASK


def by_task(trace: Path) -> dict[str, str]:
    """For `add`, in a fleet of mutant BY_TASK: the trace file of the task's keepers."""
    return {"HOLDFAST_ENV_SET": f"{TRACE_OF_TASK}={trace}"}


class Gate:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._close()

    @property
    def env(self) -> dict[str, str]:
        """For `add`: the task's keepers are held, nothing else is."""
        return by_task(self.path)

    def _close(self) -> None:
        fresh = self.path.with_suffix(".new")
        os.mkfifo(fresh, 0o666)
        fresh.chmod(0o666)
        fresh.rename(self.path)

    def step(self, keeper: int) -> str:
        """Let the keeper pass the point at which it is held; the point's name. It is held at the next one then."""
        self.wait_held(keeper)
        held = os.open(self.path, os.O_PATH)
        self._close()
        passed = _release(held)
        self.wait_held(keeper)
        return passed

    def wait_held(self, keeper: int) -> None:
        wait_until(lambda: _waits(keeper), "the keeper is held at its next step")

    def open(self, keeper: int) -> None:
        """Let the keeper continue for good: it is not held again, nor is any other."""
        self.wait_held(keeper)
        held = os.open(self.path, os.O_PATH)
        self.open_for_others()
        _release(held)

    def open_for_others(self) -> None:
        """Whoever is held stays so (to be killed there); later keepers of the task are not held at all."""
        fresh = self.path.with_suffix(".new")
        fresh.touch()
        fresh.chmod(0o666)
        fresh.rename(self.path)


def _release(held: int) -> str:
    reading = os.open(f"/proc/self/fd/{held}", os.O_RDONLY)
    os.close(held)
    with os.fdopen(reading, "rb") as file:
        return file.read().decode().partition(":")[0]


def _waits(pid: int) -> bool:
    """It sleeps in the open of a FIFO. Where the kernel hides that, it sleeps: a process that ran between two looks has
    no place either, and is somewhere else by now."""
    try:
        before = _asleep(pid)
        where = Path(f"/proc/{pid}/wchan").read_text()
        return before is not None and before == _asleep(pid) and where in ("wait_for_partner", "fifo_open", "", "0")
    except OSError:
        return False


def _asleep(pid: int) -> list[str] | None:
    """How often it was switched; None while it does not sleep."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    if not any(line.startswith("State:\tS") for line in lines):
        return None
    return [line for line in lines if "ctxt_switches" in line]


def keeper_at_work(fleet: Fleet, run_id: str) -> int:
    """By its command line, since it may not have written pid.json yet. Its agent, before exec, looks like it."""

    def parent_of(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])

    def look() -> int:
        found = [pid for pid, words in processes_of(fleet.home / "runs" / run_id).items() if "keeper.py" in words]
        with contextlib.suppress(OSError):
            return next((pid for pid in found if parent_of(pid) not in found), 0)
        return 0

    return wait_until(look, f"run {run_id} has a keeper")
