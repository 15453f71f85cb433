"""Dispatch that is held back, from outside: a provider's outage, an account's reset, a warning, a mass death."""

from __future__ import annotations

from typing import Any

from tests.fleet import Fleet, wait_until

FAST = {
    "HOLDFAST_BREAKER_HOLD": "150ms",
    "HOLDFAST_BREAKER_MAX_HOLD": "600ms",
}


def dispatch(fleet: Fleet, kind: str) -> list[dict[str, Any]]:
    return [event for event in fleet.events() if event["kind"] == f"dispatch.{kind}"]


def spans(fleet: Fleet, tasks: list[str]) -> list[tuple[float, float, str]]:
    """Begin, end and outcome of every run, in order."""
    found = [
        (run["started_at"] or run["ended_at"], run["ended_at"], run["outcome"])
        for task in tasks
        for run in fleet.show(task)["runs"]
    ]
    return sorted(found)


def outage(fleet: Fleet, tasks: int, probes: int) -> None:
    """Every task meets a provider that is down, until it is not: none fails, one at a time tries."""
    down = fleet.root / "down"
    down.touch()
    scenario = fleet.scenario(
        {"provider": "acme"}, {"limit": {"kind": "overloaded", "while": str(down)}}, {"print": "done"}
    )
    from holdfast.api.commands import Commands, NewTask
    from holdfast.api.scenarios import load_scenario

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
    wait_until(lambda: len(dispatch(fleet, "probing")) >= before + probes, "the next supervisor goes on trying")
    down.unlink()
    for task in ids:
        fleet.wait_state(task, "completed")

    shown = [fleet.show(task) for task in ids]
    assert {task["outcome"] for task in shown} == {"completed"}
    events = fleet.events()
    first = next(e["seq"] for e in events if e["kind"] == "dispatch.held")
    last = max(e["seq"] for e in events if e["kind"] == "dispatch.released")
    alive: set[str] = set()
    most_new = 0
    begun_before = {e["run"] for e in events if e["kind"] == "run.started" and e["seq"] < first}
    for event in events:
        if event["kind"] == "run.started" and first < event["seq"] < last and event["run"] not in begun_before:
            alive.add(event["run"])
            most_new = max(most_new, len(alive))
        elif event["kind"] == "run.ended":
            alive.discard(event["run"])
    probes_told = [e for e in events if e["kind"] == "dispatch.probing"]
    tries = sum(e["kind"] == "run.started" and first < e["seq"] < last for e in events) + 4
    assert most_new <= 1, "never two at once"
    assert len(probes_told) <= tries
    assert not [e for e in events if e["kind"] in ("task.failed", "task.paused")]


def test_a_provider_that_is_down_is_tried_by_one_task_at_a_time(fleet: Fleet) -> None:
    """R-RES-08, R-RES-12: an outage over many tasks, the supervisor killed in it: none fails, one probes at a time,
    all finish after it."""
    outage(fleet, tasks=8, probes=1)
