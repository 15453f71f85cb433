"""Timeouts that follow experience, and what follows a timeout: seen from outside."""

from __future__ import annotations

import json

import pytest
from tests.acceptance.config.test_config import user_file
from tests.fleet import Fleet


def test_the_timeout_follows_earlier_runs(fleet: Fleet) -> None:
    """R-TERM-13: from five completed runs of the same repository and agent on; it is what the keeper gets; `why`."""
    user_file(
        fleet,
        '[health]\nadaptive_timeout = true\nadaptive_floor = "100ms"\n[retry]\nmax = 0\n'
        '[per_agent.scripted.health]\nadaptive_floor = "7m"\n',
    )
    fleet.up("--agents", 2)
    for _ in range(4):
        fleet.wait_state(fleet.add("quick", command=("sleep", "0.2")), "completed")
    fifth = fleet.wait_state(fleet.add("quick", command=("sleep", "0.2")), "completed")
    assert fifth["runs"][0]["timeout"] is None  # four are too few

    hangs = fleet.wait_state(fleet.add("hangs", command=("sleep", "600")), "failed")
    run = hangs["runs"][0]
    assert run["outcome"] == "timeout"
    assert hangs["timeout"] == 3600
    assert 0.3 <= run["timeout"] < 60  # 1.5 × a little more than 0.2 s
    assert run["timeout_why"] == "adaptive: 1.5 × the mean of 5 runs"
    intent = json.loads((fleet.home / "runs" / run["id"] / "intent.json").read_text())
    assert intent["timeout"] == run["timeout"]

    shorter = fleet.show(fleet.add("hangs", "--timeout", "100ms", "--delay", "1h", command=("sleep", "600")))
    assert shorter["health"]["adaptive_floor"] == 0.1
    another = fleet.wait_state(fleet.add_scenario({"exit": 1}), "failed")
    assert another["runs"][0]["timeout"] is None  # another agent is another kind


def test_why_says_how_long_a_run_has(fleet: Fleet) -> None:
    """R-TERM-13, R-TERM-15: the floor holds, and `why` says where the number comes from."""
    user_file(fleet, "[health]\nadaptive_timeout = true\n")
    fleet.up("--agents", 4)
    done = [fleet.add("quick", command=("true",)) for _ in range(5)]
    for task in done:
        fleet.wait_state(task, "completed")
    running = fleet.add("long", command=("sleep", "600"))
    fleet.wait_started(running)
    words = fleet.cli("why", running).stdout
    assert "It will be ended after 10m (adaptive: the floor, because 1.5 × the mean of 5 runs is less)." in words
    fleet.cli("cancel", running)


@pytest.mark.parametrize("base", [0.05])
def test_a_timed_out_task_is_tried_three_times_with_growing_delays(fleet: Fleet, base: float) -> None:
    """R-TERM-11: 2^n with n from 0 and jitter, at most 3; then it fails with the reason."""
    user_file(fleet, f'[retry]\nbase = "{base * 1000:g}ms"\n')
    task_id = fleet.add_scenario({"hang": True}, options=("--timeout", "100ms"))
    fleet.up()
    task = fleet.wait_state(task_id, "failed")
    assert [run["outcome"] for run in task["runs"]] == ["timeout"] * 4
    assert task["failure_reason"] == "retries_spent"
    assert "ran longer than its timeout" in task["reason"]
    events = fleet.events(task_id)
    delays = [event["data"]["delay"] for event in events if event["kind"] == "task.requeued"]
    assert len(delays) == 3
    for n, delay in enumerate(delays):
        assert base * 2**n <= delay <= base * 2**n * 1.25
    assert len(set(delays)) == 3
    # the delay is kept: the next run was claimed no sooner
    claims = [event["at"] for event in events if event["kind"] == "task.claimed"][1:]
    requeued = [event["at"] for event in events if event["kind"] == "task.requeued"]
    for claimed, put_back, delay in zip(claims, requeued, delays, strict=True):
        assert claimed - put_back >= delay - 0.001
    assert fleet.shown(task["id"])["budgets"]["retry"] == {"spent": 4, "limit": 3, "left": 0}
    assert "retries_spent" in fleet.cli("why", task_id).stdout
