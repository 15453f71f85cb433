"""`holdfast send` to tasks in several stages: the builder gets the message, and the later stages run again."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.acceptance.workflows.test_stages import Workshop, results
from tests.fleet import Fleet, wait_until

from holdfast.core.workflows.draft import MemberDraft, StageDraft

WORDS = "now also add tests"


def builder_and_reviewer(shop: Workshop, *, hold: Path | None = None, approval: bool = False) -> str:
    """A scripted builder, which has a session, and a reviewer that approves. Run 2, a review, waits for `hold`."""
    waits = () if hold is None else ({"wait_for": str(hold), "run": 2},)
    build = shop.scripted(
        {"write": {"path": "one.txt", "text": "1"}, "run": 1},
        {"write": {"path": "two.txt", "text": "2"}, "run": 3},
        {"say": "built"},
    )
    review = shop.scripted(*waits, {"print": "VERDICT: approve"})
    return shop.add(
        StageDraft(name="build", chosen=build),
        StageDraft(name="review", chosen=review, reviews=True, back_to="build", approval=approval),
    )


def assert_both_rounds(fleet: Fleet, task: str) -> None:
    """Two rounds of both stages: the builder in one session, the words in its second run alone, all on the branch."""
    done = fleet.show(task)
    runs = [run for run in done["runs"] if run["outcome"] == "completed"]
    assert [run["stage"] for run in runs] == ["build", "review", "build", "review"]
    assert runs[0]["session_id"] == runs[2]["session_id"] not in (None, runs[1]["session_id"], runs[3]["session_id"])
    prompts = [fleet.cli("show", task, "--prompt", "--run", run["number"]).stdout.strip() for run in runs]
    assert prompts[2] == WORDS
    assert [prompt.count(WORDS) for prompt in prompts[:2]] == [0, 0]
    assert [(one["text"], one["run"]) for one in done["messages"]] == [(WORDS, runs[2]["number"])]
    assert fleet.kinds(task).count("message.delivered") == 1
    assert [(row.name, row.passed) for row in results(fleet, task)] == [("build", True), ("review", True)] * 2
    for name in ("one.txt", "two.txt"):
        assert fleet.file_on_branch(done["branch"], name)


def test_a_message_to_a_finished_workflow_reaches_its_builder(fleet: Fleet) -> None:
    """F1: the builder continues in its session with the words alone; the reviewer looks at the work again."""
    shop = Workshop(fleet)
    task = builder_and_reviewer(shop)
    fleet.up()
    first = fleet.wait_state(task, "completed", "failed")
    assert first["stage"]["name"] == "review"
    fleet.cli("send", task, WORDS)
    wait_until(lambda: len(fleet.show(task)["runs"]) == 4, "the message began a second round")
    done = fleet.wait_state(task, "completed", "failed")
    assert (done["state"], done["branch"]) == ("completed", first["branch"])
    assert_both_rounds(fleet, task)


def test_a_message_during_a_later_stage_waits_for_the_builder(fleet: Fleet) -> None:
    """The reviewer at work does not get the words. When it has ended, the builder does, and the review runs again.

    The supervisor is killed in the step that sends the task back. Its successor takes the step once.
    """
    shop, hold = Workshop(fleet), fleet.root / "hold"
    task = builder_and_reviewer(shop, hold=hold)
    supervisor = fleet.up(env={"HOLDFAST_FAULT": "tx.stage.enter_round:1:kill"})
    wait_until(lambda: len(fleet.show(task)["runs"]) == 2 and fleet.wait_started(task), "the reviewer works")
    assert "at the end of its turn" in fleet.cli("send", task, WORDS).stdout
    hold.touch()
    assert supervisor.wait(timeout=60) == -signal.SIGKILL
    left = fleet.show(task)
    assert (left["state"], left["stage"]["name"], len(left["runs"])) == ("running", "review", 2)
    fleet.up()
    wait_until(lambda: len(fleet.show(task)["runs"]) == 4, "the message began a second round")
    assert fleet.wait_state(task, "completed", "failed")["state"] == "completed"
    assert_both_rounds(fleet, task)


def test_a_send_that_is_killed_on_the_way_to_the_builder_has_sent_nothing(fleet: Fleet) -> None:
    """Message, reopening and stage change in one transaction, so the command can be given again."""
    shop = Workshop(fleet)
    task = builder_and_reviewer(shop)
    fleet.up()
    fleet.wait_state(task, "completed", "failed")
    fleet.wait_clean()
    fleet.cli("send", task, WORDS, env={"HOLDFAST_FAULT": "tx.stage.enter_round:1:kill"}, code=-signal.SIGKILL)
    left = fleet.show(task)
    assert (left["state"], left["messages"], left["stage"]["name"]) == ("completed", [], "review")
    fleet.cli("send", task, WORDS)
    wait_until(lambda: len(fleet.show(task)["runs"]) == 4, "the message began a second round")
    assert fleet.wait_state(task, "completed", "failed")["state"] == "completed"
    assert_both_rounds(fleet, task)


def test_a_stage_that_waits_for_an_approval_takes_no_message(fleet: Fleet) -> None:
    """Refused with the next command, which reaches the builder. After the approval a message is taken."""
    shop = Workshop(fleet)
    task = builder_and_reviewer(shop, approval=True)
    fleet.up()
    fleet.wait_state(task, "paused", "failed")
    refused = fleet.cli("send", task, WORDS, code=4).stderr
    assert f"`holdfast approve {task} --changes TEXT`" in refused
    assert fleet.show(task)["messages"] == []
    fleet.cli("approve", task)
    fleet.wait_state(task, "completed", "failed")
    fleet.cli("send", task, WORDS)
    wait_until(lambda: len(fleet.show(task)["runs"]) == 4, "the message began a second round")
    waiting = fleet.wait_state(task, "paused", "failed")
    assert (waiting["pause_reason"], waiting["stage"]["awaits_approval"]) == ("approval", True), "it is asked for again"
    fleet.cli("approve", task)
    assert fleet.wait_state(task, "completed", "failed")["state"] == "completed"
    assert_both_rounds(fleet, task)


def test_a_workflow_without_a_builder_takes_no_message(fleet: Fleet) -> None:
    """All its stages are parallel or review, so the refusal names the command for a task of its own."""
    shop = Workshop(fleet)
    members = tuple(MemberDraft(name=name, chosen=shop.scripted({"print": "I looked."})) for name in ("one", "two"))
    judge = shop.scripted({"print": "VERDICT: approve"})
    task = shop.add(
        StageDraft(name="look", members=members),
        StageDraft(name="judge", chosen=judge, reviews=True, back_to="look"),
    )
    for state in ("queued", "completed"):
        refused = fleet.cli("send", task, WORDS, code=4).stderr
        assert "No stage of the workflow 'shop' changes files" in refused
        assert '`holdfast add "…"' in refused
        assert fleet.show(task)["messages"] == []
        if state == "queued":
            fleet.up()
            assert fleet.wait_state(task, "completed", "failed")["state"] == "completed"
