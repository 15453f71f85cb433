"""R-RES-09: an agent that takes over without its predecessor's conversation is told what was asked, done and left."""

from __future__ import annotations

from tests.fleet import Fleet


def test_a_new_conversation_begins_with_what_the_last_one_left(fleet: Fleet) -> None:
    """R-RES-09: after a full context, and in a workspace that had to be made again; a fresh start is told of nothing
    that was thrown away. What was told is kept and shown."""
    task = fleet.add_scenario(
        {"run": 1, "print": "The first half is done, the second is not."},
        {"run": 1, "tool": {"name": "Bash", "input": "make check", "for": "1ms"}},
        {"run": 1, "report": {"kind": "progress", "percent": 50, "message": "half of it"}},
        {"run": 1, "write": {"path": "committed.txt", "text": "from the first run\n"}},
        {"run": 1, "commit": "Add the first half"},
        {"run": 1, "write": {"path": "fresh né.txt", "text": "not committed\n"}},
        {"run": 1, "write": {"path": "README.md", "append": True, "text": "one more line\n"}},
        {"run": 1, "limit": {"kind": "context"}},
        {"run": 2, "exit": 1},
        {"run": 3, "write": {"path": "third.txt", "text": "from the third run\n"}},
        {"run": 3, "commit": "Add the third"},
        {"run": 3, "remove": ".git"},
        {"run": 3, "limit": {"kind": "context"}},
        options=("--preserve-on-failure",),
    )
    fleet.up("--agents", 1)
    failed = fleet.wait_state(task, "failed")
    assert [run["outcome"] for run in failed["runs"]] == ["context_limit", "failed"]
    fleet.wait_clean()

    told = fleet.cli("show", task, "--prompt").stdout
    mark = f"holdfast {failed['runs'][1]['id']}"
    before, _, material = told.partition(f"----- {mark}: material -----")
    assert f"the task, as it was asked for -----\nplay\n----- {mark}: end" in before
    for wanted in (
        "Run 1 ended as context_limit: the agent reported a context limit. It had reported: half of it.",
        "The first half is done, the second is not.",
        "Bash: make check",
        "Add the first half",
        "committed.txt  +1 -0",
        "fresh né.txt  +1 -0",
        "+not committed",
        "+one more line",
    ):
        assert wanted in material
    assert fleet.json("show", task, "--prompt", "--run", 1) == [{"id": task, "run": 1, "prompt": "play"}]
    handed = [event for event in fleet.events(task) if event["kind"] == "run.handed-over"]
    assert [event["data"]["runs"] for event in handed] == [[1]]
    assert "context limit" in handed[0]["reason"]
    assert fleet.cli("show", task, "--run", 1, code=2).stderr.count("--prompt")

    fleet.cli("retry", task, "--fresh")
    done = fleet.wait_state(task, "completed")
    assert [run["outcome"] for run in done["runs"]][2:] == ["context_limit", "completed"]
    assert fleet.json("show", task, "--prompt", "--run", 3)[0]["prompt"] == "play"
    again = fleet.json("show", task, "--prompt")[0]["prompt"]
    assert "+from the third run" in again
    assert "Add the third" in again
    assert "first half" not in again
    assert "Run 3 ended" in again
