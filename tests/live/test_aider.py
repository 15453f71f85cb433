"""aider has no sessions and no tools: what the other CLIs are asked (test_real_agents.py) does not fit it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.fleet import wait_until
from tests.live.stage import PATIENCE, Stage

from holdfast.rehearsal.stub.scenarios import OUT_FILE, OUT_TEXT

pytestmark = pytest.mark.agents


def test_aider_from_prompt_to_branch(stage: Callable[[str], Stage]) -> None:
    """Its file is on the branch, none of its own; killed -9 it is taken again with a hand-over; a refused login is no
    success, though it exits with 0; neither is an answer of the model that talks of limits a failure."""
    on = stage("aider")
    on.settle("tool", "hang", "401", "limittext")
    on.fleet.up("--agents", 4)
    hangs, refused, talks = on.add("hang"), on.add("401"), on.add("limittext")
    done = on.fleet.shown(on.run("tool"))
    assert on.fleet.file_on_branch(done["branch"], OUT_FILE).strip() == OUT_TEXT
    assert ".aider" not in on.fleet.git("ls-tree", "-r", "--name-only", done["branch"])
    assert on.fleet.json("salvage", "list", "--json") == [], "its cache is no work"
    [run] = done["runs"]
    assert (run["outcome"], run["session_id"]) == ("completed", None)
    assert run["tokens"] > 0

    wait_until(lambda: on.stub.requests("hang"), "aider asks its model", PATIENCE)
    on.kill_agent(hangs)
    wait_until(lambda: len(on.stub.requests("hang")) == 2, "it is taken again", PATIENCE)
    assert any("An earlier agent" in prompt for prompt in on.stub.requests("hang")[1].prompts)
    assert on.fleet.show(hangs)["runs"][0]["outcome"] == "external_kill"

    assert [run["outcome"] for run in on.wait_completed(talks)["runs"]] == ["completed"]
    wait_until(lambda: on.fleet.show(refused)["runs"][0]["outcome"], "the refused login is seen", PATIENCE)
    assert on.fleet.show(refused)["runs"][0]["outcome"] == "auth"
