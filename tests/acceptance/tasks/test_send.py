"""`holdfast send`: a task continues with a person's message, whether it has ended, waits or runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.fleet import Fleet, wait_until

# Each run keeps what it was told and appends a line.
AGENT = "cat > {told}-$HOLDFAST_RUN_NUMBER; echo line $HOLDFAST_RUN_NUMBER >> made.txt"


def test_a_finished_task_goes_on_with_a_message(fleet: Fleet) -> None:
    """F1: the same id, branch and workspace path; the words arrive once; the work of both rounds is on the branch."""
    told = fleet.root / "told"
    fleet.up()
    task = fleet.add("make a line", command=("sh", "-c", AGENT.format(told=told)))
    first = fleet.wait_state(task, "completed")
    assert "holdfast send" in fleet.cli("why", task).stdout
    said = fleet.cli("send", task, "now also add tests")
    assert f"Task {task} was completed and is queued again" in said.stdout
    done = fleet.wait_state(task, "completed", "failed")
    wait_until(lambda: len(fleet.show(task)["runs"]) == 2, "the message began a second run")
    done = fleet.wait_state(task, "completed", "failed")
    assert (done["state"], done["branch"]) == ("completed", first["branch"])
    assert done["workspace"]["path"] == first["workspace"]["path"]
    assert fleet.file_on_branch(done["branch"], "made.txt") == "line 1\nline 2"
    assert (fleet.root / "told-1").read_text() == "make a line"
    assert (fleet.root / "told-2").read_text() == "make a line\n\nLater you were also asked:\n\nnow also add tests"
    assert [(one["text"], one["run"]) for one in done["messages"]] == [("now also add tests", 2)]
    for command in ("show", "why"):
        assert "given to run 2: now also add tests" in fleet.cli(command, task).stdout
    assert "> now also add tests" in fleet.cli("report", task).stdout
    assert fleet.kinds(task).count("message.delivered") == 1


def test_a_session_goes_on_with_the_message_alone(fleet: Fleet) -> None:
    """A scripted agent has a session: its prompt is what the person said, after an end and for a task at work."""
    hold = fleet.root / "hold"
    task = fleet.add_scenario(
        {"write": {"path": "one.txt", "text": "1"}, "run": 1},
        {"wait_for": str(hold), "run": 1},
        {"write": {"path": "two.txt", "text": "2"}, "run": 2},
        {"write": {"path": "three.txt", "text": "3"}, "run": 3},
    )
    fleet.up()
    fleet.wait_started(task)
    assert "at the end of its turn" in fleet.cli("send", task, "second").stdout
    assert "it waits until the turn ends: second" in fleet.cli("why", task).stdout
    hold.touch()
    wait_until(lambda: len(fleet.show(task)["runs"]) == 2, "the message begins a second run")
    fleet.wait_state(task, "completed")
    fleet.cli("send", task, "--file", _file(fleet.root / "words", "third\n"))
    wait_until(lambda: len(fleet.show(task)["runs"]) == 3, "the message begins a third run")
    done = fleet.wait_state(task, "completed")
    assert len({run["session_id"] for run in done["runs"]}) == 1
    assert [run["outcome"] for run in done["runs"]] == ["completed"] * 3
    prompts = [fleet.cli("show", task, "--prompt", "--run", number).stdout.strip() for number in (1, 2, 3)]
    assert prompts == ["play", "second", "third"]
    for name in ("one.txt", "two.txt", "three.txt"):
        assert fleet.file_on_branch(done["branch"], name)


WORDS = "now also add tests"
LIMITED: dict[str, object] = {"limit": {"kind": "usage", "for": "10ms"}}
ENDINGS: dict[str, tuple[dict[str, object] | None, tuple[object, ...]]] = {
    # how run 1 ends: the agent's last step (None: it works until a person ends it), and options of the task
    "failed": ({"report": {"kind": "fail", "message": "not yet"}}, ()),
    "failed, its gate": ({"say": "done"}, ("--gate", "test -e two.txt", "--tries", 1)),
    "failed, with an alert": (LIMITED, ("--max-resumes", 0)),
    "cancelled": (None, ()),
    "paused": (None, ()),
    "paused, with an alert": ({"limit": {"kind": "auth"}}, ()),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_a_task_that_did_not_complete_goes_on_with_a_message(fleet: Fleet, how: str) -> None:
    """F1: failed, cancelled or paused, it is the same id, branch and session; the words arrive once; the work of both
    rounds is on the branch; its alert is closed."""
    ending, options = ENDINGS[how]
    task = fleet.add_scenario(
        {"write": {"path": "one.txt", "text": "1"}, "run": 1},
        {**(ending or {"wait_for": str(fleet.root / "never")}), "run": 1},
        {"write": {"path": "two.txt", "text": "2"}, "run": 2},
        options=options,
    )
    fleet.up()
    state = how.partition(",")[0]
    if ending is None:
        fleet.wait_started(task)
        wait_until(lambda: list(fleet.home.glob("**/one.txt")), "it has written")
        fleet.cli("cancel" if state == "cancelled" else "pause", task)
    first = fleet.wait_state(task, "completed", "failed", "cancelled", "paused")
    assert first["state"] == state, first["reason"]
    alerts = [alert["key"] for alert in fleet.json("alerts") if alert["task"] == task]
    assert bool(alerts) == how.endswith("an alert"), alerts
    assert f"Task {task} was {state} and is queued again" in fleet.cli("send", task, WORDS).stdout
    wait_until(lambda: len(fleet.show(task)["runs"]) == 2, "the message began a second run")
    done = fleet.wait_state(task, "completed", "failed", "paused")
    assert done["state"] == "completed", done["reason"]
    assert (done["branch"], done["resume_attempts"]) == (first["branch"] or f"holdfast/{task}", 0)
    assert len({run["session_id"] for run in done["runs"]} - {None}) == 1
    assert first["runs"][0]["session_id"] is not None
    prompts = [fleet.cli("show", task, "--prompt", "--run", number).stdout for number in (1, 2)]
    assert [prompt.count(WORDS) for prompt in prompts] == [0, 1]
    assert [(one["text"], one["run"]) for one in done["messages"]] == [(WORDS, 2)]
    assert fleet.kinds(task).count("message.delivered") == 1
    assert [alert["key"] for alert in fleet.json("alerts") if alert["task"] == task] == []
    for name in ("one.txt", "two.txt"):
        assert fleet.file_on_branch(done["branch"], name), name
    fleet.wait_clean()
    assert not fleet.worktrees()


def test_what_cannot_take_a_message_says_why(fleet: Fleet) -> None:
    """Each refusal names the next command, and nothing is sent."""
    task = fleet.add("wait", command=("true",))
    for words in ([], ["one", "--rebase"], ["one", "--edit"]):
        refused = fleet.cli("send", task, *words, code=2)
        assert "--file FILE" in refused.stderr
    assert "empty" in fleet.cli("send", task, " ", code=2).stderr
    env = {"EDITOR": "true"}
    assert "empty" in fleet.cli("send", task, "--edit", code=2, env=env).stderr
    assert "Did you mean --edit?" in fleet.cli("send", task, "--edti", "x", code=2).stderr
    assert "no option --gentle" in fleet.cli("send", task, "x", "--gentle", code=2).stderr
    assert fleet.show(task)["messages"] == []
    fleet.cli("send", task, "--edit", env={"EDITOR": "printf 'by editor' >"})
    fleet.cli("send", task, "-", stdin=b"by pipe")
    shown = json.loads(fleet.cli("send", task, "--json", "once again").stdout)
    assert shown == {"schema": 1, "id": task, "before": "queued", "message": 3}
    assert [one["text"] for one in fleet.show(task)["messages"]] == ["by editor", "by pipe", "once again"]


def _file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
