"""A parallel stage from outside: real members, real keepers, a supervisor that may be killed (R-CRON-05)."""

from __future__ import annotations

import os
import signal
import time

from tests.fleet import Fleet, in_company, lives, processes_of, wait_until
from tests.swarm import draft, queue_swarm, results, wait_members

from holdfast.core.workflows.draft import AgentChoice, MemberDraft, StageDraft, WorkflowDraft
from holdfast.rehearsal.scenario import check

STOPPED_FOR = float(os.environ.get("HOLDFAST_TEST_STOPPED_FOR", "1"))  # seconds; R-TREE-17 says 100


def test_a_swarm_with_a_crash_a_hang_and_one_that_ignores_term_is_collected_at_its_deadline(fleet: Fleet) -> None:
    """R-CRON-05: each one's output is collected, who fails is counted, and the partial results of the rest are kept."""
    scripts = {
        "good": "cat; echo looked at it",
        "crash": "echo half; kill -SEGV $$",
        "hang": "echo begun; sleep 1000",
        "deaf": "trap '' TERM; echo deaf; while :; do sleep 0.1; done",
    }
    fleet.env["HOLDFAST_HEALTH_GRACE"] = "1s"
    task_id = queue_swarm(fleet, draft(scripts, timeout=8.0))
    fleet.up("--agents", 4, "--idle-exit", "0s")
    task = fleet.wait_state(task_id, "completed")
    fleet.wait_clean()
    found = results(fleet, task_id)
    outcomes = {member: result.outcome for member, result in found.items() if member}
    assert outcomes == {"good": "completed", "crash": "crashed", "hang": "timeout", "deaf": "timeout"}
    assert found["good"].text == "Look, good.looked at it"
    assert (found["crash"].text, found["hang"].text, found["deaf"].text) == ("half", "begun", "deaf")
    assert "## hang (timeout" in found[""].text
    assert found[""].reason == "1 of 4 completed: 2 timeout, 1 crashed"
    assert "1 of 4 completed" in task["reason"]
    events = fleet.events(task_id)
    [collected] = [event for event in events if event["kind"] == "stage.collected"]
    assert collected["data"]["outcomes"] == {"completed": 1, "timeout": 2, "crashed": 1}
    assert sum(event["kind"] == "stage.member-ended" for event in events) == 4
    assert [run["state"] for run in task["runs"]] == ["settled"] * 4
    assert fleet.worktrees() == []
    assert fleet.branches() == []  # nobody committed anything
    wait_until(lambda: processes_of(fleet.root) == {}, "nothing of it lives")


def test_a_cancelled_swarm_is_gone_at_once(fleet: Fleet) -> None:
    """R-CRON-05, R-TREE-03: every member, the one that ignores TERM and the one without a place too; then the tree."""
    deaf = "trap '' TERM; echo $$ > {0}/{1}; while :; do sleep 0.1; done"
    names = ("one", "two", "three", "late")
    scripts = {name: deaf.format(fleet.root, name) for name in names}
    task_id = queue_swarm(fleet, draft(scripts))
    fleet.up("--agents", 3, "--idle-exit", "0s")
    wait_members(fleet, task_id, 3)
    said = [fleet.root / name for name in names[:3]]
    wait_until(lambda: all(path.exists() and path.read_text() for path in said), "each has said which process it is")
    pids = [int(path.read_text()) for path in said]
    fleet.cli("cancel", task_id)
    began = time.monotonic()
    fleet.wait_state(task_id, "cancelled")
    assert not any(map(lives, pids))
    assert time.monotonic() - began < in_company(2.0)  # R-CRON-05
    fleet.wait_clean()
    assert (fleet.worktrees(), fleet.branches()) == ([], [])
    runs = fleet.show(task_id)["runs"]
    assert [run["outcome"] for run in runs] == ["cancelled"] * 3  # `--agents 3`: the fourth never had a place
    assert [member for member in results(fleet, task_id) if member] == []


def test_a_supervisor_that_is_killed_and_stopped_in_the_middle_of_a_swarm_runs_nobody_twice(fleet: Fleet) -> None:
    """R-TREE-17, R-CRON-05: finished members keep their results, the others are adopted; nothing is left over."""
    go = fleet.root / "go"
    waits = f"echo $$ >> {fleet.root}/NAME; until [ -e {go} ]; do sleep 0.1; done; echo NAME is done"
    scripts = {name: waits.replace("NAME", name) for name in ("one", "two")}
    scripts["quick"] = f"echo $$ >> {fleet.root}/quick; echo quick is done"
    task_id = queue_swarm(fleet, draft(scripts, least=3, timeout=600.0))
    first = fleet.up("--agents", 3)
    wait_until(lambda: "quick" in results(fleet, task_id), "one member has its result")
    wait_members(fleet, task_id, 2)
    fleet.kill_supervisor(first)
    second = fleet.up("--agents", 3, "--idle-exit", "0s")
    wait_until(lambda: "task.adopted" in fleet.kinds(task_id), "the next one has adopted it")
    told = fleet.cli("why", task_id).stdout
    assert "stage 1 of 1 (review), 3 members" in told
    assert ("Member quick: completed" in told, "Member one: is started" in told) == (True, True), told
    fleet.cli("doctor", "--invariants")
    second.send_signal(signal.SIGSTOP)
    time.sleep(STOPPED_FOR)  # what is tested: that time passes for everybody but the supervisor
    second.send_signal(signal.SIGCONT)
    go.touch()
    task = fleet.wait_state(task_id, "completed")
    fleet.wait_clean()
    assert [(fleet.root / name).read_text().count("\n") for name in scripts] == [1, 1, 1]
    assert {name: result.text for name, result in results(fleet, task_id).items() if name} == {
        name: f"{name} is done" for name in scripts
    }
    assert sorted(run["outcome"] for run in task["runs"]) == ["completed"] * 3
    assert fleet.kinds(task_id).count("stage.collected") == 1
    assert (fleet.worktrees(), fleet.branches()) == ([], [])
    assert fleet.cli("logs", task_id, "--member", "two").stdout == "two is done\n"
    assert "it has one, quick, two" in fleet.cli("logs", task_id, "--member", "x", code=3).stderr
    fleet.cli("doctor", "--invariants")
    wait_until(lambda: processes_of(fleet.root) == {}, "nothing of it lives")


def test_the_members_of_a_swarm_share_the_budget_of_their_task(fleet: Fleet) -> None:
    """Neither of them has used it up alone: together they have, and both are ended; an operator decides."""
    steps = check({"step": [{"usage": {"input": 60, "output": 0}}, {"hang": True}]}, "test")
    members = tuple(MemberDraft(name=name, chosen=AgentChoice(scenario=tuple(steps))) for name in ("one", "two"))
    workflow = WorkflowDraft(name="dear", stages=(StageDraft(name="review", members=members, timeout=600.0),))
    task_id = queue_swarm(fleet, workflow, budget_tokens=100)
    fleet.up("--agents", 2, "--idle-exit", "0s")
    task = fleet.wait_state(task_id, "paused", "completed", "failed")
    assert (task["state"], task["pause_reason"]) == ("paused", "budget"), task["reason"]
    assert {run["outcome"] for run in task["runs"]} == {"over_budget"}
    fleet.cli("cancel", task_id)
    fleet.wait_state(task_id, "cancelled")


def test_the_tree_that_members_share_is_checkpointed_while_they_work_and_when_they_are_paused(fleet: Fleet) -> None:
    """R-RES-11: on `agent checkpoint` of a member, and on pause; a later one has what was done since."""
    go, done = fleet.root / "go", fleet.root / "done"
    steps = [
        {"write": {"path": "a.txt", "text": "one"}},
        {"report": {"kind": "checkpoint", "message": "so far"}},
        {"wait_for": str(go)},
        {"write": {"path": "b.txt", "text": "two"}},
        {"touch": str(done)},
        {"hang": True},
    ]
    works = AgentChoice(scenario=tuple(check({"step": steps}, "test")))
    idles = AgentChoice(command=("sleep", "1000"))
    members = (MemberDraft(name="one", chosen=works), MemberDraft(name="two", chosen=idles))
    workflow = WorkflowDraft(name="pair", stages=(StageDraft(name="review", members=members, timeout=600.0),))
    task_id = queue_swarm(fleet, workflow)
    fleet.up("--agents", 2, "--idle-exit", "0s")
    wait_until(lambda: fleet.show(task_id)["checkpoints"], "a member's checkpoint")
    go.touch()
    wait_until(done.exists, "it continues")
    fleet.cli("pause", task_id)
    task = fleet.wait_state(task_id, "paused")
    assert [row["why"].partition(":")[0] for row in task["checkpoints"]] == ["asked by its agent", "paused"]
    fleet.cli("cancel", task_id)
    fleet.wait_state(task_id, "cancelled")


def test_members_with_clones_of_their_own_see_what_the_stage_before_committed(fleet: Fleet) -> None:
    """R-CRON-05 with `apart`: also where the task's branch is brought into the repository only at its end."""
    commits = ("sh", "-c", "echo built > built; git add built; git commit --quiet -m built")
    build = StageDraft(name="build", chosen=AgentChoice(command=commits))
    member = MemberDraft(name="one", chosen=AgentChoice(command=("cat", "built")))
    review = StageDraft(name="review", members=(member,), apart=True)
    task_id = queue_swarm(fleet, WorkflowDraft(name="pair", stages=(build, review)), workspace="clone")
    fleet.up("--agents", 1, "--idle-exit", "0s")
    task = fleet.wait_state(task_id, "completed", "failed")
    assert (task["state"], results(fleet, task_id)["one"].text) == ("completed", "built"), task["reason"]
    assert fleet.file_on_branch(f"holdfast/{task_id}", "built") == "built"
