"""How reliable agents are, asked from outside."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.acceptance.config.test_config import user_file
from tests.fleet import Fleet, wait_until
from tests.refusals import refused


def test_ends_by_outcome_per_agent(fleet: Fleet) -> None:
    """R-TERM-16: runs, ends, the unexpected share, durations and restarts; still there when the tasks are forgotten."""
    user_file(fleet, '[retry]\nmax = 1\nbase = "10ms"\n')
    none = ("--workspace", "none")
    fleet.up("--agents", 1)
    assert fleet.json("stats") == []
    assert fleet.cli("stats").stdout == "No such run has ended yet.\n"
    tasks = [
        fleet.add("a", *none, command=("true",)),
        fleet.add("b", *none, command=("true",)),
        fleet.add("c", *none, command=("false",)),
        fleet.add("d", *none, "--timeout", "200ms", command=("sleep", "600")),  # runs twice
        fleet.add_scenario({"print": "done"}, options=none),
    ]
    for task in tasks:
        fleet.wait_state(task, "completed", "failed")
    command, scripted = fleet.json("stats")
    assert (command["agent"], scripted["agent"]) == ("command", "scripted")
    assert command["since"] is None
    assert command["runs"] == 5
    assert command["ends"] == {"completed": 2, "timeout": 2, "failed": 1}
    assert (command["unexpected"], command["unexpected_share"], command["restarts"]) == (3, 0.6, 1)
    times = command["duration"]
    assert 0 < times["p50"] <= times["p95"]
    assert times["p95"] >= 0.2
    assert 0.08 <= times["mean"] <= times["p95"]
    assert scripted["ends"] == {"completed": 1}
    assert scripted["unexpected_share"] == 0

    assert fleet.json("stats", "--agent", "scripted") == [scripted]
    assert fleet.json("stats", "--agent", "nobody") == []
    assert fleet.json("stats", "--since", "1h") == [command, scripted]
    assert fleet.json("stats", "--since", "0s") == []
    by_day = fleet.json("stats", "--by", "day", "--agent", "command")
    assert sum(row["runs"] for row in by_day) == 5
    assert all(row["since"] % 86400 == 0 for row in by_day)
    assert all(row["since"] % 3600 == 0 for row in fleet.json("stats", "--by", "hour"))

    lines = fleet.cli("stats").stdout.splitlines()
    assert lines[0].split() == ["AGENT", "RUNS", "UNEXPECTED", "MEAN", "P50", "P95", "RESTARTS", "ENDS"]
    assert lines[1].startswith("command")
    assert "5     3 (60%)" in lines[1]
    assert "\x1b" not in "".join(lines)
    assert fleet.cli("stats", "--by", "day").stdout.startswith("DAY (UTC)")

    # forgotten, once a person has seen the alert of the failed one: the totals stay, honest about what is not known
    fleet.cli("alerts", "ack", "--all")
    fleet.cli("down")
    user_file(fleet, '[retention]\ntasks = "1ms"\nruns = "1ms"\nevents = "1ms"\n')
    fleet.up()
    wait_until(lambda: fleet.json("ps", "--all") == [], "every task is forgotten")
    again, _scripted = fleet.json("stats")
    assert again["forgotten"] == 5
    assert again["ends"] == command["ends"]
    assert (again["runs"], again["restarts"], again["unexpected"]) == (5, 1, 3)
    assert again["duration"]["mean"] == pytest.approx(times["mean"])
    assert again["duration"]["p50"] is None
    said = fleet.cli("stats")
    assert "6 of these runs belong to forgotten tasks" in said.stderr
    assert fleet.json("stats", "--by", "hour") == []  # known by the day only


def test_bad_questions(fleet: Fleet) -> None:
    fleet.cli("init", "--no-file")
    assert "duration" in refused(fleet, "stats", "--since", "7", code=2)
    assert "'month' is not one of: day, hour" in refused(fleet, "stats", "--by", "month", code=2)


def test_asking_is_cheap(fleet: Fleet) -> None:
    """Cold start: neither asyncio nor rich nor the settings."""
    fleet.add("x", command=("true",))
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "holdfast", "stats"],
        env=fleet.env,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "holdfast.api.fleet.stats" in imported
    assert imported & {"asyncio", "rich", "tomllib", "holdfast.config", "holdfast.wiring.supervisor"} == set()


def test_sums_by_repository_label_model_and_agent(fleet: Fleet) -> None:
    """Where the money went, and what came of it: tasks, success, tokens and money of what has ended."""
    none = ("--workspace", "none")
    other = fleet.make_repo(fleet.root / "shop")
    user_file(fleet, "[retry]\nmax = 0\n")
    usage = {"usage": {"input": 100, "output": 20, "cost_usd": 0.5}}
    fleet.up("--agents", 1)
    assert fleet.cli("stats", "--by", "repo").stdout == "No such task has ended yet.\n"
    tasks = [
        fleet.add_scenario(usage, {"print": "done"}, options=(*none, "--label", "area=docs")),
        fleet.add_scenario(usage, {"print": "done"}, options=(*none, "--label", "area=web")),
        fleet.add("a", *none, "--label", "area=web", command=("false",)),
        fleet.add("b", *none, command=("true",), cwd=other),
    ]
    for task in tasks:
        fleet.wait_state(task, "completed", "failed")
    cancelled = fleet.add("c", "--delay", "1h", "--label", "area=web", command=("true",), cwd=other)
    fleet.cli("cancel", cancelled)
    fleet.wait_state(cancelled, "cancelled", "completed")

    by_repo = {row["name"]: row for row in fleet.json("stats", "--by", "repo")}
    assert set(by_repo) == {str(fleet.repo), str(other)}
    mine = by_repo[str(fleet.repo)]
    assert mine["by"] == "repo"
    assert (mine["tasks"], mine["completed"], mine["failed"]) == (3, 2, 1)
    assert mine["success"] == pytest.approx(2 / 3)
    assert (mine["tokens"], mine["cost_usd"]) == (240, pytest.approx(1.0))
    assert by_repo[str(other)]["tokens"] is None

    by_label = {row["name"]: row for row in fleet.json("stats", "--by", "label:area")}
    assert set(by_label) == {"docs", "web", None}
    assert (by_label["docs"]["tasks"], by_label["docs"]["cost_usd"]) == (1, pytest.approx(0.5))
    assert by_label["web"]["failed"] == 1
    by_agent = {row["name"]: row for row in fleet.json("stats", "--by", "agent")}
    assert by_agent["scripted"]["success"] == 1.0
    assert by_agent["scripted"]["runs"] == 2
    assert {row["tasks"] for row in fleet.json("stats", "--by", "agent", "--agent", "scripted")} == {2}
    assert sum(row["tasks"] for row in fleet.json("stats", "--by", "model")) == 5
    assert fleet.json("stats", "--by", "repo", "--since", "0s") == []
    by_day = [row for row in fleet.json("stats", "--by", "day") if row["agent"] == "scripted"]
    assert sum(row["tasks"] for row in by_day) == sum(row["completed"] for row in by_day) == 2

    lines = fleet.cli("stats", "--by", "repo").stdout.splitlines()
    assert lines[0].split() == ["REPO", "TASKS", "SUCCESS", "RUNS", "TOKENS", "COST"]
    assert lines[1].split() == [str(fleet.repo), "3", "67%", "3", "240", "$1.00"]
    assert "SUCCESS" in fleet.cli("stats", "--by", "day").stdout
    wrong = fleet.cli("stats", "--by", "label", code=2).stderr
    assert "label:KEY" in wrong
    assert "repo" in wrong
