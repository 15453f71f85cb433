"""A real CLI goes through stages: what a gate printed is told in the same session, and a later stage reads an earlier
one's answer in a session of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.fleet import wait_until
from tests.live.stage import ADDRESSES, PATIENCE, Stage, account_of
from tests.swarm import queue_swarm

from holdfast.core.workflows.draft import AgentChoice, StageDraft, WorkflowDraft
from holdfast.rehearsal.stub.scenarios import OUT_FILE, OUT_TEXT

pytestmark = pytest.mark.agents
GATE = "test -e seen || { touch seen; echo 'the gate wants a second look'; exit 3; }"


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_gates_words_reach_the_same_session_and_the_next_stage_reads_the_answer(
    name: str, stage: Callable[[str], Stage]
) -> None:
    """R-RES-09. A task without stages has a gate too (F10)."""
    on = stage(name)
    on.settle("tool", "ok", "program")
    build, review = (AgentChoice(agent=name, account=account_of(scenario)) for scenario in ("tool", "ok"))
    flow = WorkflowDraft(
        name="live",
        stages=(
            StageDraft(name="build", prompt="play", chosen=build, gate=GATE, retry=1),
            StageDraft(name="review", prompt="It says: {{ stages.build.text }}", chosen=review),
        ),
    )
    task, plain = queue_swarm(on.fleet, flow), on.add("program", "--gate", GATE, "--tries", "2")
    on.fleet.up("--idle-exit", "0s")
    done = on.wait_completed(task)
    first, second, third = (run["session_id"] for run in done["runs"])
    assert first == second != third, on.why()
    told = [prompt for exchange in on.stub.requests("tool") for prompt in exchange.prompts]
    assert any("the gate wants a second look" in prompt for prompt in told), told
    read = [prompt for exchange in on.stub.requests("ok") for prompt in exchange.prompts]
    assert any("It says: Hello, the task is done." in prompt for prompt in read), read
    assert on.fleet.file_on_branch(done["branch"], OUT_FILE).strip() == OUT_TEXT
    gated = on.wait_completed(plain)
    assert len({run["session_id"] for run in gated["runs"]}) == 1, on.why()
    assert (len(gated["runs"]), gated["gate"]["passed"]) == (2, True), on.why()
    told = [prompt for exchange in on.stub.requests(*ADDRESSES["program"]) for prompt in exchange.prompts]
    assert any("the gate wants a second look" in prompt for prompt in told), told


AT_WORK = "until [ -e {go} ]; do sleep 0.1; done"


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_messages_reach_the_same_session_once(name: str, stage: Callable[[str], Stage]) -> None:
    """F1, with the real CLI: a message to a task at work is given at the end of its turn, a message to a task that has
    ended begins a run. Both reach the session that has the first prompt, once each. A lost session is handed over."""
    on = stage(name)
    go = on.fleet.root / "go"
    ADDRESSES["held"] = ("shell", AT_WORK.format(go=go))
    on.settle("held")
    on.fleet.up("--agents", "1")
    task = on.add("held")
    on.fleet.wait_started(task)
    wait_until(lambda: on.stub.requests(*ADDRESSES["held"]), "its agent is at work", PATIENCE)
    assert "at the end of its turn" in on.fleet.cli("send", task, "mind the second file").stdout
    go.touch()
    wait_until(lambda: len(on.fleet.show(task)["runs"]) == 2, "the first message begins a run", PATIENCE)
    on.wait_completed(task)
    on.fleet.cli("send", task, "now also add tests")
    wait_until(lambda: len(on.fleet.show(task)["runs"]) == 3, "the second message begins a run", PATIENCE)
    done = on.wait_completed(task)
    assert len({run["session_id"] for run in done["runs"]}) == 1, on.why()
    assert [one["run"] for one in done["messages"]] == [2, 3]
    told = "\0".join(on.stub.requests(*ADDRESSES["held"])[-1].prompts)
    words = ("play held", "mind the second file", "now also add tests")
    assert [told.count(one) for one in words] == [1, 1, 1], told
    assert sorted(words, key=told.index) == list(words)

    assert on.forget_sessions(task)
    on.fleet.cli("send", task, "and a page")
    wait_until(lambda: len(on.fleet.show(task)["runs"]) >= 4, "the third message begins a run", PATIENCE)
    done = on.wait_completed(task)
    assert done["runs"][-1]["session_id"] != done["runs"][0]["session_id"], on.why()
    told = "\0".join(on.stub.requests(*ADDRESSES["held"])[-1].prompts)
    assert [told.count(one) for one in (*words, "and a page")] == [1, 1, 1, 1], told
