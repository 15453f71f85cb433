"""The walking skeleton, from outside: each way a task can go, with a real supervisor, worktrees and processes."""

from __future__ import annotations

import os
import signal

import pytest
from tests.fleet import Fleet, in_company, lives, wait_until


@pytest.fixture(autouse=True)
def cold(fleet: Fleet) -> None:
    """These tests start every command as a user's shell would."""
    fleet.may_be_warm = False


def agent_pid(fleet: Fleet, task_id: str) -> int:
    """The pid of the task's running agent."""
    return int(
        wait_until(
            lambda: [run["pid"] for run in fleet.show(task_id)["runs"] if run["state"] == "started"],
            f"an agent of {task_id} runs",
        )[0]
    )


def test_success_leaves_a_branch_and_nothing_else(fleet: Fleet) -> None:
    """R-CLEAN-01, R-CLEAN-10, R-TREE-13: the branch is the result, leftovers included; tree and processes are gone."""
    fleet.up()
    task_id = fleet.add_scenario(
        {"print": "working"},
        {"write": {"path": "done.txt", "text": "committed\n"}},
        {"commit": "Do it"},
        {"write": {"path": "left.txt", "text": "uncommitted\n"}},
        {"spawn": {"kind": "daemon"}},
    )
    task = fleet.wait_state(task_id, "completed")
    assert task["outcome"] == "completed"
    assert task["branch"] == f"holdfast/{task_id}"
    assert fleet.file_on_branch(task["branch"], "done.txt") == "committed"
    assert fleet.file_on_branch(task["branch"], "left.txt") == "uncommitted"
    assert fleet.git("log", "--format=%an", "-1", task["branch"]) == "Tess Tester"
    fleet.wait_clean()
    assert fleet.worktrees() == []
    assert not (fleet.home / "workspaces" / ".trash").exists() or not any(
        (fleet.home / "workspaces" / ".trash").iterdir()
    )
    assert "working" in fleet.cli("logs", task_id).stdout
    assert "+committed" in fleet.cli("diff", task_id).stdout
    assert fleet.git("status", "--porcelain") == ""
    fleet.doctor()


def test_success_without_changes_leaves_no_branch(fleet: Fleet) -> None:
    """A branch without a commit beyond its base is deleted at the end."""
    fleet.up()
    task_id = fleet.add("nothing", command=("true",))
    fleet.wait_state(task_id, "completed")
    fleet.wait_clean()
    assert fleet.branches() == []
    assert fleet.cli("diff", task_id).stdout == ""


def test_failure_saves_uncommitted_work(fleet: Fleet) -> None:
    """R-CLEAN-02, R-TREE-13: a failed task's tree goes, its work does not; restore brings it back byte for byte."""
    fleet.up()
    task_id = fleet.add_scenario(
        {"write": {"path": "README.md", "text": "changed\n"}},
        {"write": {"path": "new/deep.txt", "text": "untracked\r\n"}},
        {"remove": "src/app.py"},
        {"stderr": "it broke here"},
        {"exit": 3},
    )
    task = fleet.wait_state(task_id, "failed")
    assert (task["outcome"], task["failure_reason"]) == ("failed", "failed")
    assert "exit code 3" in task["reason"]
    assert task["crashes"] == [], "R-CRASH-01: a failure of its own is no crash"
    fleet.wait_clean()
    assert fleet.worktrees() == []
    assert fleet.branches() == []
    assert [row["files"] for row in fleet.json("salvage", "list")] == [3]
    fleet.cli("salvage", "restore", task_id, "--branch", "rescued")
    assert fleet.git("show", "rescued:README.md") == "changed"
    raw = fleet.git("cat-file", "-s", "rescued:new/deep.txt")
    assert raw == str(len("untracked\r\n"))
    assert "src/app.py" not in fleet.git("ls-tree", "-r", "--name-only", "rescued")
    assert "it broke here" in fleet.cli("why", task_id).stdout
    fleet.doctor()


def test_cancel_ends_the_whole_tree_within_two_seconds(fleet: Fleet) -> None:
    """R-TERM-06, R-CLEAN-10: daemons, new sessions and TERM-ignorers included; the work is saved."""
    fleet.env["HOLDFAST_HEALTH_GRACE"] = "10m"
    fleet.up()
    marks = [f"{kind}.pid" for kind in ("plain", "group", "session", "daemon", "ignore-term")]
    task_id = fleet.add_scenario(
        {"ignore_term": True},
        *({"spawn": {"kind": mark.removesuffix(".pid"), "write": mark}} for mark in marks[:3]),
        {"spawn": {"kind": "ignore-term", "write": marks[4]}},
        {"spawn": {"kind": "daemon"}},
        {"touch": str(fleet.root / "reached")},
        {"hang": True},
    )
    wait_until((fleet.root / "reached").exists, "the agent hangs")
    workspace = fleet.show(task_id)["workspace"]["path"]
    pids = [int((fleet.root / workspace / mark).read_text()) for mark in (*marks[:3], marks[4])]
    pids.append(agent_pid(fleet, task_id))
    assert all(lives(pid) for pid in pids)
    asked = fleet.cli("cancel", task_id, "--why", "changed my mind")
    assert "Cancelled" in asked.stdout
    assert not any(lives(pid) for pid in pids)
    stopping, ended = (
        next(event["at"] for event in fleet.events(task_id) if event["kind"] == kind)
        for kind in ("run.stopping", "run.ended")
    )
    assert ended - stopping < in_company(2.0)
    cancelled = fleet.show(task_id)
    assert (cancelled["state"], cancelled["crashes"]) == ("cancelled", []), "R-CRASH-01: nor what we asked for"
    fleet.wait_clean()
    assert fleet.json("salvage", "list")[0]["files"] == 4
    fleet.doctor()


def test_an_agent_killed_from_outside_is_taken_again(fleet: Fleet) -> None:
    """R-TERM-09, R-CRASH-03, R-TERM-08: noticed at once, `external_kill`, run again in the same tree."""
    fleet.up()
    task_id = fleet.add_scenario(
        {"run": 1, "write": {"path": "half.txt", "text": "first half\n"}},
        {"run": 1, "touch": str(fleet.root / "reached")},
        {"run": 1, "hang": True},
        {"write": {"path": "half.txt", "text": "second half\n", "append": True}},
    )
    wait_until((fleet.root / "reached").exists, "the agent hangs")
    os.kill(agent_pid(fleet, task_id), signal.SIGKILL)
    task = fleet.wait_state(task_id, "completed")
    assert [run["outcome"] for run in task["runs"]] == ["external_kill", "completed"]
    assert fleet.file_on_branch(task["branch"], "half.txt") == "first half\nsecond half"
    assert fleet.kinds(task_id).count("agent.terminated") == 2
    assert fleet.shown(task_id)["budgets"]["crash"]["spent"] == 1
    assert [crash["outcome"] for crash in task["crashes"]] == ["external_kill"]


def test_three_crashes_stop_a_task(fleet: Fleet) -> None:
    """R-CRASH-02, R-CRASH-04, R-CRASH-06, R-CRASH-09: 1 and 2 run again, 3 stops it as crash_loop with one alert, also
    when the supervisor died in between; what is recorded says everything; a retry closes the alert."""
    supervisor = fleet.up()
    task_id = fleet.add_scenario({"write": {"path": "half.txt", "text": "half"}}, {"crash": "SIGSEGV"})
    wait_until(lambda: fleet.json("crashes", task_id), "the first crash is recorded")
    fleet.kill_supervisor(supervisor)
    fleet.up()
    task = fleet.wait_state(task_id, "failed")
    crashed = [run for run in task["runs"] if run["outcome"] != "lost"]  # one that was just being started is no crash
    assert [run["outcome"] for run in crashed] == ["crashed"] * 3
    assert task["failure_reason"] == "crash_loop"
    alerts = fleet.json("alerts")
    assert len(alerts) == 1
    assert task_id in alerts[0]["message"]
    assert "3 of 3 crashes within 600 s" in alerts[0]["message"]
    details = alerts[0]["details"]
    assert (details["crashes"], details["restart"]) == (3, f"holdfast retry {task_id}")
    assert details["recovered"]["salvage"], "the half-written file was saved"
    crashes = fleet.json("crashes", task_id, "--since", "1h")
    assert [(crash["claim_released"], crash["restarted"]) for crash in crashes] == [(True, True)] * 2 + [(True, False)]
    assert [crash["run"] for crash in crashes] == [run["id"] for run in crashed]
    assert {crash["workspace"] for crash in crashes} == {task["workspace"]["path"]}
    assert "It crashed 3 time(s)" in fleet.cli("why", task_id).stdout
    assert "crash 3 " in fleet.cli("show", task_id).stdout
    assert fleet.json("ps", "--all")[0]["alerts"] == {"own": 1, "open": 1, "worst": "critical"}
    assert "1 alert(s), the worst critical" in fleet.cli("ps").stderr
    assert fleet.json("alerts", "--level", "critical") == alerts
    fleet.cli("alerts", "ack", alerts[0]["id"], "--why", "looked into")
    assert fleet.json("alerts") == []
    assert "looked into" in fleet.cli("alerts", "--all").stdout


def test_a_limit_pauses_and_resumes_by_itself(fleet: Fleet) -> None:
    """R-RES-01, R-RES-07, R-RES-08, R-RES-09: same path, same session, one resume spent, reset on completion."""
    fleet.up()
    task_id = fleet.add_scenario(
        {"run": 1, "write": {"path": "where.txt", "text": "kept\n"}},
        {"run": 1, "limit": {"kind": "usage", "for": "1s"}},
        {"print": "continued"},
    )
    paused = fleet.wait_state(task_id, "paused", "completed")
    if paused["state"] == "paused":
        assert (paused["pause_reason"], paused["resume_attempts"]) == ("usage_limit", 0)
        assert paused["workspace"]["state"] == "ready"
    task = fleet.wait_state(task_id, "completed")
    assert [run["outcome"] for run in task["runs"]] == ["usage_limited", "completed"]
    assert len({run["session_id"] for run in task["runs"]}) == 1
    assert fleet.file_on_branch(task["branch"], "where.txt") == "kept"
    resumed = [event for event in fleet.events(task_id) if event["kind"] == "task.resumed"]
    assert [event["message"] for event in resumed] == [f"Task {task_id}: resume 1 of 3."]
    assert task["resume_attempts"] == 0
    assert task["crashes"] == [], "R-CRASH-01: neither is a limit"
    pause = next(event for event in fleet.events(task_id) if event["kind"] == "task.paused")
    assert resumed[0]["at"] >= pause["data"]["resume_after"]


def test_the_fourth_limit_in_a_row_fails_the_task(fleet: Fleet) -> None:
    """R-RES-03, R-RES-04, R-RES-12: an agent that always pauses ends as "(4/3)" with three remedies."""
    fleet.up(env={"HOLDFAST_RESUME_DEFAULT_HOLD": "1s"})  # a limit that comes again holds for a part of it
    task_id = fleet.add_scenario({"say": "I begin"}, {"limit": {"kind": "rate", "for": "1ms"}})
    task = fleet.wait_state(task_id, "failed")
    assert len(task["runs"]) == 4
    assert "Maximum resume attempts exceeded (4/3)" in task["reason"]
    assert "smaller tasks" in task["reason"]
    assert "resume.max_attempts" in task["reason"]
    assert f"holdfast events {task_id}" in task["reason"]
    assert (task["resume_attempts"], task["pause_reason"]) == (4, "rate_limit")
    assert task["failure_reason"] == "max_resume_attempts_exceeded"
    fleet.wait_clean()
    fleet.doctor()


def test_timeout_is_kept_by_the_keeper_even_without_a_supervisor(fleet: Fleet) -> None:
    """R-TERM-05: the run is ended while the supervisor is dead; the restarted one finds it over."""
    supervisor = fleet.up()
    task_id = fleet.add_scenario(
        {"run": 1, "touch": str(fleet.root / "reached")}, {"run": 1, "hang": True}, options=("--timeout", "6s")
    )
    wait_until((fleet.root / "reached").exists, "the agent hangs")
    pid = agent_pid(fleet, task_id)
    fleet.kill_supervisor(supervisor)
    wait_until(lambda: not lives(pid), "the keeper ended its agent alone")
    fleet.up()
    task = fleet.wait_state(task_id, "completed")
    assert [run["outcome"] for run in task["runs"]] == ["timeout", "completed"]
    assert fleet.shown(task_id)["budgets"]["retry"]["spent"] == 1
    assert task["crashes"] == [], "R-CRASH-01: nor a timeout"


def test_a_killed_supervisor_adopts_its_agent(fleet: Fleet) -> None:
    """R-TERM-10: kill -9 of the supervisor; the next one takes the living agent back: one run, no output lost."""
    supervisor = fleet.up()
    task_id = fleet.add_scenario(
        {"print": "before"},
        {"touch": str(fleet.root / "reached")},
        {"wait_for": str(fleet.root / "go")},
        {"print": "after"},
        {"write": {"path": "done.txt", "text": "once\n"}},
    )
    wait_until((fleet.root / "reached").exists, "the agent is at work")
    pid = agent_pid(fleet, task_id)
    fleet.kill_supervisor(supervisor)
    assert lives(pid)
    assert "none is running" in fleet.cli("doctor", code=1).stdout
    fleet.up()
    wait_until(lambda: "task.adopted" in fleet.kinds(task_id), "the task is adopted")
    assert agent_pid(fleet, task_id) == pid
    (fleet.root / "go").touch()
    task = fleet.wait_state(task_id, "completed")
    assert len(task["runs"]) == 1
    assert [line for line in fleet.cli("logs", task_id).stdout.splitlines() if line in ("before", "after")] == [
        "before",
        "after",
    ]
    fences = [event["data"]["fence"] for event in fleet.events(task_id) if "fence" in event["data"]]
    assert fences == sorted(fences)
    assert fences[-1] == 2
    fleet.wait_clean()
    fleet.doctor()


def test_a_run_that_ended_without_a_supervisor_is_settled_by_the_next(fleet: Fleet) -> None:
    """R-TERM-10: exit status and output are complete though nobody was there."""
    supervisor = fleet.up()
    task_id = fleet.add_scenario(
        {"touch": str(fleet.root / "reached")},
        {"wait_for": str(fleet.root / "go")},
        {"write": {"path": "alone.txt", "text": "alone\n"}},
    )
    wait_until((fleet.root / "reached").exists, "the agent is at work")
    pid = agent_pid(fleet, task_id)
    fleet.kill_supervisor(supervisor)
    (fleet.root / "go").touch()
    wait_until(lambda: not lives(pid), "the agent ended")
    fleet.up()
    task = fleet.wait_state(task_id, "completed")
    assert len(task["runs"]) == 1
    assert fleet.file_on_branch(task["branch"], "alone.txt") == "alone"


def test_a_git_lock_that_a_dead_agent_left_does_not_keep_its_work_from_the_branch(fleet: Fleet) -> None:
    """R-TREE-15: after the proof of emptiness `index.lock` in our own entry is stale; leftovers still get committed."""
    fleet.up()
    task_id = fleet.add(
        "x", command=("sh", "-c", 'echo kept > left.txt; touch "$(git rev-parse --git-dir)/index.lock"')
    )
    task = fleet.wait_state(task_id, "completed")
    assert fleet.file_on_branch(task["branch"], "left.txt") == "kept"
    assert task["salvages"] == []
