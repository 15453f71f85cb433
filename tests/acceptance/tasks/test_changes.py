"""Changing a task that does not run (`set`), going on with other words (`retry`, `resume`), and waiting for tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.acceptance.config.test_config import user_file
from tests.fleet import Fleet, wait_until

# Each run keeps what it was told.
FAILS = {"report": {"kind": "fail", "message": "not yet"}}
TOLD = "cat > {told}-$HOLDFAST_RUN_NUMBER; "


def test_a_retry_with_another_prompt_reaches_a_new_conversation(fleet: Fleet) -> None:
    """F1: a plain command has no session. Its next run gets the new prompt alone, once, and the old one not at all."""
    told = fleet.root / "told"
    task = fleet.add("do it wrong", command=("sh", "-c", TOLD.format(told=told) + "grep -q right && echo x > done.txt"))
    fleet.queue("true")
    fleet.up()
    fleet.wait_state(task, "failed")
    fleet.wait_clean()
    fleet.cli("retry", task, "--prompt", "do it right", "--timeout", "90s", "--max-resumes", "7")
    wait_until(lambda: len(fleet.show(task)["runs"]) == 2, "a second run")
    done = fleet.wait_state(task, "completed", "failed")
    assert (fleet.root / "told-2").read_text() == "do it right"
    assert (done["prompt"], done["timeout"], done["max_resumes"]) == ("do it right", 90.0, 7)
    changed = next(event for event in fleet.events(task) if event["kind"] == "task.changed")
    assert changed["data"]["changed"]["prompt"] == ["do it wrong", "do it right"]
    assert [(one["text"], one["run"]) for one in done["messages"]] == [("do it right", 2)]


@pytest.mark.parametrize(("option", "full"), [("--prompt", "second"), ("--append", "play\n\nLater")])
def test_a_retry_with_words_reaches_the_same_session(fleet: Fleet, option: str, full: str) -> None:
    """The words alone are the prompt of the next run in the session, and they arrive once."""
    task = fleet.add_scenario(
        {**FAILS, "run": 1},
        {"write": {"path": "two.txt", "text": "2"}, "run": 2},
    )
    fleet.up()
    fleet.wait_state(task, "failed")
    fleet.wait_clean()
    fleet.cli("retry", task, option, "second")
    wait_until(lambda: len(fleet.show(task)["runs"]) == 2, "a second run")
    done = fleet.wait_state(task, "completed", "failed")
    assert done["state"] == "completed"
    assert len({run["session_id"] for run in done["runs"]}) == 1
    assert fleet.cli("show", task, "--prompt", "--run", 2).stdout.strip() == "second"
    assert [(one["text"], one["run"]) for one in done["messages"]] == [("second", 2)]
    assert done["prompt"] == (full if option == "--prompt" else "play")


def test_a_resume_beyond_the_limit_goes_on_with_more_resumes(fleet: Fleet) -> None:
    """The remedies that the refusals name work: `--max-resumes`, and words for the agent arrive with it."""
    limit = {"limit": {"kind": "usage", "for": "10ms"}, "run": 1}
    steps = ({"say": "I begin"}, limit, {"write": {"path": "a.txt", "text": "a"}, "run": 2})
    ended = fleet.add_scenario(*steps, options=("--max-resumes", 0))
    fleet.up()
    failed = fleet.wait_state(ended, "failed")
    remedy = f"holdfast retry {ended} --max-resumes 2"
    assert f"`{remedy}`" in failed["reason"]
    fleet.wait_clean()
    fleet.cli(*remedy.split()[1:])
    fleet.wait_state(ended, "completed")
    fleet.cli("down")
    user_file(fleet, "resume.auto = false\n")
    fleet.up()
    task = fleet.add_scenario(*steps, options=("--max-resumes", 0))
    fleet.wait_state(task, "paused")
    refused = fleet.cli("resume", task, code=4).stderr
    assert f"`holdfast resume {task} --max-resumes 2`" in refused
    assert "resume 1 of 2" in fleet.cli("resume", task, "--max-resumes", 2, "--append", "go slowly").stdout
    done = fleet.wait_state(task, "completed", "failed", "paused")
    assert done["state"] == "completed"
    assert "go slowly" in fleet.cli("show", task, "--prompt", "--run", 2).stdout


def note_taking_claude(fleet: Fleet, told: Path) -> None:
    """A program that plays Claude Code: it notes its arguments and its prompt, writes a file and completes."""
    claude = fleet.root / "claude"
    claude.write_text(
        f'#!/bin/sh\ncase "$1" in --version) echo "2.1.0 (Claude Code)"; exit;; esac\n'
        f'echo "$@" >> {told}; cat >> {told}; echo hi > by-claude.txt\n'
        """echo '{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s-2"}'\n"""
    )
    claude.chmod(0o755)
    user_file(fleet, f'claude.binary = "{claude}"\n')


@pytest.mark.parametrize("command", ["retry", "resume"])
def test_another_agent_begins_a_new_session_with_a_hand_over(fleet: Fleet, command: str) -> None:
    """The session of the old agent is not given to the new one. The earlier run is read as its own agent wrote it."""
    told, hold = fleet.root / "told", {"wait_for": str(fleet.root / "never")}
    note_taking_claude(fleet, told)
    task = fleet.add_scenario({"say": "I looked at the lexer"}, FAILS if command == "retry" else hold)
    fleet.up()
    if command == "resume":
        fleet.wait_started(task)
        wait_until(lambda: "lexer" in fleet.cli("logs", task).stdout, "it has spoken")
        fleet.cli("pause", task)
    before = fleet.wait_state(task, "failed", "paused")
    if command == "retry":
        fleet.wait_clean()
    fleet.cli(command, task, "--agent", "claude", "--model", "opus", "--timeout", "90s")
    done = fleet.wait_state(task, "completed")
    assert [run["outcome"] for run in done["runs"]] == ["failed" if command == "retry" else "paused", "completed"]
    assert (done["agent"], done["timeout"]) == ("claude", 90.0)
    words = told.read_text()
    assert "I looked at the lexer" in words
    assert "--model opus" in words
    assert before["session_id"] not in words
    assert fleet.file_on_branch(done["branch"], "by-claude.txt")


def test_a_resume_changes_the_model_of_its_agent(fleet: Fleet) -> None:
    """Its next run has the new model and time limit. A task whose agent takes no model stays paused."""
    told = fleet.root / "told"
    note_taking_claude(fleet, told)
    task = fleet.add("work", "--agent", "claude", "--model", "sonnet", "--delay", "1h")
    plain = fleet.add("work", "--delay", "1h", command=("true",))
    fleet.cli("pause", task, plain)
    assert "takes no model" in fleet.cli("resume", plain, "--model", "opus", code=2).stderr
    assert fleet.show(plain)["state"] == "paused"
    fleet.cli("set", task, "model=opus", "timeout=1h30m")
    fleet.cli("resume", task, "--model", "haiku", "--timeout", "2h")
    (changed,) = [event["data"]["changed"] for event in fleet.events(task) if event["kind"] == "task.changed"][1:]
    assert changed == {"model": ["opus", "haiku"], "timeout": ["5400 s", "7200 s"]}
    assert (fleet.show(task)["state"], fleet.show(task)["timeout"]) == ("queued", 7200.0)


def test_set_changes_what_does_not_run(fleet: Fleet) -> None:
    """One event for all changes, and nothing changes if one of them is wrong."""
    task = fleet.add("before", "--label", "area=core", "--label", "old=1", command=("true",))
    words = (
        "priority=5 prompt=after label.area=docs label.old= timeout=2h max_resumes=9 gate=true tries=4 preserve=always "
        "memory=1GB stuck-after=off"
    )
    said = fleet.cli("set", task, *words.split()).stdout
    for part in (
        "priority 0 → 5",
        "prompt before → after",
        "labels area=core old=1 → area=docs",
        "preserve none → always",
    ):
        assert part in said
    row = fleet.show(task)
    assert (row["prompt"], row["priority"], row["labels"]) == ("after", 5, {"area": "docs"})
    assert (row["timeout"], row["max_resumes"], row["limits"]["memory"]) == (7200.0, 9, 1_000_000_000)
    assert fleet.kinds(task).count("task.changed") == 1
    assert row["messages"] == []  # no agent has seen it: its prompt is enough
    for wrong, why in {
        "priorty=1": "Did you mean 'priority'?",
        "priority=high": "whole number",
        "priority": "KEY=VALUE",
        "preserve=maybe": "always, on-failure, never",
        "budget-usd=0": "above 0",
        "agent=cluade": "Did you mean 'claude'?",
        "model=opus": "takes no model",
        "prompt= ": "empty",
        "budget-usd=5": "does not report its cost",
    }.items():
        refused = fleet.cli("set", task, "priority=9", wrong, code=2).stderr
        assert why in refused, refused
    assert fleet.show(task)["priority"] == 5
    assert "already has these values" in fleet.cli("set", task, "priority=5").stdout
    (told,) = fleet.json("set", task, "priority=6")
    assert told == {"id": task, "changed": {"priority": ["5", "6"]}}
    fleet.up()
    done = fleet.wait_state(task, "completed", "failed")
    assert done["gate"]["passed"] is True
    fleet.wait_clean()
    assert fleet.show(task)["workspace"]["state"] == "preserved"


def test_refusals_name_the_next_command(fleet: Fleet) -> None:
    """A running task is not changed, and each state that does not allow it says what does."""
    running = fleet.add("work", command=("sh", "-c", "sleep 1000"))
    done = fleet.add("done", command=("true",))
    fleet.up()
    fleet.wait_started(running)
    fleet.wait_state(done, "completed")
    for words, why in (
        (("set", running, "priority=3"), f"`holdfast pause {running}`"),
        (("retry", running, "--prompt", "x"), f"`holdfast pause {running}`"),
        (("retry", running), f"`holdfast why {running}`"),
        (("retry", done, "--prompt", "x"), f"`holdfast send {done} TEXT`"),
        (("retry", done), f"`holdfast send {done} TEXT`"),
        (("resume", done, "--append", "x"), f"`holdfast send {done} TEXT`"),
        (("set", done, "prompt=x"), f"`holdfast send {done} TEXT`"),
        (("cancel", done), f"`holdfast show {done}`"),
        (("pause", done), f"`holdfast why {done}`"),
    ):
        assert why in fleet.cli(*words, code=4).stderr
    assert fleet.show(done)["messages"] == fleet.show(running)["messages"] == []
    assert "task.changed" not in fleet.kinds(done) + fleet.kinds(running)
    fleet.cli("cancel", running)


def test_wait_ends_as_run_does(fleet: Fleet) -> None:
    """F15: the exit code is that of the worst task; it starts a supervisor; --any is the first, --timeout ends it."""
    good, bad = fleet.queue("true"), fleet.queue("exit 3")
    done = fleet.cli("wait", good, bad, code=1)
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [[good, "completed"], [bad, "failed"]]
    assert fleet.cli("wait", good).stdout.startswith(f"{good}  completed")
    held, slow = fleet.queue("true", delay=86400.0), fleet.queue("true", delay=86400.0)
    late = fleet.cli("wait", held, slow, "--timeout", "0.2s", code=75).stderr
    assert f"2 of 2 task(s) are not at rest after 0.2 s. They continue: `holdfast why {held}`." in late
    fleet.cli("pause", held)
    first = [json.loads(line) for line in fleet.cli("wait", held, slow, "--any", "--json", code=75).stdout.splitlines()]
    assert [(row["id"], row["state"]) for row in first] == [(held, "paused")]
    fleet.cli("wait", good, held, code=75)
    fleet.cli("wait", good, bad, held, code=1)
    assert "Task not found" in fleet.cli("wait", "zzzzzz", code=3).stderr
    assert "Which task?" in fleet.cli("wait", code=2).stderr
    fleet.cli("down", code=None)


def test_permissions_and_turns_are_changed(fleet: Fleet) -> None:
    """F3: a task keeps the permissions that it was added with. A changed one comes with the present
    `permissions.allow`, so a command that was refused is allowed in the same session. `max-turns` changes too."""
    told = fleet.root / "told"
    claude = fleet.root / "claude"
    result = '{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s-2"}'
    claude.write_text(
        f'#!/bin/sh\ncase "$1" in --version) echo "2.1.0 (Claude Code)"; exit;; esac\n'
        f"echo \"$@\" >> {told}; cat >/dev/null; echo '{result}'\n"
    )
    claude.chmod(0o755)
    user_file(fleet, f'claude.binary = "{claude}"\n')
    task = fleet.add("test it", "--agent", "claude", "--max-turns", 9)
    fleet.up()
    fleet.wait_state(task, "completed")
    user_file(fleet, f'claude.binary = "{claude}"\npermissions.allow = ["make test"]\n')
    said = fleet.cli("set", task, "permission=edit", "max_turns=4").stdout
    assert "allow none → make test" in said
    assert "max-turns 9 → 4" in said
    fleet.cli("send", task, "run the tests now")
    wait_until(lambda: len(told.read_text().splitlines()) == 2, "it goes on")
    first, second = told.read_text().splitlines()
    assert "make test" not in first
    assert "--max-turns 9" in first
    assert "Bash(make test:*)" in second
    assert "--max-turns 4" in second
    assert f"--resume {fleet.show(task)['runs'][0]['session_id']}" in second
    fleet.wait_state(task, "completed")
    assert "permission edit → read" in fleet.cli("set", task, "permission=read", "max-turns=").stdout
    for words, why in {
        ("permission=all",): "read, edit, full",
        ("max-turns=0",): "from 1",
        ("agent=codex", "max-turns=3"): "Codex cannot be given a number of turns",
    }.items():
        assert why in fleet.cli("set", task, *words, code=2).stderr
    other = fleet.add("x", command=("true",))
    assert "cannot be given a number of turns" in fleet.cli("set", other, "max-turns=3", code=2).stderr
    assert "takes no permission" in fleet.cli("set", other, "permission=full", code=2).stderr
    assert "--max-turns" in fleet.cli("retry", "--help").stdout + fleet.cli("resume", "--help").stdout


def test_saved_work_that_a_task_went_on_with_is_not_offered_again(fleet: Fleet) -> None:
    """`why` names saved work only while no later workspace began with it. A fresh start leaves it to the person."""
    script = "echo $HOLDFAST_RUN_NUMBER >> f.txt; test -e go || test $HOLDFAST_RUN_NUMBER = 2"
    fleet.up()
    task = fleet.add("write", command=("sh", "-c", script))
    fleet.wait_state(task, "failed")
    fleet.wait_clean()
    offered = f"holdfast salvage restore {task} --branch NAME"
    assert offered in fleet.cli("why", task).stdout.partition("What happened last")[0]
    fleet.cli("retry", task)
    wait_until(lambda: len(fleet.show(task)["runs"]) == 2, "a second run")
    done = fleet.wait_state(task, "completed", "failed")
    assert fleet.file_on_branch(done["branch"], "f.txt") == "1\n2"
    assert offered not in fleet.cli("why", task).stdout.partition("What happened last")[0]
    assert "the task's next workspace began with these files" in fleet.cli("show", task).stdout
    assert [row["taken_up"] for row in fleet.json("salvage", "list", task)] == [True]
    other = fleet.add("write", command=("sh", "-c", script))
    fleet.wait_state(other, "failed")
    fleet.wait_clean()
    fleet.cli("retry", other, "--fresh")
    wait_until(lambda: len(fleet.show(other)["runs"]) == 2, "a second run")
    fleet.wait_state(other, "completed", "failed")
    assert f"salvage restore {other}" in fleet.cli("why", other).stdout.partition("What happened last")[0]
