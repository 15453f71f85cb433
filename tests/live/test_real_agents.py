"""Real agent CLIs, driven by Holdfast from outside, against the stub in the place of their providers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.agents_cache import ALL, wanted
from tests.fleet import lives
from tests.live.stage import Stage, seconds

from holdfast.agents.common.cli_agent import CliAgent
from holdfast.rehearsal.stub.scenarios import LIMIT_TEXT, OUT_FILE, OUT_TEXT, SLOW

pytestmark = pytest.mark.agents
KILLED = ("external_kill", "out_of_memory")  # the kernel may end an agent of another test at the same time
EVERYTHING = len(wanted()) > 2  # `make test-agents`
WITH_SESSIONS = tuple(name for name in ALL if name != "aider")  # test_aider.py


@pytest.mark.parametrize("name", WITH_SESSIONS)
def test_a_real_agent_from_prompt_to_branch(name: str, stage: Callable[[str], Stage]) -> None:
    """R-RES-09, R-TERM-09: its file is on the branch, with session, tokens and cost; killed -9 in a tool call it goes
    on in the same session; what it leaves running is dead when it has ended."""
    on = stage(name)
    on.settle("tool", "slowtool", "nohup")
    on.fleet.up("--agents", 3)
    slow, left = on.add("slowtool"), on.add("nohup")
    on.wait_for_file(slow, "slow.txt")
    on.kill_agent(slow)

    done = on.fleet.shown(on.run("tool"))
    assert on.fleet.file_on_branch(done["branch"], OUT_FILE).strip() == OUT_TEXT
    [run] = done["runs"]
    assert run["outcome"] == "completed"
    assert isinstance(on.adapter, CliAgent)
    assert run["session_id"]
    assert run["session_id"] == done["session_id"]
    assert not on.adapter.capabilities.tokens or run["tokens"] > 0
    assert not on.adapter.capabilities.cost or run["cost_usd"] > 0

    continued = on.wait_completed(slow)
    first, second = (run["outcome"] for run in continued["runs"])
    assert first in KILLED
    assert second == "completed"
    assert len({run["session_id"] for run in continued["runs"]}) == 1
    assert on.fleet.file_on_branch(continued["branch"], OUT_FILE).strip() == OUT_TEXT
    last = on.stub.requests("slowtool")[-1]
    assert any(SLOW in call for call in last.calls), "the history was not sent again"
    assert sum("play slowtool" in prompt for prompt in last.prompts) >= 2, "both prompts are in it"

    ended = on.wait_completed(left)
    pid = int(on.fleet.file_on_branch(ended["branch"], "pid.txt"))
    assert not lives(pid)


@pytest.mark.parametrize("name", WITH_SESSIONS)
def test_a_lost_session_and_a_model_that_talks_of_limits(name: str, stage: Callable[[str], Stage]) -> None:
    """R-RES-09: a session that is gone is begun again with a hand-over; a limit in the model's words is only words."""
    if not EVERYTHING and name != "codex":  # it starts fastest
        pytest.skip("only `make test-agents` does this one")
    on = stage(name)
    on.settle("once", "limittext")
    on.fleet.up("--agents", 2)
    task, talk = on.add("once"), on.add("limittext")
    on.wait_for_file(task, "once.txt")
    assert on.forget_sessions(task) > 0, "it keeps its sessions elsewhere"
    on.kill_all_of(task)
    done = on.wait_completed(task)
    first, *rest = (run["outcome"] for run in done["runs"])
    assert first in KILLED
    assert rest == ["session_lost", "completed"]
    assert done["session_id"] == done["runs"][2]["session_id"] != done["runs"][0]["session_id"]
    handed_over = [one for one in on.stub.requests() if any("An earlier agent" in prompt for prompt in one.prompts)]
    assert not handed_over[0].calls, "it began with a clean history"
    told = next(prompt for prompt in handed_over[0].prompts if "An earlier agent" in prompt)
    assert any(word in told for word in KILLED)
    assert "once.txt  +0 -0" in told, "what the first run wrote"

    said = on.wait_completed(talk)
    assert [run["outcome"] for run in said["runs"]] == ["completed"]
    assert LIMIT_TEXT in on.fleet.cli("logs", talk).stdout


def test_an_honest_answer_may_take_longer_than_the_patience_with_silence(stage: Callable[[str], Stage]) -> None:
    """Claude Code tells of the pieces of an answer: a slow one is no hang."""
    if not EVERYTHING:
        pytest.skip("only `make test-agents` does this one")
    on = stage("claude")
    on.settle("slow/48", health__stuck_after="20s")
    on.fleet.up("--agents", 1)
    done = on.wait_completed(on.add("slow/48"))
    assert [run["outcome"] for run in done["runs"]] == ["completed"]
    assert seconds(done["runs"][0]) > 40
