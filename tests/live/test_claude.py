"""What the real Claude Code does with what its adapter alone asks of it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest
from tests.agents_cache import wanted
from tests.live.stage import PROGRAM, Stage

from holdfast.rehearsal.stub.scenarios import OUT_FILE

pytestmark = pytest.mark.agents


def test_permissions_limits_and_an_interrupt(stage: Callable[[str], Stage]) -> None:
    """`read` writes nothing, `edit` runs no program; limits of turns and money end it with their own outcome; SIGINT,
    after which it exits with 0, is no success, and the session continues."""
    if len(wanted()) < 3:
        pytest.skip("only `make test-agents` does this one")
    on = stage("claude")
    on.settle("tool", "program", "once")
    on.fleet.up("--agents", 2)
    interrupted = on.add("once")
    read, edit = on.add("tool", "--permission", "read"), on.add("program", "--permission", "edit")
    turns, money = on.add("tool", "--max-turns", 1), on.add("tool", "--budget-usd", "0.001")
    on.wait_for_file(interrupted, "once.txt")
    os.kill(on.fleet.show(interrupted)["runs"][0]["pid"], signal.SIGINT)

    for task, scenario in ((read, ("tool",)), (edit, ("shell", PROGRAM))):
        branch = on.wait_completed(task)["branch"]
        assert on.fleet.git("log", "--format=%s", f"main..{branch}", check=False) == ""
        assert any(one.results for one in on.stub.requests(*scenario)), "it tried"
    for task, outcome in ((turns, "turn_limit"), (money, "over_budget")):
        shown = on.fleet.wait_state(task, "failed", "paused", "completed")
        assert shown["runs"][0]["outcome"] == outcome, shown["runs"]
    done = on.wait_completed(interrupted)
    first, second = (run["outcome"] for run in done["runs"])
    assert first in ("external_kill", "out_of_memory")  # the kernel may end another test's agent at the same time
    assert second == "completed"
    assert len({run["session_id"] for run in done["runs"]}) == 1
    assert on.fleet.file_on_branch(on.wait_completed(on.run("tool"))["branch"], OUT_FILE)


def test_a_budget_in_money_holds_over_runs(stage: Callable[[str], Stage]) -> None:
    """It stops itself at what is left; the task is paused, and continues when it is given more, in the same session."""
    if len(wanted()) < 3:
        pytest.skip("only `make test-agents` does this one")
    on = stage("claude")
    on.settle("tool")
    on.fleet.up("--agents", 1)
    task = on.add("tool", "--budget-usd", "0.001")
    assert on.fleet.wait_state(task, "paused", "completed", "failed")["pause_reason"] == "budget"
    spent = on.fleet.shown(task)["budgets"]["task_usd"]
    assert spent["spent"] >= spent["limit"] == 0.001
    assert "--budget-usd N" in on.fleet.cli("resume", task, code=4).stderr
    on.fleet.cli("resume", task, "--budget-usd", "5")
    done = on.wait_completed(task)
    argv = json.loads((on.fleet.home / "runs" / done["runs"][1]["id"] / "intent.json").read_text())["argv"]
    assert 4.9 < float(argv[argv.index("--max-budget-usd") + 1]) < 5.0, "what was left"
    assert len({run["session_id"] for run in done["runs"]}) == 1
    assert on.fleet.shown(task)["spent_in_all"]["cost_usd"] > spent["spent"]
