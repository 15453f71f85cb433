"""What agents report of themselves, from outside: one channel, the run's token, claimed results (R-TERM-12)."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import Fleet, lives, processes_of, wait_until

# The form that docs/howto/agent-reports.md gives to whoever has no Holdfast installed: plain `sh`.
HEARTBEAT = 'touch "$HOLDFAST_CHANNEL/heartbeat"'
REPORT = (
    """printf '{"token":"%s","report":"KIND","message":"MESSAGE"}\\n' "$HOLDFAST_RUN_TOKEN" >> "$HOLDFAST_CHANNEL/reports\""""
)
HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto" / "agent-reports.md"
GRACE = "HOLDFAST_HEALTH_CLAIM_GRACE"


def report(kind: str, message: str = "said") -> str:
    return REPORT.replace("KIND", kind).replace("MESSAGE", message)


def holdfast() -> str:
    return f"{shlex.quote(sys.executable)} -m holdfast"


def add(fleet: Fleet, script: str, grace: str = "30s", **options: Any) -> str:
    return fleet.add("report", command=("sh", "-c", script), env={GRACE: grace}, **options)


def claims(fleet: Fleet, task_id: str) -> list[dict[str, Any]]:
    return [event for event in fleet.events(task_id) if event["kind"] == "agent.claimed"]


def channel_of(fleet: Fleet, task_id: str) -> Path:
    return fleet.home / "runs" / fleet.show(task_id)["runs"][-1]["id"] / "channel"


def test_the_documented_shell_form_is_the_one_that_is_tested() -> None:
    text = HOWTO.read_text()
    assert HEARTBEAT in text
    assert REPORT.replace("KIND", "complete").replace("MESSAGE", "all tests pass") in text


def test_results_and_exit_codes(fleet: Fleet) -> None:
    """A claim needs exit code 0 to complete; `fail` fails whatever the code. All written just before the exit."""
    fleet.up("--agents", 4)
    scripted = fleet.add_scenario({"report": {"kind": "complete", "message": "found it"}}, {"exit": 0})
    wanted = {
        add(fleet, report("complete", "all good")): ("completed", "the agent reported that it is complete: all good"),
        add(fleet, f"{report('complete')}; exit 3"): ("failed", "it claimed to be complete, but exited with code 3"),
        add(fleet, report("fail", "no compiler")): ("failed", "the agent reported that it failed: no compiler"),
        add(fleet, f"{report('fail', 'no')}; exit 7"): ("failed", "the agent reported that it failed: no"),
        # the scenario never says `success`: the claim is the evidence that its adapter misses
        scripted: ("completed", "the agent reported that it is complete: found it"),
    }
    for task_id, (state, reason) in wanted.items():
        task = fleet.wait_state(task_id, "completed", "failed")
        [run] = task["runs"]
        assert (task["state"], run["outcome"]) == (state, state)
        assert run["reason"] == reason
        assert reason in task["reason"]
        assert run["claim"]["kind"] == ("fail" if "failed:" in reason else "complete")
        [claimed] = claims(fleet, task_id)
        assert claimed["run"] == run["id"]
        assert claimed["reason"] == run["claim"]["kind"]


def test_a_limit_that_the_adapter_saw_goes_before_a_claim(fleet: Fleet) -> None:
    fleet.up()
    task_id = fleet.add_scenario(
        {"report": {"kind": "complete"}}, {"run": 1, "limit": {"kind": "usage", "for": "1h"}}
    )
    assert fleet.wait_state(task_id, "paused")["pause_reason"] == "usage_limit"


def test_the_commands_inside_an_agent(fleet: Fleet) -> None:
    """R-TERM-12: identity from the environment. The heartbeat is a touched file and no row; progress is shown."""
    fleet.up()
    go, beaten = fleet.root / "go", fleet.root / "beaten"
    agent = f"{holdfast()} agent"
    task_id = add(
        fleet,
        f"{agent} heartbeat && {agent} progress half way --percent 50 && touch {beaten}"
        f"; until [ -e {go} ]; do sleep 0.02; done; {agent} heartbeat; {agent} complete 'all “good”'",
    )
    wait_until(beaten.exists, "the agent has reported")
    wait_until(lambda: fleet.show(task_id)["reason"] == "its agent is at 50 %: half way", "progress is shown by ps")
    assert "Its agent reported" in fleet.cli("why", task_id).stdout
    assert fleet.show(task_id)["runs"][0]["progress"]["percent"] == 50
    channel = channel_of(fleet, task_id)
    first = (channel / "heartbeat").stat().st_mtime_ns
    go.touch()
    task = fleet.wait_state(task_id, "completed")
    assert (channel / "heartbeat").stat().st_mtime_ns > first
    assert task["runs"][0]["claim"]["message"] == "all “good”"
    assert not any("heartbeat" in event["kind"] for event in fleet.events(task_id))
    assert "agent.reports-refused" not in fleet.kinds(task_id)


def test_progress_is_told_now_and_then_and_the_newest_is_kept(fleet: Fleet) -> None:
    fleet.up()
    lines = f"i=0; while [ $i -lt 300 ]; do i=$((i+1)); {report('progress', 'step STEP')}; done"
    task_id = add(fleet, lines.replace('"message":"step STEP"', '"message":"step %s"').replace('N" >>', 'N" $i >>'))
    task = fleet.wait_state(task_id, "completed")
    told = [event["data"]["message"] for event in fleet.events(task_id) if event["kind"] == "agent.progress"]
    assert 1 <= len(told) <= 3
    assert told[-1] == task["runs"][0]["progress"]["message"] == "step 300"


def test_complete_and_hang_is_ended_whole_after_the_grace(fleet: Fleet) -> None:
    """Issue 4: `complete` is a claimed result: the grace to exit, then the whole tree is ended, and it is completed."""
    fleet.up("--agents", 3)
    hanging = fleet.add_scenario(
        {"write": {"path": "work.txt", "text": "done"}},
        {"spawn": {"kind": "daemon"}},
        {"spawn": {"kind": "ignore-term"}},
        {"report": {"kind": "complete", "message": "done"}},
        {"ignore_term": True},
        {"hang": True},
        options=("--timeout", "5m"),
    )
    del hanging


def test_wrong_tokens_and_foreign_lines_are_ignored_and_told_once(fleet: Fleet) -> None:
    fleet.up()
    forged = report("complete", "forged").replace('"$HOLDFAST_RUN_TOKEN"', "somebody-elses")
    junk = 'printf "\\033[31mjunk\\n" >> "$HOLDFAST_CHANNEL/reports"'
    task_id = add(fleet, f"{forged}; {junk}; {forged}; {report('progress', 'mine')}; exit 5")
    task = fleet.wait_state(task_id, "failed")
    assert task["runs"][0]["claim"] is None
    assert "exited with code 5" in task["reason"]
    [refused] = [event for event in fleet.events(task_id) if event["kind"] == "agent.reports-refused"]
    assert (refused["level"], refused["reason"], refused["data"]["refused"]) == ("warning", "a wrong token", 3)
    assert task["runs"][0]["progress"]["message"] == "mine"
