"""Issues of a tracker become tasks, and are closed, given back and left alone. From outside, with a stand-in `br`."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import PATIENCE, Fleet, wait_until
from tests.standin import SCRIPT, StandIn

from holdfast.api.queries import Queries

WORK = "echo done > done.txt"


def beads(fleet: Fleet, script: str = WORK, *, agents: int = 2, extra: str = "") -> None:
    """The user's own settings: every repository with a .beads directory is looked at, by an agent that is `script`."""
    tool = fleet.root / "bin" / "br"
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {SCRIPT} "$@"\n')
    tool.chmod(0o755)
    fleet.env["PATH"] = f"{tool.parent}:{fleet.env['PATH']}"
    config = fleet.root / "config.toml"
    config.write_text(
        f'agents = {agents}\nagent = "command"\n[command]\nargv = ["sh", "-c", {json.dumps(script)}]\n'
        f'[tracker]\nkind = "beads"\npoll = "1s"\ntimeout = "30s"\n{extra}'
    )
    fleet.env["HOLDFAST_CONFIG"] = str(config)
    fleet.cli("init")


def task_of(fleet: Fleet, issue: str) -> str:
    def found() -> str | None:
        rows = [row for row in links(fleet) if row["issue"] == issue and row["task"]]
        return str(rows[-1]["task"]) if rows else None

    return str(wait_until(found, f"{issue} has a task"))


@functools.lru_cache(maxsize=1)
def queries(home: str) -> Queries:
    """Opened once per test: it is asked often."""
    return Queries(home)


def links(fleet: Fleet) -> list[dict[str, Any]]:
    return queries(str(fleet.home)).view("links")


def told(fleet: Fleet, kind: str) -> int:
    found = queries(str(fleet.home)).last_events(task_id=None, limit=100000)
    return len([event for event in found if event["kind"] == kind])


def wait_link(fleet: Fleet, issue: str, *states: str) -> None:
    wait_until(
        lambda: [row["state"] for row in links(fleet) if row["issue"] == issue][-1:] in ([s] for s in states),
        f"the link of {issue} is {states}",
    )


def wanted(tracker: StandIn, issue: str) -> int:
    """How often it was claimed."""
    return [call[:3] for call in tracker.calls()].count(["update", issue, "--claim"])


def waiting_for(path: Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.1; done"


def test_an_issue_becomes_a_task_and_is_closed_and_a_failed_one_is_given_back(fleet: Fleet) -> None:
    """R-CRASH-08: prompt, label and priority from the issue; closed with the branch; failed work is not taken again."""
    tracker = StandIn(fleet.repo)
    beads(fleet, '[ "$HOLDFAST_TASK_ID" ] && case "$(cat)" in *fail*) exit 3;; esac; echo done > done.txt')
    tracker.add("bd-good", title="Make it", description="All of it.", acceptance_criteria="It works.", priority=0)
    tracker.add("bd-bad", title="Please fail")
    tracker.add("bd-anns", assignee="ann")
    fleet.up()
    good, bad = task_of(fleet, "bd-good"), task_of(fleet, "bd-bad")
    assert fleet.wait_state(good, "completed", "failed")["state"] == "completed"
    wait_link(fleet, "bd-good", "closed")
    shown = fleet.shown(good)
    assert shown["prompt"].startswith("Make it\n\nAll of it.\n\nAcceptance criteria:\nIt works.\n\n")
    assert (shown["labels"], shown["priority"]) == ({"issue": "bd-good"}, 2)
    issue = tracker.get("bd-good")
    assert issue["status"] == "closed"
    assert issue["close_reason"] == f"Holdfast task {good} completed; its work is on branch {shown['branch']}."
    assert issue["closed_by"].startswith("holdfast-")
    fleet.wait_state(bad, "failed")
    wait_link(fleet, "bd-bad", "released")
    assert tracker.stands("bd-bad") == ("open", None)
    wait_until(lambda: tracker.get("bd-bad").get("comments"), "the note is there")
    assert f"Holdfast task {bad} failed" in tracker.get("bd-bad")["comments"][0]["text"]
    looks = len([call for call in tracker.calls() if call[0] == "ready"])
    wait_until(lambda: len([c for c in tracker.calls() if c[0] == "ready"]) > looks + 1, "it is looked at again")
    assert [row["issue"] for row in links(fleet)] == ["bd-good", "bd-bad"], "not taken again by itself: that would loop"
    assert tracker.stands("bd-anns") == ("open", "ann")
    fleet.wait_clean()  # until its workspace is removed a retry is refused
    fleet.cli("retry", bad)
    wait_until(lambda: len(tracker.get("bd-bad")["comments"]) == 2, "retried under a new claim, and given back again")
    assert tracker.stands("bd-bad") == ("open", None)
    listed = [json.loads(line) for line in fleet.cli("tracker", "--json").stdout.splitlines()]
    assert {row["record"] for row in listed} == {"tracker", "link"}
    assert "bd-good" in fleet.cli("tracker", "--all").stdout
    kinds = fleet.kinds(good)
    assert kinds.index("issue.claimed") < kinds.index("task.completed") < kinds.index("issue.closed")


def test_a_crashed_agents_issue_is_free_at_once_and_another_home_takes_it(fleet: Fleet, tmp_path: Path) -> None:
    """R-CRASH-03, R-CRASH-08: our requeued task stands back, its work is kept; the other home's is closed."""
    tracker = StandIn(fleet.repo)
    go = fleet.root / "go"
    written = fleet.root / "written"
    beads(fleet, f"echo half > half.txt; touch {written}; {waiting_for(go)}")
    tracker.add("bd-1")
    fleet.up()
    ours = task_of(fleet, "bd-1")
    pid = fleet.wait_started(ours)["runs"][-1]["pid"]
    wait_until(written.exists, "it has begun its work")
    name = tracker.get("bd-1")["assignee"]
    claims = wanted(tracker, "bd-1")
    again = fleet.root / "again"
    tracker.behave(gates={"update --claim": str(again)})  # our next claim waits for us
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: tracker.stands("bd-1") == ("open", None), "the issue is free")
    (tmp_path / "two").mkdir()
    other = Fleet(tmp_path / "two")
    try:
        wait_until(lambda: wanted(tracker, "bd-1") > claims, "we want it again")
        tracker.set("bd-1", status="in_progress", assignee="holdfast-elsewhere-x")
        again.touch()
        shown = fleet.wait_state(ours, "cancelled")
        assert "Holdfast no longer holds its issue bd-1: holdfast-elsewhere-x has it" in shown["reason"]
        wait_link(fleet, "bd-1", "lost")
        assert tracker.stands("bd-1") == ("in_progress", "holdfast-elsewhere-x")
        fleet.wait_clean()
        assert fleet.json("salvage", "list"), "what it had done is kept"
        fleet.cli("down", "--now")
        tracker.set("bd-1", status="open", assignee=None)
        other.env.update({key: fleet.env[key] for key in ("PATH", "HOLDFAST_CONFIG")})
        other.cli("init", cwd=fleet.repo)
        go.touch()
        other.up("--idle-exit", "1ms").wait(timeout=PATIENCE)
        assert tracker.stands("bd-1")[0] == "closed"
        assert tracker.get("bd-1")["closed_by"] != name, "two homes have two names"
    finally:
        other.close()


def test_a_crash_record_names_the_issue_and_its_claim_only_when_it_is_free(fleet: Fleet) -> None:
    """R-CRASH-02, R-CRASH-09: the tracker has not answered yet, so the claim is not released, and `why`, `ps` and `top`
    say that the task waits for it; later the same record says that the claim is released."""
    tracker = StandIn(fleet.repo)
    free, again = fleet.root / "free", fleet.root / "again"
    beads(fleet, f"exec sleep 1000 # {free}")
    tracker.add("bd-1")
    supervisor = fleet.up()
    task = task_of(fleet, "bd-1")
    pid = fleet.wait_started(task)["runs"][-1]["pid"]
    tracker.behave(gates={"update": str(free), "update --claim": str(again)})
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: fleet.json("crashes"), "the crash is recorded")
    [crash] = fleet.json("crashes")
    assert (crash["issue"], crash["claim_released"]) == ("bd-1", False)
    assert "issue bd-1, claim not released" in fleet.cli("crashes", task).stdout
    [event] = [event for event in fleet.events(task) if event["kind"] == "crash.recorded"]
    assert (event["data"]["issue"], event["data"]["claim_released"]) == ("bd-1", False)
    assert (
        "Its issue bd-1 is not claimed by Holdfast now: `holdfast tracker` says why." in fleet.cli("why", task).stdout
    )
    words = "its issue bd-1 is not claimed by Holdfast now"
    wait_until(lambda: words in fleet.cli("ps").stdout, "after the back-off `ps` says so")
    assert words in fleet.cli("top", "--once").stdout
    free.touch()
    wait_until(lambda: fleet.json("crashes")[0]["claim_released"], "the issue is free, and the record says so")
    assert tracker.stands("bd-1") == ("open", None)
    fleet.kill_supervisor(supervisor)
    again.touch()


def test_a_persons_change_is_never_touched_and_a_restart_reads_what_is(fleet: Fleet) -> None:
    """R-CRASH-08: reassigned, closed or deleted while we work: the task continues, the issue stays as they made it."""
    tracker = StandIn(fleet.repo)
    go = fleet.root / "go"
    beads(fleet, waiting_for(go) + "; " + WORK, agents=4)
    for issue in ("bd-taken", "bd-closed", "bd-gone", "bd-kept"):
        tracker.add(issue)
    up = fleet.up()
    tasks = {issue: task_of(fleet, issue) for issue in ("bd-taken", "bd-closed", "bd-gone", "bd-kept")}
    for task in tasks.values():
        fleet.wait_started(task)
    tracker.set("bd-taken", assignee="ann")
    tracker.set("bd-closed", status="closed")
    tracker.delete("bd-gone")
    wait_link(fleet, "bd-taken", "lost")
    tracker.behave(broken=1)
    wait_until(lambda: told(fleet, "tracker.trouble"), "the trouble is told")
    fleet.kill_supervisor(up)
    go.touch()
    fleet.up()
    for task in tasks.values():
        assert fleet.wait_state(task, "completed", "failed")["state"] == "completed"
    tracker.behave()
    fleet.cli("tracker", "sync")
    wait_link(fleet, "bd-kept", "closed")
    wait_link(fleet, "bd-closed", "closed", "lost")
    wait_link(fleet, "bd-gone", "lost")
    assert tracker.stands("bd-taken") == ("in_progress", "ann")
    assert "close_reason" not in tracker.get("bd-closed"), "theirs stands"
    wait_until(lambda: told(fleet, "tracker.recovered"), "that it is over is told")
    assert told(fleet, "tracker.trouble") == 1, "once per episode"


@pytest.mark.skipif("HOLDFAST_TEST_TRACKERS" not in os.environ, reason="the scenario `issues` of the matrix has more")
@pytest.mark.parametrize(
    "point",
    [
        "tx.link.intend",
        "tracker.claim",
        "tracker.claimed",
        "tx.link.belong",
        "tx.link.move",
        "tracker.close",
        "tracker.closed",
    ],
)
def test_killed_around_every_step_of_an_issue(fleet: Fleet, point: str) -> None:
    """R-CRASH-08: intent before effect: one task, one claim, one close, whatever the moment. With real processes
    throughout; `HOLDFAST_TEST_TRACKERS=1` asks for it."""
    tracker = StandIn(fleet.repo)
    beads(fleet)
    tracker.add("bd-1")
    assert (
        fleet.up("--idle-exit", "1ms", env={"HOLDFAST_FAULT": f"{point}:1:kill"}).wait(timeout=PATIENCE)
        == -signal.SIGKILL
    )
    fleet.up("--idle-exit", "1ms").wait(timeout=PATIENCE)
    assert [row["state"] for row in links(fleet)] == ["closed"]
    assert tracker.stands("bd-1")[0] == "closed"
    assert len([call for call in tracker.calls() if call[0] == "close"]) == 1


def test_a_file_that_is_not_trusted_and_a_tool_that_is_missing(fleet: Fleet) -> None:
    """R-CRASH-08: a repository's file cannot run a command unseen; a missing tool is told, and stops nothing."""
    tracker = StandIn(fleet.repo)
    tracker.add("bd-1")
    fleet.cli("init")
    proof = fleet.root / "ran"
    (fleet.repo / "holdfast.toml").write_text(
        f'[tracker]\nkind = "beads"\ncommand = ["touch", "{proof}"]\npoll = "50ms"\n'
    )
    fleet.up()

    def trouble() -> str:
        return str([row["trouble"] for row in fleet.json("tracker") if row["record"] == "tracker"][:1])

    wait_until(lambda: "not trusted" in trouble(), "that it is not trusted is told")
    assert not proof.exists()
    (fleet.repo / "holdfast.toml").write_text('[tracker]\nkind = "beads"\ncommand = ["/nowhere/br"]\n')
    fleet.cli("trust", "--yes")
    fleet.cli("tracker", "sync")
    wait_until(lambda: "cannot be started" in trouble(), "that it is missing is told")
    (fleet.repo / "holdfast.toml").unlink()
    assert fleet.wait_state(fleet.queue("true"), "completed")["state"] == "completed", "everything else continues"
    assert not links(fleet)
