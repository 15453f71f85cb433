"""Is a living agent at work? The verdicts, seen from outside: real agents, real processes, thresholds scaled down."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import Fleet, lives, processes_of, wait_until

THRESHOLD = 2.0
LONG = "5s"  # silent for more than twice the threshold
RULES = {
    "HOLDFAST_HEALTH_STUCK_AFTER": "2s",
    "HOLDFAST_HEALTH_STARTUP_TIMEOUT": "2s",
    "HOLDFAST_HEALTH_TOOL_SILENCE": "20s",
    "HOLDFAST_HEALTH_LOOP_STEPS": "20",
}
COMPILE = "import time; until = time.monotonic() + 5\nwhile time.monotonic() < until: pass"


@dataclass(frozen=True)
class Fixture:
    """One agent, and what must be said of it."""

    verdict: str  # the run's outcome
    steps: tuple[Mapping[str, Any], ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None


SAID = {"say": "Let me see"}
FIXTURES = {
    "a compiling child, silent for long": Fixture(
        "completed", (SAID, {"tool": {"name": "make", "for": LONG, "work": "child"}})
    ),
    "a command without events that compiles": Fixture("completed", command=("python3", "-c", COMPILE)),
    "a sleeping tool with its own deadline": Fixture(
        "completed", (SAID, {"tool": {"name": "wait", "for": LONG, "deadline": LONG}})
    ),
    "heartbeats only": Fixture("completed", (SAID, {"heartbeat": {"every": "250ms", "for": LONG}})),
    "new children all the time": Fixture("completed", command=("sh", "-c", "for i in 1 2 3 4 5 6; do sleep 0.8; done")),
    "a model that never answers": Fixture("stuck", (SAID, {"hang": True})),
    "blocked on an inherited pipe": Fixture("stuck", (SAID, {"tool": {"name": "sh", "for": "0s"}}, {"block": True})),
    "blocked on an inherited pipe while a tool is open": Fixture(
        "stuck", (SAID, {"print": json.dumps({"holdfast": "tool", "id": 1, "name": "sh"})}, {"block": True})
    ),
    "an idle Node-like spinner": Fixture("stuck", (SAID, {"burn": {"for": "60s", "percent": 3}})),
    "a busy tool that is silent beyond tool_silence": Fixture(
        "stuck",
        (SAID, {"tool": {"name": "make", "work": "child"}}),
        env={"HOLDFAST_HEALTH_TOOL_SILENCE": "3s"},
    ),
    "a command that fell asleep": Fixture("stuck", command=("sh", "-c", "echo begun; exec sleep 1000")),
    "the same event for ever": Fixture("looping", ({"repeat": {"event": "thinking", "every": "50ms"}},)),
    "the same words for ever": Fixture("looping", ({"repeat": {"say": "Let me try again", "every": "50ms"}},)),
    "the same words while its files change": Fixture(
        "completed",
        (
            {"repeat": {"say": "Once more", "every": "10ms", "times": 15}},
            {"write": {"path": "work.txt", "text": "1"}},
            {"repeat": {"say": "Once more", "every": "10ms", "times": 15}},
        ),
    ),
    "never any output": Fixture("startup_timeout", ({"mute": True}, {"burn": {"for": "60s", "percent": 3}})),
    "a command that never does anything": Fixture("startup_timeout", command=("sleep", "1000")),
}


def begin(fleet: Fleet, name: str, fixture: Fixture, **rules: str) -> str:
    env = {**RULES, **(fixture.env or {}), **rules}
    if fixture.command:
        return fleet.add(name, "--agent", "command", command=fixture.command, env=env)
    return fleet.add(name, "--scenario", fleet.scenario(*fixture.steps), env=env)


def last_sign(fleet: Fleet, task: dict[str, Any], events: list[dict[str, Any]]) -> float:
    """When the newest output was written, by the file's own time; without any, when it was started."""
    logs = [fleet.home / "runs" / task["runs"][0]["id"] / name for name in ("out.log", "err.log")]
    written = [path.stat().st_mtime for path in logs if path.stat().st_size]
    return max(written, default=next(event["at"] for event in events if event["kind"] == "run.started"))


def test_the_verdict_table(fleet: Fleet) -> None:
    """R-TERM-04, R-TERM-07: every fixture at once under one supervisor; 0 false kills, each hang within 1 s."""
    fleet.env["HOLDFAST_RETRY_MAX"] = "0"
    tasks = {name: begin(fleet, name, fixture) for name, fixture in FIXTURES.items()}
    fleet.up("--agents", len(tasks))
    late = {}
    for name, fixture in FIXTURES.items():
        task = fleet.wait_state(tasks[name], "completed", "failed")
        events = fleet.events(tasks[name])
        told = [event for event in events if event["kind"] == "agent.stuck"]
        assert [run["outcome"] for run in task["runs"]] == [fixture.verdict], (name, task["reason"], told)
        if fixture.verdict == "completed":
            assert told == [], f"{name}: a false alarm"
            continue
        assert [event["reason"] for event in told] == [fixture.verdict], name
        assert len(told[0]["data"]["evidence"]) >= 4, told
        ended = next(event for event in events if event["kind"] == "agent.terminated")
        assert (ended["data"]["reason_word"], ended["data"]["unexpected"]) == ("health_check_failed", True)
        threshold = 3.0 if "tool_silence" in name else THRESHOLD
        if fixture.verdict != "looping":
            late[name] = round(told[0]["at"] - last_sign(fleet, task, events) - threshold, 2)
    assert all(-0.05 <= seconds < 1.0 for seconds in late.values()), str(late)
    assert processes_of(fleet.home / "runs") == {}
