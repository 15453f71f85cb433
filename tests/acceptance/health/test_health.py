"""Is a living agent at work? The verdicts, seen from outside: real agents, real processes, thresholds scaled down."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import STRICT, Fleet, in_company, lives, processes_of, wait_until

from holdfast.api.home.models import EventRow
from holdfast.api.queries import Queries
from holdfast.api.tasks import health
from holdfast.api.tasks.models import TaskDetails
from holdfast.processes.observe import output_reader
from holdfast.processes.observe.run_view import STATE
from holdfast.supervisor.settings import Thresholds

THRESHOLD = 2.0
LONG = "5s"  # silent for more than twice the threshold
RULES = {
    "HOLDFAST_HEALTH_STUCK_AFTER": "2s",
    "HOLDFAST_HEALTH_STARTUP_TIMEOUT": "2s",
    "HOLDFAST_HEALTH_TOOL_SILENCE": "20s",
    "HOLDFAST_HEALTH_LOOP_STEPS": "20",
}
PATIENT = {"HOLDFAST_HEALTH_STARTUP_TIMEOUT": "60s"}  # for agents that do say something, as soon as they get a core

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
            {"repeat": {"say": "Once more", "every": "50ms", "times": 15}},
            {"write": {"path": "work.txt", "text": "1"}},
            {"repeat": {"say": "Once more", "every": "50ms", "times": 15}},
            {"sleep": "1s"},
        ),
    ),
    "never any output": Fixture("startup_timeout", ({"mute": True}, {"burn": {"for": "60s", "percent": 3}})),
    "a command that never does anything": Fixture("startup_timeout", command=("sleep", "1000")),
}


def begin(fleet: Fleet, name: str, fixture: Fixture) -> str:
    env = {**RULES, **(fixture.env or {})}
    if fixture.command:
        return fleet.add(name, "--agent", "command", command=fixture.command, env=env)
    if fixture.verdict != "startup_timeout":
        env |= PATIENT
    return fleet.add(name, "--scenario", fleet.scenario(*fixture.steps), env=env)


def last_sign(fleet: Fleet, task: TaskDetails, events: list[EventRow]) -> float:
    """When the newest output was written, by the file's own time; without any, when it was started."""
    logs = [fleet.home / "runs" / task["runs"][0]["id"] / name for name in ("out.log", "err.log")]
    written = [path.stat().st_mtime for path in logs if path.stat().st_size]
    started = next(float(event["at"]) for event in events if event["kind"] == "run.started")
    return max(written, default=started)


def has_ended(queries: Queries, task_id: str) -> bool:
    return queries.state(task_id)["state"] in ("completed", "failed")


def stuck_events(fleet: Fleet, task_id: str) -> list[dict[str, Any]]:
    return [event for event in fleet.events(task_id) if event["kind"] == "agent.stuck"]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_verdict_table(fleet: Fleet) -> None:
    """R-TERM-04, R-TERM-07: every fixture at once under one supervisor; 0 false kills, each hang within 1 s."""
    fleet.env["HOLDFAST_RETRY_MAX"] = "0"
    tasks = {name: begin(fleet, name, fixture) for name, fixture in FIXTURES.items()}
    fleet.up("--agents", len(tasks))
    late = {}
    queries = Queries(str(fleet.home))
    for name, fixture in FIXTURES.items():
        task_id = tasks[name]
        wait_until(partial(has_ended, queries, task_id), f"{name} ended")
        task, events = queries.task(task_id), queries.events(task_id=task_id)
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
    most = 1.0 if STRICT else min(in_company(1.0), Thresholds().look_every - 5)  # when it was due, not at the next tick
    assert all(-0.05 <= seconds < most for seconds in late.values()), str(late)
    assert processes_of(fleet.home / "runs") == {}


def test_why_does_not_run_after_an_agent_that_floods_its_log(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-TERM-15: one that writes faster than it can be read is said to; the evidence is not waited for, for ever."""
    end = fleet.root / "end"
    task = fleet.add_scenario(SAID, {"wait_for": str(end)})
    supervisor = fleet.up()
    folder = fleet.home / "runs" / fleet.wait_started(task)["runs"][-1]["id"]
    wait_until(lambda: (folder / "out.log").read_bytes().count(b"\n"), "it said something")
    fleet.kill_supervisor(supervisor)
    (folder / STATE).unlink(missing_ok=True)  # nothing was read yet …
    monkeypatch.setattr(output_reader, "MOST_LINES", 0)  # … and nothing is: there is always more
    monkeypatch.setattr(health, "CATCH_UP", 0.1)
    queries = Queries(str(fleet.home))
    found: list[str] = []

    def look() -> None:
        found.extend(health.health_lines(queries, queries.task(task)))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(60)
    end.touch()
    assert [line for line in found if "writes output faster than it is read" in line]


def test_notify_tells_once_per_episode_and_off_tells_nothing(fleet: Fleet) -> None:
    """R-TERM-04: `on_stuck = "notify"` ends nothing; activity clears an episode, and the next one is told again.
    `--stuck-after off` switches it off for a run. R-TERM-15: `why` has the evidence while it runs."""
    first, second = fleet.root / "first", fleet.root / "second"
    rules = {**RULES, **PATIENT, "HOLDFAST_HEALTH_STUCK_AFTER": "1s", "HOLDFAST_HEALTH_ON_STUCK": "notify"}
    steps = ({"say": "one"}, {"wait_for": str(first)}, {"say": "two"}, {"wait_for": str(second)})
    told = fleet.add("told", "--scenario", fleet.scenario(*steps), env=rules)
    silent = fleet.add("silent", "--stuck-after", "off", "--agent", "command", env=RULES, command=("sleep", "1000"))
    fleet.up()
    wait_until(lambda: stuck_events(fleet, told), "the silence is told of")
    why = fleet.cli("why", told).stdout
    assert "Health: stuck; last output" in why
    assert "no heartbeat; no tool open;" in why
    assert [alert["level"] for alert in fleet.json("alerts")] == ["warning"]
    first.touch()
    wait_until(lambda: "agent.recovered" in fleet.kinds(told), "its next word ends the episode")
    wait_until(lambda: len(stuck_events(fleet, told)) == 2, "the second episode is told of")
    second.touch()
    fleet.wait_state(told, "completed")
    assert fleet.kinds(told).count("agent.stuck") == 2
    assert "run.stopping" not in fleet.kinds(told)
    assert stuck_events(fleet, silent) == []
    assert fleet.show(silent)["state"] == "running"
    assert "Health: alive; no output since its start" in fleet.cli("why", silent).stdout


def test_a_stuck_run_is_tried_again_and_why_keeps_the_evidence(fleet: Fleet) -> None:
    """R-TERM-11, R-TERM-15: ended, run again after a back-off; the evidence of the verdict stays."""
    rules = {**RULES, **PATIENT}
    steps = ({"say": "Hm"}, {"run": 1, "hang": True})
    task_id = fleet.add("hang once", "--scenario", fleet.scenario(*steps), env=rules)
    fleet.env["HOLDFAST_DEBUG"] = "1"
    fleet.up()
    task = fleet.wait_state(task_id, "completed")
    why = fleet.cli("why", task_id).stdout
    assert re.search(r"Health of run 1: stuck; last output \d+(\.\d)? s ago; no heartbeat; no tool open;", why), why
    assert [run["outcome"] for run in task["runs"]] == ["stuck", "completed"]
    assert fleet.shown(task_id)["budgets"]["retry"]["spent"] == 1
    assert f"debug: health of run {task['runs'][0]['id']}: stuck; last output " in fleet.log()


def test_an_adopting_supervisor_reads_on_and_looks_twice(fleet: Fleet) -> None:
    """R-TERM-10: what was read is not read again; where that record is lost, everything is; and the absence of a
    supervisor is no evidence against an agent, though its silence counts from its last word."""
    fleet.env["HOLDFAST_RETRY_MAX"] = "0"
    patience = 5.0
    end = fleet.root / "end"
    opened, closed = (
        {"holdfast": "tool", "id": 1, "name": "wait", **how} for how in ({"deadline": 3600}, {"closed": 1})
    )
    tool = ({"say": "x" * 5000}, {"print": json.dumps(opened)}, {"wait_for": str(end)}, {"print": json.dumps(closed)})
    rules = {**RULES, **PATIENT, "HOLDFAST_HEALTH_TOOL_SILENCE": "1h"}
    kept, lost = (fleet.add(name, "--scenario", fleet.scenario(*tool), env=rules) for name in ("kept", "lost"))
    supervisor = fleet.up()
    runs = {task_id: running(fleet, task_id, lines=3) for task_id in (kept, lost)}
    silence = fleet.scenario({"say": "Hm"}, {"hang": True})
    hung = fleet.add("hung", "--stuck-after", f"{patience:g}s", "--scenario", silence, env=rules)
    runs[hung] = running(fleet, hung)
    fleet.cli("down", "--keep-agents")
    assert supervisor.wait(timeout=60) == 0
    state = json.loads((runs[kept] / "reading.json").read_text())
    assert state["offset"] == (runs[kept] / "out.log").stat().st_size
    assert [name for name, _opened, _deadline in state["talk"]["tools"].values()] == ["wait"]
    blank(runs[kept] / "out.log")  # whoever reads from the start finds no open tool, and kills it
    (runs[lost] / "reading.json").write_text('{"torn":')
    silent_for = patience + 0.5
    said_at = (runs[hung] / "out.log").stat().st_mtime
    wait_until(lambda: time.time() > said_at + silent_for, "the silence is longer than the threshold")
    fleet.up()
    fleet.wait_state(hung, "failed")
    at = {event["kind"]: event for event in fleet.events(hung)}
    verdict = at["agent.stuck"]
    assert verdict["at"] - at["task.adopted"]["at"] > patience - 1.0
    silent = float(verdict["message"].split("no sign of life for ")[1].split(" s ")[0])
    assert silent_for + patience - 1.0 < silent < verdict["at"] - said_at + 1.0  # it is told in whole seconds
    end.touch()
    for task_id in (kept, lost):
        assert [run["outcome"] for run in fleet.wait_state(task_id, "completed", "failed")["runs"]] == ["completed"]


def running(fleet: Fleet, task_id: str, lines: int = 2) -> Path:
    """The run directory of a task whose agent has said something: its session, and as many lines in all."""

    def path() -> Path | None:
        runs = fleet.show(task_id)["runs"]
        found = fleet.home / "runs" / runs[-1]["id"] if runs and runs[-1]["pid"] else None
        return found if found is not None and len((found / "out.log").read_text().splitlines()) >= lines else None

    found = wait_until(path, f"the agent of {task_id} has spoken")
    assert found is not None
    return found


def blank(log: Path) -> None:
    """Overwrite what a log says; neither its size nor its time changes."""
    times = log.stat()
    with log.open("r+b") as file:
        file.write(b" " * (times.st_size - 1) + b"\n")
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))


@contextlib.contextmanager
def held_still(pid: int) -> Iterator[None]:
    """Stopped, and stopped again as soon as a beat of its supervisor wakes it: it gets a hundredth of a second each."""
    over = threading.Event()

    def hold() -> None:
        while not over.wait(0.01):
            if state_of(pid) != "T":
                os.kill(pid, signal.SIGSTOP)

    os.kill(pid, signal.SIGSTOP)
    holder = threading.Thread(target=hold)
    holder.start()
    try:
        yield
    finally:
        over.set()
        holder.join()
        os.kill(pid, signal.SIGCONT)


def test_a_run_that_does_not_end_raises_an_alarm(fleet: Fleet) -> None:
    """R-TERM-06: 2 s after its grace it still lives; the alert names the pids. (Its keeper is held still meanwhile.)"""
    fleet.up()
    task_id = fleet.add_scenario({"ignore_term": True}, {"say": "still here"}, {"hang": True})
    directory = running(fleet, task_id)
    record = json.loads((directory / "pid.json").read_text())
    keeper, agent = record["keeper"]["pid"], record["agent"]["pid"]
    with held_still(keeper):
        fleet.cli("cancel", task_id, "--no-wait", code=None)
        alarm = wait_until(lambda: fleet.json("alerts"), "the alarm")[0]
    assert alarm["key"] == f"unended:{directory.name}"
    assert str(agent) in alarm["message"]
    fleet.wait_state(task_id, "cancelled")
    assert not lives(agent)
