"""A supervisor whose wall clock is moved under it by libfaketime, while monotonic clocks go on: forward, back by years,
over the hours at which daylight saving changes. Agents and this test have the real clock. What to look for: a task that
never resumes, or that resumes in a loop."""

from __future__ import annotations

import glob
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.fleet import Fleet, wait_until

FAKETIME = sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))
HOUR, YEAR = 3600, 365 * 86400
# libfaketime 0.9.10 refuses the clock_nanosleep that Python's sleep is made of (EINVAL). And only the supervisor itself
# is to have the moved clock: what it starts has the real one.
ONLY_HERE = """\
import os, select, time
time.sleep = lambda seconds: select.select([], [], [], seconds) and None
del os.environ["LD_PRELOAD"]
"""
pytestmark = pytest.mark.skipif(
    not FAKETIME, reason="libfaketime is not installed (apt-get install faketime): moved clocks are NOT checked here"
)


class MovedClock:
    """The supervisor's wall clock, as far from the real one as `set` says. Each setting rings the bell."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._file = fleet.root / "clock"
        self.set(0)
        (fleet.root / "only-here").mkdir()
        (fleet.root / "only-here" / "sitecustomize.py").write_text(ONLY_HERE)

    @property
    def env(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": FAKETIME[0],
            "PYTHONPATH": str(self.fleet.root / "only-here"),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # its default makes every wait for Python's own lock spin
            "HOLDFAST_RESUME_DEFAULT_HOLD": "1s",
            "TZ": "Europe/Berlin",
        }

    def set(self, seconds: float) -> None:
        new = Path(f"{self._file}.new")
        new.write_text(f"{seconds:+.0f}\n")
        os.replace(new, self._file)
        if self.fleet.home.exists():
            self.fleet.queue("true", workspace="directory")

    def limited(self, for_: str | None) -> str:
        """A task whose first run meets a limit: `for_` from the real now, or nobody knows until when."""
        limit = {"kind": "usage", **({"for": for_} if for_ else {})}
        return self.fleet.add_scenario(
            {"run": 1, "limit": limit}, {"print": "continued"}, options=("--workspace", "directory")
        )

    def resumed_once(self, task: str) -> dict[str, Any]:
        done = self.fleet.wait_state(task, "completed", "failed")
        assert [run["outcome"] for run in done["runs"]] == ["usage_limited", "completed"], done["reason"]
        assert self.fleet.kinds(task).count("task.resumed") == 1
        return done


def test_due_times_survive_a_clock_that_is_moved(fleet: Fleet) -> None:
    """R-RES-08: forward: it is due; back by years: a pause that was decided in the future is over; and what is paused
    then waits as long as it should. Nothing is resumed twice, also not by the next supervisor."""
    clock = MovedClock(fleet)
    supervisor = fleet.up(env=clock.env)
    first = clock.limited("3h")
    due = fleet.wait_state(first, "paused")["resume_after"]
    assert due > time.time() + 2.9 * HOUR
    clock.set(2 * HOUR)
    second = clock.limited("6h")  # four hours by the clock that the supervisor has now
    fleet.wait_state(second, "paused")
    assert fleet.show(first)["state"] == "paused", "not before its time"
    clock.set(4 * HOUR)
    clock.resumed_once(first)
    assert fleet.show(second)["state"] == "paused"

    clock.set(-5 * YEAR)
    clock.resumed_once(second)
    third = clock.limited("1h")  # in five years, as the supervisor has it: nobody waits for that
    clock.resumed_once(third)
    held = clock.limited(None)
    fleet.wait_state(held, "paused", "completed")
    fleet.kill_supervisor(supervisor)
    clock.set(+10 * YEAR)
    fleet.up(env=clock.env)
    clock.resumed_once(held)
    clock.set(0)
    clock.resumed_once(clock.limited("1s"))


@pytest.mark.parametrize("switch", ["2027-03-28 03:00", "2027-10-31 02:00"])
def test_hours_that_are_missing_or_come_twice(fleet: Fleet, switch: str) -> None:
    """R-RES-08: daylight saving changes between a limit and its end."""
    at = datetime.fromisoformat(switch).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=1).timestamp()
    clock = MovedClock(fleet)
    clock.set(at - time.time() - 2)
    fleet.up(env=clock.env | {"HOLDFAST_RESUME_DEFAULT_HOLD": "3s"})
    done = clock.resumed_once(clock.limited(None))
    [paused] = [event for event in fleet.events(done["id"]) if event["kind"] == "task.paused"]
    [resumed] = [event for event in fleet.events(done["id"]) if event["kind"] == "task.resumed"]
    assert 2 < resumed["at"] - paused["at"] < 600
    wait_until(lambda: fleet.show(done["id"])["ended_at"] > at, "it ended on the other side")
