"""kill -9 of an agent by somebody else, seen as an operator sees it: by `events -f`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from tests.fleet import STRICT, in_company, wait_until
from tests.hostile.stage import Stage

SOON = 0.25 if STRICT else 1.0  # seconds; the goal of R-TERM-03 is a p99 of 50 ms, which `make bench` measures


def test_the_event_comes_within_a_second(stage: Stage) -> None:
    """R-TERM-09, R-TERM-03, R-TERM-08: noticed by event, told as `external_kill`, unexpected; the task settles."""
    fleet = stage.fleet
    fleet.env["HOLDFAST_CRASH_MAX_IN_WINDOW"] = "1"
    fleet.up()
    task_id = fleet.add("sleep", "--workspace", "none", command=("sleep", "60"))
    run = wait_until(
        lambda: [run for run in fleet.show(task_id)["runs"] if run["state"] == "started"], "the agent runs"
    )[0]
    words = [*fleet.prefix, fleet.python or sys.executable, "-m", "holdfast", "events", task_id, "-f", "--json"]
    with subprocess.Popen(words, cwd=fleet.repo, env=fleet.env, stdout=subprocess.PIPE, text=True) as follower:
        try:
            assert follower.stdout is not None
            kinds = iter(lambda: json.loads(follower.stdout.readline()), None)  # type: ignore[union-attr]
            while next(kinds)["kind"] != "run.started":
                continue
            os.kill(run["pid"], signal.SIGKILL)
            killed = time.time()
            ended = next(event for event in kinds if event["kind"] == "run.ended")
            terminated = next(event for event in kinds if event["kind"] == "agent.terminated")
            seen = time.time()
        finally:
            follower.kill()
    print(f"{stage.tier}: recorded {ended['at'] - killed:.3f} s and shown {seen - killed:.3f} s after the kill")
    assert ended["at"] - killed <= in_company(SOON)
    assert seen - killed <= 0.5 + 2 * in_company(SOON)  # the follower looks every 50 ms
    assert terminated["data"]["outcome"] == "external_kill"
    assert terminated["data"]["unexpected"] is True
    task = fleet.wait_state(task_id, "failed")
    assert (task["outcome"], task["failure_reason"]) == ("external_kill", "crash_loop")
