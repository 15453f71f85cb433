"""Pause and resume from outside: operators, limits, restarts, several wishes at once."""

from __future__ import annotations

from tests.fleet import Fleet, wait_until


def works_until_told(fleet: Fleet, name: str, *options: object, first: str = "") -> str:
    """A task whose first run writes, says so and works on until it is stopped; the second one ends at once."""
    return fleet.add_scenario(
        *([{"run": 1, first: True}] if first else []),
        {"run": 1, "write": {"path": f"{name}.txt", "text": "kept\n"}},
        {"run": 1, "touch": str(fleet.root / name)},
        {"run": 1, "hang": True},
        {"print": "continued"},
        options=options,
    )


def at_work(fleet: Fleet, name: str) -> None:
    wait_until((fleet.root / name).exists, f"the agent of {name} works")


def unanswered(fleet: Fleet) -> list[str]:
    return [row["kind"] for row in fleet._queries().pending_requests(None)]


def test_an_operator_pauses_what_waits_and_what_runs(fleet: Fleet) -> None:
    """R-RES-01, R-RES-02, R-RES-07, R-RES-09: at once or through the supervisor, durable over its death; the pause
    costs nothing, and it continues in its own session and path."""
    supervisor = fleet.up("--agents", 1)
    running = works_until_told(fleet, "one")
    at_work(fleet, "one")
    waiting, timed = fleet.add("wait", command=("true",)), fleet.add("later", "--delay", "1h", command=("true",))
    assert "`holdfast resume" in fleet.cli("pause", waiting, "--why", "not now").stdout
    assert fleet.show(waiting)["reason"].endswith(": not now")
    assert "is paused already" in fleet.cli("pause", waiting, code=4).stderr
    assert "Task not found: nosuch" in fleet.cli("pause", "nosuch", code=3).stderr
    assert "--for" in fleet.cli("pause", waiting, "--for", "5", code=2).stderr

    (paused,) = fleet.json("pause", running, "--why", "deploy first")
    shown = {"id": running, "state": "paused", "pause_reason": "operator", "resume_after": None, "checkpoint": 1}
    assert paused == shown
    before = fleet.show(running)
    assert [(run["outcome"], run["stop_why"]) for run in before["runs"]] == [("paused", "pause")]
    assert before["workspace"]["state"] == "ready"
    assert unanswered(fleet) == []
    spent = {name: used["spent"] for name, used in fleet.shown(running)["budgets"].items()}
    assert set(spent.values()) == {0}, spent
    why = fleet.cli("why", running).stdout
    assert "It is paused (operator): paused by" in why
    assert ": deploy first. It does not resume by itself. Resume it now with `holdfast resume" in why.replace("\n", " ")
    assert "operator, until you resume it: paused by" in fleet.cli("ps").stdout

    fleet.kill_supervisor(supervisor)
    assert "continues by itself at" in fleet.cli("pause", timed, "--for", "100ms").stdout
    fleet.up("--agents", 1)
    wait_until(lambda: "task.resumed" in fleet.kinds(timed), "its time has come, although the supervisor is another")
    assert (fleet.show(timed)["state"], fleet.show(timed)["not_before"] is None) == ("queued", False)
    assert [fleet.show(task)["state"] for task in (running, waiting)] == ["paused", "paused"]
    assert f"{running}: resumed after a pause (operator) that spends no resume." in fleet.cli("resume", running).stdout
    after = fleet.wait_state(running, "completed")
    assert [run["outcome"] for run in after["runs"]] == ["paused", "completed"]
    assert len({run["session_id"] for run in after["runs"]}) == 1
    assert after["resume_attempts"] == 0
    assert fleet.file_on_branch(after["branch"], "one.txt") == "kept"
    assert "is completed already" in fleet.cli("pause", running, code=4).stderr


def test_a_resume_goes_back_to_a_checkpoint(fleet: Fleet) -> None:
    """R-RES-06, R-RES-11: every pause leaves one; an unknown one is refused before a resume is spent; the chosen one is
    what the next run finds."""
    fleet.up()
    steps: list[dict[str, object]] = []
    for run, text in enumerate(("one", "two"), 1):
        steps += [{"run": run, "write": {"path": "a.txt", "text": f"{text}\n"}}]
        steps += [{"run": run, "touch": str(fleet.root / text)}, {"run": run, "hang": True}]
    task = fleet.add_scenario(*steps, {"print": "done"})
    at_work(fleet, "one")
    assert f"`holdfast diff {task} --checkpoint 1`" in fleet.cli("pause", task, "--checkpoint").stdout
    fleet.cli("resume", task)
    at_work(fleet, "two")
    fleet.cli("pause", task, "--checkpoint")
    assert "has no checkpoint 99" in fleet.cli("resume", task, "--checkpoint", 99, code=3).stderr
    assert (fleet.show(task)["state"], fleet.show(task)["resume_attempts"]) == ("paused", 0)
    fleet.cli("resume", task, "--checkpoint", 1)
    done = fleet.wait_state(task, "completed")
    assert fleet.file_on_branch(done["branch"], "a.txt") == "one"
    assert "checkpoint.restored" in fleet.kinds(task)
    assert "not paused" in fleet.cli("resume", task, "--checkpoint", 1, code=4).stderr
    empty = fleet.add("x", "--delay", "1h", command=("true",))
    assert "is paused, but no checkpoint" in fleet.cli("pause", empty, "--checkpoint", code=1).stderr


def test_several_wishes_at_once(fleet: Fleet) -> None:
    """A cancel beats a pause, a pause beats a `down`; --force does not wait for the grace; a pause that nobody could
    carry out is carried out by the next supervisor, and taken back by a resume."""
    fleet.env["HOLDFAST_HEALTH_GRACE"] = "10m"  # an agent that ignores SIGTERM would live for as long
    supervisor = fleet.up("--agents", 3)
    doomed, held, forced = (works_until_told(fleet, name, first="ignore_term") for name in ("doomed", "held", "forced"))
    for name in ("doomed", "held", "forced"):
        at_work(fleet, name)
    for task in (doomed, held, forced):
        assert "Asked the supervisor" in fleet.cli("pause", task, "--no-wait").stdout
    fleet.cli("pause", forced, "--force")
    assert fleet.show(forced)["runs"][0]["outcome"] == "paused"
    fleet.cli("cancel", doomed)
    assert fleet.show(doomed)["runs"][0]["outcome"] == "cancelled"
    fleet.cli("down", "--now")
    supervisor.wait(timeout=60)
    assert (fleet.show(held)["state"], fleet.show(held)["pause_reason"]) == ("paused", "operator")
    assert unanswered(fleet) in ([], ["pause"]), "that of the cancelled one may be left to the next supervisor"

    supervisor = fleet.up("--agents", 3)
    wait_until(lambda: unanswered(fleet) == [], "every request has its answer")
    assert {fleet.show(task)["state"] for task in (held, forced)} == {"paused"}
    last = works_until_told(fleet, "last")
    at_work(fleet, "last")
    fleet.kill_supervisor(supervisor)
    refused = fleet.cli("pause", last, code=69).stderr
    assert f"The request to pause {last} is recorded" in refused
    assert "No supervisor is running" in refused
    assert "holdfast up" in refused
    fleet.up("--agents", 3)
    fleet.wait_state(last, "paused")
    assert fleet.show(last)["runs"][0]["outcome"] == "paused"
    for task in (held, forced, last):
        fleet.cli("resume", task)
        fleet.wait_state(task, "completed")
    fleet.wait_clean()
    fleet.doctor()


def test_a_limit_outlives_the_supervisor_and_two_resumes_are_one(fleet: Fleet) -> None:
    """R-RES-01, R-RES-02, R-RES-08, R-RES-09: kill -9 while it waits; the next supervisor resumes it when it is due, in
    its session and path. Two `resume` processes at once: one wins, one conflict, one resume spent."""
    supervisor = fleet.up()
    limit = {"kind": "usage", "for": "3s"}
    task = fleet.add_scenario({"run": 1, "write": {"path": "a", "text": "a"}}, {"run": 1, "limit": limit})
    raced = fleet.add_scenario(
        {"run": 1, "limit": {"kind": "rate", "for": "1h"}}, {"wait_for": str(fleet.root / "go")}, {"exit": 3}
    )
    for one in (task, raced):
        fleet.wait_state(one, "paused", "completed")
    fleet.kill_supervisor(supervisor)
    before = fleet.show(task)
    fleet.up()
    done = fleet.wait_state(task, "completed")
    assert len({run["session_id"] for run in done["runs"]}) == 1
    assert done["workspace"]["path"] == before["workspace"]["path"]
    [paused] = [event for event in fleet.events(task) if event["kind"] == "task.paused"]
    [told] = [event for event in fleet.events(task) if event["kind"] == "task.resumed"]
    assert told["at"] >= paused["data"]["resume_after"]
    assert told["data"]["resume_attempts"] == 1

    both = [fleet.start("resume", raced) for _ in range(2)]
    said = [(one.communicate(timeout=60), one.returncode) for one in both]
    assert sorted(code for _words, code in said) == [0, 4], said
    assert any(b"not paused" in words[1] or b"at the same moment" in words[1] for words, _code in said), said
    assert fleet.show(raced)["resume_attempts"] == 1
    (fleet.root / "go").touch()
    failed = fleet.wait_state(raced, "failed")
    assert failed["resume_attempts"] == 1, "R-RES-05: a failure resets nothing"
    wait_until(lambda: fleet.cli("retry", raced, code=None).returncode == 0, "its workspace is removed")
    assert fleet.show(raced)["resume_attempts"] == 0


def test_no_resumes_allowed_and_one_by_force(fleet: Fleet) -> None:
    """R-RES-03, R-RES-04: 0 allows none. A resume by hand is refused and changes nothing; --force goes beyond, is
    counted and recorded. A task whose time comes without a resume left fails, as `why` and `ps` said."""
    env = {"HOLDFAST_RESUME_AUTO": "false"}  # else the task fails at once: test_a_task_without_resumes_fails_at_once
    supervisor = fleet.up(env=env)
    limited = {"limit": {"kind": "rate", "for": "1h"}}
    forced = fleet.add_scenario({"run": 1, **limited}, options=("--max-resumes", 0))
    soon = {"limit": {"kind": "rate", "for": "1ms"}}
    task = fleet.add_scenario(soon, options=("--max-resumes", 0, "--budget-usd", 5))
    before = fleet.wait_state(forced, "paused")
    due = fleet.wait_state(task, "paused")["resume_after"]
    why = fleet.cli("why", forced, env=env).stdout
    assert f"No resume is left (0 of 0): `holdfast resume {forced} --force` resumes it once more." in why
    assert "fails" not in why
    assert f"Resume it now with `holdfast resume {forced}`" not in why
    assert "rate_limit, until you resume it with --force" in fleet.cli("ps", env=env).stdout
    refused = fleet.cli("resume", forced, "--budget-usd", 7, code=4).stderr
    assert f"Task {forced} has no resume left (0 of 0); nothing was changed." in refused
    assert f"`holdfast resume {forced} --force`" in refused
    assert fleet.show(forced) == before
    assert [row["kind"] for row in fleet.events(forced) if row["kind"] == "budget.raised"] == []
    assert "resume 1 of 0, by force" in fleet.cli("resume", forced, "--force").stdout
    done = fleet.wait_state(forced, "completed")
    told = [event["data"] for event in fleet.events(forced) if event["kind"] == "task.resumed"]
    assert told[0]["forced"] is True
    assert told[0]["by"]
    assert done["resume_attempts"] == 0

    fleet.cli("down")
    supervisor.wait(timeout=60)
    assert "It fails at " in fleet.cli("why", task).stdout, "the settings resume tasks by themselves again"
    assert "rate_limit, no resume is left: it fails at" in fleet.cli("ps").stdout
    fleet.up()
    failed = fleet.wait_state(task, "failed")
    assert failed["failure_reason"] == "max_resume_attempts_exceeded"
    assert (failed["pause_reason"], failed["resume_after"], failed["resume_attempts"]) == ("rate_limit", due, 1)
    assert "Maximum resume attempts exceeded (1/0)" in failed["reason"]
    events = [event for event in fleet.events(task) if event["kind"].startswith("task.")][-2:]
    assert [event["kind"] for event in events] == ["task.resume-refused", "task.failed"]
    assert {(event["data"]["resume_attempts"], event["data"]["max_resume_attempts"]) for event in events} == {(1, 0)}


def test_the_future_of_a_task_on_its_last_resume(fleet: Fleet) -> None:
    """Audit, defect 2: `why`, `ps`, `run` and `top` tell that the next resume is the last, and what follows it."""
    fleet.up()
    said = {"say": "I begin"}  # a limit before any answer would give the resume back
    steps = fleet.scenario(said, {"run": 1, "limit": {"kind": "usage", "for": "1h"}}, {"run": 2, "hang": True})
    ran = fleet.cli("run", "x", "--scenario", steps, "--max-resumes", 1, code=75).stdout
    [task] = [row["id"] for row in fleet.json("ps")]
    last = "It is the last resume (1 of 1): the task fails at its next limit, "
    last += "unless it meets that limit before any answer."
    assert last in ran
    assert last in fleet.cli("why", task).stdout
    assert "its last resume: " in fleet.cli("ps").stdout
    assert "its last resume: " in fleet.cli("top", "--once").stdout
    fleet.cli("resume", task)
    wait_until(lambda: len(fleet.show(task)["runs"]) == 2, "its last resume is used")
    left = "No resume is left (1 of 1): the task fails at its next limit, unless it meets that limit before any answer."
    assert left in fleet.cli("why", task).stdout
    fleet.cli("pause", task)
    assert left in fleet.cli("why", task).stdout, "its operator's pause is free, and changes nothing of that"
    assert "that spends no resume" in fleet.cli("resume", task).stdout
    fleet.cli("cancel", task)


def test_a_task_without_resumes_fails_at_once(fleet: Fleet) -> None:
    """R-RES-03, R-RES-04: it does not wait an hour only to fail. What it did is kept for a retry."""
    fleet.up()
    work = {"write": {"path": "a.txt", "text": "done\n"}}
    task = fleet.add_scenario(work, {"limit": {"kind": "rate", "for": "1h"}}, options=("--max-resumes", 0))
    failed = fleet.wait_state(task, "failed")
    assert (failed["failure_reason"], failed["resume_attempts"]) == ("max_resume_attempts_exceeded", 1)
    assert "Maximum resume attempts exceeded (1/0)" in failed["reason"]
    assert fleet.shown(task)["budgets"]["wait"]["spent"] == 0
    kinds = [kind for kind in fleet.kinds(task) if kind.startswith("task.")]
    assert kinds[-2:] == ["task.resume-refused", "task.failed"]
    assert "task.paused" not in kinds
    why = fleet.cli("why", task).stdout
    assert f"`holdfast why {task}`" not in why, "the command that was just typed"
    assert ".." not in why.replace("...", "")


def test_pausing_and_resuming_a_healthy_task_spends_nothing(fleet: Fleet) -> None:
    """Five lunches, and not one of its resumes."""
    task = fleet.add("x", "--max-resumes", "0", "--delay", "1h", command=("true",))
    for _ in range(5):
        said = fleet.cli("pause", task).stdout
        assert f"`holdfast resume {task}` lets it continue" in said
        fleet.cli("resume", task)
    shown = fleet.show(task)
    assert (shown["state"], shown["resume_attempts"]) == ("queued", 0)


def test_a_limit_without_a_known_end_is_waited_out(fleet: Fleet) -> None:
    """R-RES-08: probes that meet the same limit spend no resume and no run; when it ends, one resume was spent."""
    gate = fleet.root / "limited"
    gate.touch()
    fleet.up(env={"HOLDFAST_RESUME_DEFAULT_HOLD": "50ms", "HOLDFAST_RESUME_MAX_HOLD": "100ms"})
    task = fleet.add_scenario({"limit": {"kind": "usage", "while": str(gate)}}, {"say": "at last"})
    wait_until(lambda: len(fleet.show(task)["runs"]) > 6, "more probes than it has resumes")
    gate.unlink()
    fleet.wait_state(task, "completed")
    budgets = fleet.shown(task)["budgets"]
    assert (budgets["runs"]["spent"], budgets["wait"]["spent"] > 0) == (1, True)
    told = [event for event in fleet.events(task) if event["kind"] == "task.resumed"]
    assert {event["message"] for event in told} == {f"Task {task}: resume 1 of 3."}
    fleet.doctor()
    fleet.cli("doctor", "--invariants")


def test_the_settings_of_resumes(fleet: Fleet) -> None:
    """R-RES-08: `resume.auto`, `resume.max_wait` and `resume.enabled`, each said by `run`, `why` and `ps`."""
    soon = fleet.scenario({"run": 1, "limit": {"kind": "usage", "for": "1ms"}})
    env = {"HOLDFAST_RESUME_AUTO": "false", "HOLDFAST_RESUME_MAX_WAIT": "30m"}
    supervisor = fleet.up(env=env)
    said = fleet.cli("run", "x", "--scenario", fleet.scenario({"limit": {"kind": "usage", "for": "1h"}}), code=75)
    assert "longer than `resume.max_wait` (1800 s) allows" in said.stdout
    assert "It does not resume by itself." in said.stdout
    assert "`holdfast resume " in said.stdout
    patient = said.stdout.split()[1]
    [alert] = fleet.json("alerts")
    assert (alert["task"], "holdfast resume" in alert["remedy"]) == (patient, True)
    task = fleet.add("x", "--scenario", soon)
    fleet.wait_state(task, "paused")
    held = fleet.add("y", "--delay", "1h", command=("true",))
    fleet.cli("pause", held, "--for", "50ms")
    wait_until(lambda: "task.resumed" in fleet.kinds(held), "the operator's own word holds all the same")
    assert fleet.show(task)["state"] == "paused"
    assert "because `resume.auto` is false" in fleet.cli("why", task, env=env).stdout
    assert "usage_limit, until you resume it" in fleet.cli("ps", env=env).stdout
    fleet.cli("resume", task)
    fleet.wait_state(task, "completed")
    fleet.cli("down")
    supervisor.wait(timeout=60)
    fleet.up(env={"HOLDFAST_RESUME_ENABLED": "false"})
    off = fleet.wait_state(fleet.add("x", "--scenario", soon), "failed")
    assert off["failure_reason"] == "resume_disabled"
    assert "`resume.enabled = false`" in off["reason"]


def test_a_context_that_fills_at_once_ends_within_its_budget(fleet: Fleet) -> None:
    """R-RES-12, from outside. The other shapes: test_walking_skeleton.py (always pauses; crashes at one point, as
    without a resource), test_held_back.py (a provider that does not answer)."""
    fleet.up()
    task = fleet.wait_state(fleet.add_scenario({"limit": {"kind": "context"}}), "failed")
    assert "Maximum resume attempts exceeded (4/3)" in task["reason"]
    assert [run["outcome"] for run in task["runs"]] == ["context_limit"] * 4
