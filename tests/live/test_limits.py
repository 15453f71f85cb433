"""A real CLI meets its plan's limit: paused until the reset, over the death of the supervisor, in the same session."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.live.stage import PATIENCE, Stage

from holdfast.rehearsal.stub.scenarios import OUT_FILE, OUT_TEXT

pytestmark = pytest.mark.agents
WAIT = 8  # seconds; the CLI has to end and the test to kill the supervisor within them, or less is shown


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_limit_is_waited_out_in_the_same_session(name: str, stage: Callable[[str], Stage]) -> None:
    """R-RES-01, R-RES-08, R-RES-09."""
    on, scenario = stage(name), f"first/usage-limit/1/once/{WAIT}"
    on.settle(scenario, resume__default_hold="2s")
    supervisor = on.fleet.up()
    began = time.time()
    task = on.add(scenario)
    on.fleet.wait_state(task, "paused", "completed", "failed", patience=PATIENCE)
    on.fleet.kill_supervisor(supervisor)
    [paused] = [event["data"] for event in on.fleet.events(task) if event["kind"] == "task.paused"] or [{}]
    assert paused.get("pause_reason") == "usage_limit", on.why()
    assert paused["resume_after"] >= began + 1
    before = on.fleet.show(task)
    on.fleet.up()
    done = on.fleet.wait_state(task, "completed", "failed", patience=PATIENCE)
    assert [run["outcome"] for run in done["runs"]] == ["usage_limited", "completed"], on.why()
    assert len({run["session_id"] for run in done["runs"]}) == 1
    assert done["workspace"]["path"] == before["workspace"]["path"]
    assert on.fleet.file_on_branch(done["branch"], OUT_FILE).strip() == OUT_TEXT
    [told] = [event for event in on.fleet.events(task) if event["kind"] == "task.resumed"]
    assert told["at"] >= paused["resume_after"]
