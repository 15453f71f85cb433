"""Dispatch that is held back, from outside: a provider's outage, a mass death."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import pytest
from tests.acceptance.config.test_config import user_file
from tests.fleet import Fleet, lives, wait_until

from holdfast.api.commands import Commands, NewTask
from holdfast.api.rehearse import load_scenario
from holdfast.base import clock
from holdfast.core.dispatch.holds import MAX_MASS_DEATHS, Hold, Scope
from holdfast.store.open import open_store

FAST = {
    "HOLDFAST_BREAKER_HOLD": "150ms",
    "HOLDFAST_BREAKER_MAX_HOLD": "600ms",
}


def dispatch(fleet: Fleet, kind: str) -> list[dict[str, Any]]:
    return [event for event in fleet.events() if event["kind"] == f"dispatch.{kind}"]


def running_agents(fleet: Fleet) -> set[str]:
    begun: set[str] = set()
    for event in fleet.events():
        if event["kind"] == "run.started":
            begun.add(event["run"])
        elif event["kind"] == "run.ended":
            begun.discard(event["run"])
    return begun


def outage(fleet: Fleet, tasks: int, probes: int) -> None:
    """Every task meets a provider that is down, until it is not: none fails, one at a time tries."""
    down, go = fleet.root / "down", fleet.root / "go"
    down.touch()
    scenario = fleet.scenario(
        {"provider": "acme"},
        {"limit": {"kind": "overloaded", "while": str(down)}},
        {"print": "hello"},
        {"wait_for": str(go)},
    )
    with fleet.as_its_user():
        commands, steps = Commands(str(fleet.home)), load_scenario(str(scenario))
        ids = [
            commands.add(
                NewTask(prompt="play", directory=str(fleet.repo), scenario=steps, workspace="directory", priority=n % 3)
            ).id
            for n in range(tasks)
        ]
    supervisor = fleet.up("--agents", 4, env=FAST)
    wait_until(lambda: len(dispatch(fleet, "probing")) >= 2, "it was held back, and tried twice")
    waiting = next(row for row in fleet.json("ps") if row["state"] == "queued" and row["held"])
    assert "provider acme is held since" in waiting["held"]
    (hold,) = [row for row in fleet.json("dispatch") if row["hold"] == "provider:acme"]
    assert hold["rounds"] >= 2
    assert hold["failures"] >= 2
    fleet.kill_supervisor(supervisor)
    fleet.up("--agents", 4, env=FAST)
    before = len(dispatch(fleet, "probing"))
    wait_until(lambda: len(dispatch(fleet, "probing")) >= before + probes, "the next supervisor continues trying")
    down.unlink()
    wait_until(lambda: len(running_agents(fleet)) == 4, "the others follow while the first is still at work")
    go.touch()
    for task in ids:
        fleet.wait_state(task, "completed")

    assert {fleet.show(task)["outcome"] for task in ids} == {"completed"}
    events = fleet.events()
    assert not [e for e in events if e["kind"] in ("task.failed", "task.paused")]
    assert_one_at_a_time(events)


def assert_one_at_a_time(events: list[dict[str, Any]]) -> None:
    """From the record: an agent that is started while dispatch is held back is that of the task that goes first, and it
    has ended before the next one goes. (Those that were claimed just before may still start.)"""
    held, probe, claimed, tries = False, None, set(), 0
    for event in events:
        match event["kind"]:
            case "dispatch.held":
                assert probe is None, "nobody is at it when it is held again"
                held = True
            case "task.claimed" if not held:
                claimed.add(event["task"])
            case "dispatch.probing":
                assert probe is None, "never two at once"
                probe, tries = event["task"], tries + 1
            case "run.started" if held:
                assert event["task"] == probe or event["task"] in claimed
                claimed.discard(event["task"])
            case "run.ended" if event["task"] == probe:
                probe = None
            case "dispatch.released":
                held, probe, claimed = False, None, set()
    assert tries >= 3


def test_a_provider_that_is_down_is_tried_by_one_task_at_a_time(fleet: Fleet) -> None:
    """R-RES-08, R-RES-12: an outage over many tasks, the supervisor killed in it: none fails, one probes at a time,
    all finish after it."""
    outage(fleet, tasks=8, probes=1)


@pytest.mark.slow
@pytest.mark.skipif("HOLDFAST_TEST_OUTAGE" not in os.environ, reason="fifty tasks: set HOLDFAST_TEST_OUTAGE")
def test_fifty_tasks_outlast_an_outage(fleet: Fleet) -> None:
    """R-RES-08, R-RES-12: as above, with fifty."""
    outage(fleet, tasks=50, probes=4)


def kill_agents(fleet: Fleet, tasks: list[str]) -> None:
    pids = [fleet.show(task)["runs"][-1]["pid"] for task in tasks]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(lives(pid) for pid in pids), "they are dead")


def test_six_of_eight_agents_killed_are_one_alert(fleet: Fleet) -> None:
    """R-CRASH-07: half of them die under one supervisor, the others are found dead by the next. One alert, a hold of
    dispatch that outlives supervisors, nobody's budget (one crash would have failed its task); released by hand."""
    env = {"HOLDFAST_MASS_DEATH_HOLD": "1h", "HOLDFAST_MASS_DEATH_WINDOW": "10m", "HOLDFAST_CRASH_MAX_IN_WINDOW": "1"}
    go = fleet.root / "go"
    tasks = [fleet.queue(f"[ -e {go} ] || exec sleep 1000", workspace="directory") for _ in range(8)]
    supervisor = fleet.up("--agents", 8, env=env)
    for task in tasks:
        fleet.wait_started(task)
    kill_agents(fleet, tasks[:3])
    wait_until(lambda: [e["kind"] for e in fleet.events()].count("run.ended") == 3, "three deaths are recorded")
    fleet.kill_supervisor(supervisor)
    kill_agents(fleet, tasks[3:6])
    fleet.kill_supervisor(second := fleet.up("--agents", 8, env=env))
    assert second.returncode == -signal.SIGKILL
    fleet.up("--agents", 8, env=env)
    for task in tasks[:6]:
        fleet.wait_state(task, "queued")
    (alert,) = fleet.json("alerts")
    assert alert["key"] == "mass-death"
    assert len(dispatch(fleet, "held")) == 1
    shown = fleet.shown(tasks[0])
    assert shown["budgets"]["crash"]["spent"] == shown["budgets"]["runs"]["spent"] == 0
    for task in tasks[:6]:
        [crash] = fleet.json("crashes", task)
        assert (crash["recent"], "part of a mass death, so it is not counted" in crash["decision"]) == (0, True)
    why = fleet.cli("why", tasks[0]).stdout
    assert "It is held back: everything is held since" in why
    assert "`holdfast dispatch release fleet:all` lets it start now" in why
    assert "held back: fleet:all (`holdfast dispatch`)" in fleet.cli("ps").stderr
    assert "everything is held since" in fleet.doctor()
    assert [fleet.show(task)["state"] for task in tasks] == ["queued"] * 6 + ["running"] * 2
    go.touch()
    assert "Released: fleet:all." in fleet.cli("dispatch", "release").stdout
    for task in tasks[:6]:
        fleet.wait_state(task, "completed")
    assert fleet.json("alerts") == []
    assert "There are no holds" in fleet.cli("dispatch").stdout
    fleet.cli("dispatch", "release", "fleet:all", code=3)


WARNS = """\
#!/bin/sh
cat > /dev/null
echo '{"type":"system","subtype":"init","session_id":"s1","model":"m"}'
echo '{"type":"rate_limit_event","rate_limit_info":{"status":"allowed_warning","resetsAt":%d,\
"rateLimitType":"five_hour","utilization":0.93}}'
exec sleep 1000
"""


def test_an_account_near_its_limit_starts_agents_one_by_one(fleet: Fleet) -> None:
    """R-RES-08: the warning is read from the stream of an agent at work; it holds for the next supervisor too."""
    claude = fleet.root / "claude"
    claude.write_text(WARNS % (time.time() + 3600))
    claude.chmod(0o755)
    user_file(fleet, f'claude.binary = "{claude}"\n')
    first, second, third = (fleet.add("do it", "--agent", "claude", "--workspace", "directory") for _ in range(3))
    supervisor = fleet.up("--agents", 1)
    fleet.wait_started(first)
    (held,) = wait_until(lambda: dispatch(fleet, "held"), "the warning is heard")
    assert "The account claude/default is near its limit" in held["message"]
    fleet.kill_supervisor(supervisor)
    fleet.up("--agents", 4)
    fleet.wait_started(second)
    wait_until(lambda: fleet.show(third)["state"] == "queued", "it waits, or was sent back before it started")
    assert fleet.show(third)["runs"] == []
    (account,) = fleet.json("accounts")
    assert (account["state"], account["reason"]) == ("slowed", "93 % are used, five hour")
    assert len(dispatch(fleet, "held")) == 1, "once per episode, however often it is said"


def test_who_watches_a_task_is_told_that_only_a_person_lets_it_start(fleet: Fleet) -> None:
    """R-CRASH-07, after a third mass death; and so is who watches a task that needs one that somebody paused."""
    needed = fleet.add("first", command=("true",))
    fleet.cli("pause", needed)
    watched = fleet.cli("run", "second", "--after", needed, "--", "true", code=75)
    assert f"holdfast why {needed}" in watched.stderr
    store, now = open_store(str(fleet.home), create=False), clock.now()
    hold = Hold(
        scope=Scope.FLEET,
        name="all",
        since=now,
        until=now.wall,
        decided=now.wall,
        reason="six died",
        failures=MAX_MASS_DEATHS,
    )
    store.write(lambda tx: tx.holds.keep(hold, now))
    store.close()
    watched = fleet.cli("run", "third", "--", "true", code=75)
    assert "holdfast dispatch release fleet:all" in watched.stderr
    fleet.cli("down")
    assert fleet.up("--idle-exit", "0s").wait(timeout=60) == 0, "nothing of this is a reason to stay"
    fleet.cli("dispatch", "release")
    assert fleet.up("--idle-exit", "0s").wait(timeout=60) == 0
    rows = fleet.cli("ps", "--all", "--json").stdout.splitlines()
    assert sorted(json.loads(row)["state"] for row in rows) == ["completed", "paused", "queued"]
