"""What a task's work came to, beside its state: changed files, refused tool calls, and a gate that could not be run."""

from __future__ import annotations

import json
import re

from tests.clis import fake_cli, recorded
from tests.fleet import Fleet, wait_until

SECRET = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB"
DENIED = [
    {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": f"make test TOKEN={SECRET}"}},
    {"tool_name": "Bash", "tool_use_id": "t2", "tool_input": {"command": "npm test\x1b[31m"}},
    {"tool_name": "Bash", "tool_use_id": "t3", "tool_input": {"command": "npm test\x1b[31m"}},
]  # fmt: skip


def refused_claude(fleet: Fleet, *, then: str) -> None:
    """A Claude Code that reports success, and three tool calls that it refused."""
    *lines, last = recorded("claude", "ok")
    result = json.loads(last) | {"permission_denials": DENIED}
    fake_cli(fleet.root / "bin", "claude", lines=[*lines, json.dumps(result)], version="2.1.325", then=then)
    fleet.env["PATH"] = f"{fleet.root / 'bin'}:{fleet.env['PATH']}"


def test_completed_says_what_was_done_and_what_was_refused(fleet: Fleet) -> None:
    """F3: an agent that was refused its tools and changed nothing reported success. Every view says so."""
    refused_claude(fleet, then=":")
    fleet.up()
    ended = fleet.cli("run", "test it", "--agent", "claude")
    assert "completed, no changes, 3 refused" in ended.stdout
    assert "It changed no files." in ended.stdout
    assert "3 tool calls were refused (Bash: make test TOKEN=" in ended.stdout
    assert "Bash: npm test" in ended.stdout
    assert "ghp_0123" not in ended.stdout, "a refused command may hold a secret"
    [task] = fleet.json("ps", "--json", "--all")
    assert (task["changed_files"], task["refused_calls"], len(task["refused_first"])) == (0, 3, 2)
    assert "no changes, 3 refused: " in fleet.cli("ps", "--all").stdout
    assert "completed, no changes, 3 refused" in fleet.cli("show", task["id"]).stdout
    assert "It changed no files." in fleet.cli("report", task["id"]).stdout
    why = fleet.cli("why", task["id"]).stdout
    assert "completed, no changes, 3 refused" in why
    assert "Budgets: " not in why, "nothing was spent but the one run"
    assert "crash 0 of 3" in fleet.cli("why", task["id"], "-v").stdout
    assert "y hand" not in why, "its workspace is gone: `send` goes on in its session"
    assert "`holdfast send " in why
    assert fleet.json("why", task["id"], "--json")[0]["refused_calls"] == 3
    assert "no changes, 3 refused" in fleet.cli("top", "--once", "--all").stdout

    refused_claude(fleet, then="echo new > a.txt; echo new > b.txt")
    ended = fleet.cli("run", "change two", "--agent", "claude", "--gate", "true")
    assert "completed, 3 refused" in ended.stdout
    assert "It changed 2 files." in ended.stdout
    assert ended.stdout.count("ts gate `true` passed.") == 1
    assert "`holdfast merge " in ended.stdout


def test_changes_are_counted_wherever_they_are(fleet: Fleet) -> None:
    """Committed, uncommitted, on a branch of the agent's own, of a task that failed; unknown in the user's checkout."""
    fleet.up()
    git = "git -c user.name=a -c user.email=a@example.invalid"
    scripts = {
        "committed": f"echo x > a; git add a; {git} commit -qm a",
        "both": f"echo x > a; git add a; {git} commit -qm a; echo y > b",
        "own branch": "git checkout -q -b mine; echo x > a; echo x > b; echo x > c",
        "failed": "echo x > a; exit 3",
        "nothing": "true",
    }
    tasks = {name: fleet.add(name, command=("sh", "-c", script)) for name, script in scripts.items()}
    tasks["kept"] = fleet.add("kept", "--keep-workspace", command=("sh", "-c", "echo x > a"))
    tasks["checkout"] = fleet.add("checkout", "--workspace", "none", command=("sh", "-c", "echo x > a"))
    found = {name: fleet.wait_state(task, "completed", "failed")["changed_files"] for name, task in tasks.items()}
    assert found == {
        "committed": 1, "both": 2, "own branch": 3, "failed": 1, "nothing": 0, "kept": 1, "checkout": None
    }  # fmt: skip
    why = fleet.cli("why", tasks["failed"]).stdout
    assert "It changed 1 file." in why
    assert "It failed: the command exited with code 3." in why
    assert (
        set(re.findall(r"\d+ms", "".join(fleet.cli("ps", "--all", "--columns", "age,updated,ended").stdout))) == set()
    )
    ids = fleet.cli("ps", "--all", "-q").stdout.split()
    assert ids == list(tasks.values())


def test_a_gate_that_cannot_be_run_waits_for_a_person(fleet: Fleet) -> None:
    """Exit code 127 or 126 says nothing about the work: one run, an alert, and a resume that asks the gate alone."""
    fleet.up()
    tool = fleet.root / "check-it"
    agent = ("sh", "-c", "echo line >> made.txt")
    ended = fleet.cli("run", "x", "--gate", str(tool), "--tries", "3", "--", *agent, code=75)
    assert "the gate could not be run" in ended.stdout
    assert "exit code 127" in ended.stdout
    [task] = fleet.json("ps", "--json")
    assert (task["state"], task["pause_reason"], task["runs"]) == ("paused", "gate", 1)
    [alert] = fleet.json("alerts", "--json")
    assert "the gate could not be run" in alert["message"]
    assert f"`holdfast resume {task['id']}`" in alert["remedy"]
    assert f"`holdfast resume {task['id']}`" in ended.stdout

    tool.write_text("#!/bin/sh\ntest -e made.txt\n")
    fleet.cli("resume", task["id"])
    wait_until(lambda: "exit code 126" in str(fleet.show(task["id"])["reason"]), "its gate was asked again")
    tool.chmod(0o755)
    fleet.cli("resume", task["id"])
    shown = fleet.wait_state(task["id"], "completed")
    assert len(shown["runs"]) == 1, "its agent was not run again"
    assert shown["resume_attempts"] == 0
    assert fleet.file_on_branch(shown["branch"], "made.txt") == "line"
    assert fleet.json("alerts", "--json") == []


def test_a_failed_gate_is_never_beside_completed(fleet: Fleet) -> None:
    """The outcome beside `state: failed` was `completed`."""
    fleet.up()
    ended = fleet.cli("run", "x", "--gate", "false", "--tries", "1", "--json", "--", "true", code=1)
    found = json.loads(ended.stdout)
    assert (found["state"], found["outcome"]) == ("failed", "failed")
    report = fleet.cli("report", found["id"]).stdout
    assert "✗ its gate failed" in report
    assert "completed" not in report.partition("## The prompt")[0]
    assert "gate failed" in fleet.cli("show", found["id"], "--results").stdout
