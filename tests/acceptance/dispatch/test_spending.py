"""Money and tokens, from outside: a task's own budget and a label's, with an agent that tells what it takes."""

from __future__ import annotations

import os
import signal
from typing import Any

import apsw
import pytest
from tests.acceptance.config.test_config import user_file
from tests.fleet import Fleet, wait_until


def usage(cost: float, tokens: int = 0, run: int | None = None) -> dict[str, Any]:
    step: dict[str, Any] = {"usage": {"input": tokens, "cost_usd": cost}}
    return step if run is None else {**step, "run": run}


def test_a_tasks_budget_holds_over_all_its_runs(fleet: Fleet) -> None:
    """A crash does not give it back; a run that passes it is stopped while it works; an operator gives more."""
    task = fleet.add_scenario(
        usage(0.6, 100, run=1),
        {"crash": "SIGSEGV", "run": 1},
        usage(0.5, 50, run=2),
        {"hang": True, "run": 2},
        usage(0.1, run=3),
        options=("--budget-usd", 1, "--budget-tokens", 100_000),
    )
    ignoring = fleet.add_scenario({"ignore_term": True}, usage(0, 500), options=("--budget-tokens", 100))
    fleet.up("--agents", 2)
    paused = fleet.wait_state(task, "paused")
    assert (paused["pause_reason"], paused["resume_after"]) == ("budget", None)
    assert [run["outcome"] for run in paused["runs"]] == ["crashed", "over_budget"]
    assert paused["runs"][1]["stop_why"] == "budget", "recorded before the signal"
    assert "$1.10 of $1.00" in paused["reason"]
    assert fleet.wait_state(ignoring, "completed", "paused")["state"] == "completed", "what was done stays done"

    shown = fleet.shown(task)
    assert shown["budgets"]["task_usd"] == {"spent": 1.1, "limit": 1.0, "left": 0, "unpriced_runs": 0}
    assert shown["budgets"]["task_tokens"] == {"spent": 150, "limit": 100_000, "left": 99_850}
    assert shown["budgets"]["crash"]["spent"] == 1
    assert shown["budgets"]["crash"]["oldest_leaves_at"] > shown["runs"][0]["ended_at"]
    why = fleet.cli("why", task).stdout
    assert "task_usd $1.10 of $1.00" in why
    assert f"Raise the total: `holdfast resume {task} --budget-usd X`" in why, "a plain resume is refused"
    assert "resume 0 of 3" not in why, "a budget that nothing was spent of is not listed"

    refused = fleet.cli("resume", task, code=4).stderr
    assert f"holdfast resume {task} --budget-usd N" in refused
    fleet.cli("resume", task, "--budget-usd", "1.05", code=4)
    assert fleet.show(task)["budget"]["usd"] == 1.0, "a refusal changes nothing"
    fleet.cli("resume", task, "--budget-usd", "5")
    done = fleet.wait_state(task, "completed")
    assert (done["budget"]["usd"], done["resume_attempts"]) == (5.0, 0)
    (raised,) = [event for event in fleet.events(task) if event["kind"] == "budget.raised"]
    assert raised["data"]["usd"] == 5.0
    assert fleet.shown(task)["spent_in_all"]["cost_usd"] == 1.2


def test_a_label_that_is_spent_keeps_its_tasks_waiting_and_nobody_else(fleet: Fleet) -> None:
    """One event per episode; who waits spends nothing and continues by itself when the window slides on; who used it up
    is paused, and continues when an operator says so and there is some again."""
    caps = '[budget.labels."team=web"]\nday_usd = 1\n[budget.labels."team=db"]\ntotal_usd = {}\n'
    user_file(fleet, caps.format(1))
    first = fleet.add_scenario(usage(1.5), options=("--label", "team=web"))
    crossing = fleet.add_scenario(usage(2.0), {"crash": "SIGSEGV", "run": 1}, options=("--label", "team=db"))
    supervisor = fleet.up("--agents", 1)
    fleet.wait_state(first, "completed")
    paused = fleet.wait_state(crossing, "paused")
    assert paused["pause_reason"] == "budget"
    assert "team=db" in paused["reason"]
    waiting, other = fleet.add_scenario(usage(0.1), options=("--label", "team=web")), fleet.add_scenario(usage(0.1))
    fleet.wait_state(other, "completed")

    (row,) = [row for row in fleet.json("ps") if row["id"] == waiting]
    assert row["state"] == "queued"
    assert "team=web" in row["held"]
    assert "It starts by itself after that" in fleet.cli("why", waiting).stdout
    assert "team=db" in fleet.cli("resume", crossing, code=4).stderr
    budgets = {"budget:team=web/day", "budget:team=db/total"}
    assert {alert["key"] for alert in fleet.json("alerts")} == {*budgets, f"task:{crossing}:budget"}

    a_day_passes(fleet)
    assert len(fleet.wait_state(waiting, "completed")["runs"]) == 1
    user_file(fleet, caps.format(50))
    os.kill(supervisor.pid, signal.SIGHUP)
    wait_until(lambda: len(fleet.json("alerts")) == 1, "only the paused task needs a person")
    fleet.cli("resume", crossing)
    assert fleet.json("alerts") == []
    fleet.wait_state(crossing, "completed")
    kinds = [event["kind"] for event in fleet.events()]
    assert (kinds.count("budget.spent"), kinds.count("budget.available")) == (2, 2)


def test_a_family_draws_on_the_budget_of_its_first_task(fleet: Fleet) -> None:
    """A subtask is stopped where the first task would be, one that has not begun does not begin, and an operator's word
    on a subtask is enough."""
    first = fleet.add_scenario(usage(0.3), options=("--budget-usd", 1))
    second = fleet.add_scenario(usage(0.8), {"hang": True}, options=("--parent", first, "--budget-usd", 5))
    third = fleet.add_scenario(usage(0.1), options=("--parent", first))
    supervisor = fleet.up("--agents", 1, "--idle-exit", "0s")
    assert supervisor.wait(timeout=60) == 0, "they wait for somebody"
    whose = f"$1.10 of $1.00 of task {first} and its subtasks"
    stopped, waiting = fleet.shown(second), fleet.shown(third)
    assert (stopped["state"], stopped["pause_reason"], stopped["runs"][0]["stop_why"]) == ("paused", "budget", "budget")
    assert whose in stopped["reason"]
    assert (waiting["state"], waiting["pause_reason"], waiting["runs"]) == ("paused", "budget", [])
    assert waiting["budgets"]["family_usd"]["spent"] == 1.1
    assert fleet.shown(first)["budgets"]["task_usd"]["spent"] == 1.1
    assert whose in fleet.cli("resume", third, code=4).stderr
    fleet.cli("resume", third, "--budget-usd", "0.5")
    assert fleet.up("--idle-exit", "0s").wait(timeout=60) == 0
    assert fleet.show(third)["state"] == "completed"
    (raised,) = [event for event in fleet.events(first) if event["kind"] == "budget.raised"]
    assert raised["data"]["usd"] == 1.6


@pytest.mark.parametrize(
    ("option", "before", "after", "key"), [("--budget-usd", 1, 5, "usd"), ("--budget-tokens", 100, 900, "tokens")]
)
def test_a_retry_gets_a_new_total(fleet: Fleet, option: str, before: int, after: int, key: str) -> None:
    """Its next run may use what the old total would have forbidden."""
    no = {"report": {"kind": "fail", "message": "no"}, "run": 1}
    task = fleet.add_scenario(usage(0.5, 50, run=1), no, usage(1.5, 150), options=(option, before))
    fleet.up("--agents", 1)
    fleet.wait_state(task, "failed")
    fleet.wait_clean()
    assert "above 0" in fleet.cli("retry", task, "--budget-usd", "0", code=2).stderr
    assert "whole number" in fleet.cli("retry", task, "--budget-tokens", "many", code=2).stderr
    assert (fleet.show(task)["state"], fleet.show(task)["budget"][key]) == ("failed", before)
    fleet.cli("retry", task, option, after)
    done = fleet.wait_state(task, "completed", "paused")
    assert (done["state"], done["budget"][key]) == ("completed", after)
    assert fleet.shown(task)["budgets"][f"task_{key}"]["spent"] == {"usd": 1.5, "tokens": 150}[key], "a retry is afresh"


def a_day_passes(fleet: Fleet) -> None:
    """The boot's own clock measures it, and no test can move that: what was used moves back instead."""
    connection = apsw.Connection(str(fleet.home / "holdfast.db"))
    connection.set_busy_timeout(10_000)
    connection.execute("UPDATE usage SET wall = wall - 86400, boottime = boottime - 86400")
    connection.close()
