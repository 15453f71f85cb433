"""What agents report of themselves, from outside: one channel, the run's token, claimed results (R-TERM-12)."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
from tests.fleet import Fleet, processes_of, wait_until

# The form that docs/howto/agent-reports.md gives to whoever has no Holdfast installed: plain `sh`.
HEARTBEAT = 'touch "$HOLDFAST_CHANNEL/heartbeat"'
REPORT = (
    """printf '{"token":"%s","report":"KIND","message":"MESSAGE"}\\n' """
    """"$HOLDFAST_RUN_TOKEN" >> "$HOLDFAST_CHANNEL/reports\""""
)
HOWTO = Path(__file__).resolve().parents[3] / "docs" / "howto" / "agent-reports.md"
GRACE = "HOLDFAST_HEALTH_CLAIM_GRACE"


def report(kind: str, message: str = "said") -> str:
    return REPORT.replace("KIND", kind).replace("MESSAGE", message)


def holdfast() -> str:
    return f"{shlex.quote(sys.executable)} -m holdfast"


def add(fleet: Fleet, script: str, grace: str = "30s", **options: Any) -> str:
    return fleet.add("report", command=("sh", "-c", script), env={GRACE: grace}, **options)


def claims(fleet: Fleet, task_id: str) -> list[dict[str, Any]]:
    return [event for event in fleet.events(task_id) if event["kind"] == "agent.claimed"]


def channel_of(fleet: Fleet, task_id: str) -> Path:
    return fleet.home / "runs" / str(fleet.show(task_id)["runs"][-1]["id"]) / "channel"


def an_hour_passes(fleet: Fleet) -> None:
    """The boot's own clock measures it, and no test can move that: what was claimed moves back instead."""
    connection = apsw.Connection(str(fleet.home / "holdfast.db"))
    connection.set_busy_timeout(10_000)
    connection.execute(
        "UPDATE runs SET claim = json_set(claim, '$.at', claim ->> '$.at' - 3600, "
        "'$.boottime', claim ->> '$.boottime' - 3600) WHERE claim IS NOT NULL"
    )
    connection.close()


def test_the_documented_shell_form_is_the_one_that_is_tested() -> None:
    text = HOWTO.read_text()
    assert HEARTBEAT in text
    assert REPORT.replace("KIND", "complete").replace("MESSAGE", "all tests pass") in text


def test_results_and_exit_codes(fleet: Fleet) -> None:
    """A claim needs exit code 0 to complete; `fail` fails whatever the code. All written just before the exit."""
    fleet.up("--agents", 4)
    scripted = fleet.add_scenario({"report": {"kind": "complete", "message": "found it"}}, {"exit": 0})
    wanted = {
        add(fleet, report("complete", "all good")): ("completed", "the agent reported that it is complete: all good"),
        add(fleet, f"{report('complete')}; exit 3"): ("failed", "it claimed to be complete, but exited with code 3"),
        add(fleet, report("fail", "no compiler")): ("failed", "the agent reported that it failed: no compiler"),
        add(fleet, f"{report('fail', 'no')}; exit 7"): ("failed", "the agent reported that it failed: no"),
        # the scenario never says `success`: the claim is the evidence that its adapter misses
        scripted: ("completed", "the agent reported that it is complete: found it"),
    }
    for task_id, (state, reason) in wanted.items():
        task = fleet.wait_state(task_id, "completed", "failed")
        [run] = task["runs"]
        assert (task["state"], run["outcome"]) == (state, state)
        assert run["reason"] == reason
        assert reason in task["reason"]
        assert run["claim"]["kind"] == ("fail" if "failed:" in reason else "complete")
        [claimed] = claims(fleet, task_id)
        assert claimed["run"] == run["id"]
        assert claimed["reason"] == run["claim"]["kind"]


def test_a_limit_that_the_adapter_saw_goes_before_a_claim(fleet: Fleet) -> None:
    fleet.up()
    task_id = fleet.add_scenario({"report": {"kind": "complete"}}, {"run": 1, "limit": {"kind": "usage", "for": "1h"}})
    assert fleet.wait_state(task_id, "paused")["pause_reason"] == "usage_limit"


def test_the_commands_inside_an_agent(fleet: Fleet) -> None:
    """R-TERM-12: identity from the environment. The heartbeat is a touched file and no row; progress is shown."""
    fleet.up()
    go, beaten = fleet.root / "go", fleet.root / "beaten"
    agent = f"{holdfast()} agent"
    task_id = add(
        fleet,
        f"{agent} heartbeat && {agent} progress half way --percent 50 && touch {beaten}"
        f"; until [ -e {go} ]; do sleep 0.1; done; {agent} heartbeat; {agent} complete 'all “good”'",
    )
    wait_until(beaten.exists, "the agent has reported")
    wait_until(lambda: fleet.show(task_id)["reason"] == "its agent is at 50 %: half way", "progress is shown by ps")
    assert "Its agent reported" in fleet.cli("why", task_id).stdout
    assert fleet.show(task_id)["runs"][0]["progress"]["percent"] == 50
    channel = channel_of(fleet, task_id)
    first = (channel / "heartbeat").stat().st_mtime_ns
    go.touch()
    task = fleet.wait_state(task_id, "completed")
    assert (channel / "heartbeat").stat().st_mtime_ns > first
    assert task["runs"][0]["claim"]["message"] == "all “good”"
    assert not any("heartbeat" in event["kind"] for event in fleet.events(task_id))
    assert "agent.reports-refused" not in fleet.kinds(task_id)


def test_progress_is_told_now_and_then_and_the_newest_is_kept(fleet: Fleet) -> None:
    fleet.up()
    lines = f"i=0; while [ $i -lt 300 ]; do i=$((i+1)); {report('progress', 'step STEP')}; done"
    task_id = add(fleet, lines.replace('"message":"step STEP"', '"message":"step %s"').replace('N" >>', 'N" $i >>'))
    task = fleet.wait_state(task_id, "completed")
    told = [event["data"]["message"] for event in fleet.events(task_id) if event["kind"] == "agent.progress"]
    assert 1 <= len(told) <= 3
    assert told[-1] == task["runs"][0]["progress"]["message"] == "step 300"


def test_a_claim_and_a_hang_is_ended_whole_after_the_grace(fleet: Fleet) -> None:
    """Issue 4: a claimed result has the grace to exit; then the whole tree is ended, and the result counts."""
    fleet.env |= {GRACE: "1s", "HOLDFAST_HEALTH_GRACE": "300ms"}
    fleet.up("--agents", 2)
    tree: list[dict[str, Any]] = [
        {"write": {"path": "work.txt", "text": "done"}},
        {"spawn": {"kind": "daemon"}},
        {"spawn": {"kind": "ignore-term"}},
        {"ignore_term": True},
    ]
    done = fleet.add_scenario(*tree, {"report": {"kind": "complete", "message": "done"}}, {"hang": True})
    failed = fleet.add_scenario(*tree, {"report": {"kind": "fail", "message": "no way"}}, {"hang": True})
    [completed] = fleet.wait_state(done, "completed", "failed")["runs"]
    assert completed["outcome"] == "completed"
    assert completed["reason"].endswith("complete: done; its processes were ended because it did not exit")
    [gave_up] = fleet.wait_state(failed, "completed", "failed")["runs"]
    assert (gave_up["outcome"], gave_up["reason"]) == ("failed", "the agent reported that it failed: no way")
    for task_id in (done, failed):
        at = {event["kind"]: event for event in fleet.events(task_id)}
        assert at["run.stopping"]["reason"] == "claimed"
        assert "did not exit within 1 s" in at["run.stopping"]["message"]
        assert 1.0 <= at["run.stopping"]["at"] - at["agent.claimed"]["at"] < 30.0, "its own grace, not the usual one"
    fleet.cli("down")
    assert processes_of(fleet.home) == {}
    assert fleet.file_on_branch(f"holdfast/{done}", "work.txt") == "done"


def test_a_tree_that_lives_on_after_its_leader_does_not_spoil_the_claim(fleet: Fleet) -> None:
    fleet.env["HOLDFAST_HEALTH_GRACE"] = "300ms"
    fleet.up()
    task_id = fleet.add_scenario(
        {"spawn": {"kind": "ignore-term"}}, {"spawn": {"kind": "daemon"}}, {"report": {"kind": "complete"}}, {"exit": 0}
    )
    assert fleet.wait_state(task_id, "completed", "failed")["state"] == "completed"
    assert "run.stopping" not in fleet.kinds(task_id)
    fleet.cli("down")
    assert processes_of(fleet.home) == {}


def test_the_first_claim_counts_and_another_one_is_told(fleet: Fleet) -> None:
    fleet.up()
    said = [("complete", "yes"), ("complete", "yes!"), ("fail", "no"), ("fail", "no"), ("complete", "oh")]
    task_id = add(fleet, "; ".join(report(kind, message) for kind, message in said))
    task = fleet.wait_state(task_id, "completed", "failed")
    assert task["state"] == "completed"
    assert task["runs"][0]["claim"]["message"] == "yes"
    told = [(event["level"], event["data"]["kind"], event["data"]["counts"]) for event in claims(fleet, task_id)]
    assert told == [("info", "complete", True), ("warning", "fail", False)]


def test_a_claim_and_its_grace_survive_the_supervisor(fleet: Fleet) -> None:
    """R-TERM-10: killed between claim and end. The claim is durable, the rest of the grace counts, completed once."""
    fleet.env |= {GRACE: "1h", "HOLDFAST_HEALTH_GRACE": "300ms"}
    supervisor = fleet.up("--agents", 3)
    progress = {"report": {"kind": "progress", "message": "nearly", "percent": 99}}
    hanging = fleet.add_scenario(progress, {"report": {"kind": "complete"}}, {"hang": True})
    told = fleet.root / "told"
    held = f"until [ -e {told} ]; do sleep 0.1; done"
    late = add(fleet, f"{held}; {report('complete', 'late')}; touch {told}-too", grace="30s")
    wait_until(lambda: claims(fleet, hanging), "the claim is recorded")
    fleet.wait_started(late)
    fleet.kill_supervisor(supervisor)
    told.touch()
    wait_until(fleet.root.joinpath("told-too").exists, "it reported while nobody listened")
    an_hour_passes(fleet)
    fleet.up("--agents", 3)
    for task_id in (hanging, late):
        task = fleet.wait_state(task_id, "completed", "failed")
        assert [run["outcome"] for run in task["runs"]] == ["completed"]
        assert fleet.kinds(task_id).count("task.completed") == len(claims(fleet, task_id)) == 1
    assert fleet.kinds(hanging).count("agent.progress") == 1, "what was told is not told again"
    assert "did not exit within 3600 s" in next(
        event["message"] for event in fleet.events(hanging) if event["kind"] == "run.stopping"
    ), "not another hour"


def test_down_does_not_run_claimed_work_again(fleet: Fleet) -> None:
    """A task whose agent has claimed its result is settled by it, though `down` came before its grace was over."""
    fleet.up()
    task_id = fleet.add_scenario({"report": {"kind": "complete"}}, {"hang": True})
    wait_until(lambda: claims(fleet, task_id), "the claim is recorded")
    fleet.cli("down")
    task = fleet.show(task_id)
    assert (task["state"], [run["outcome"] for run in task["runs"]]) == ("completed", ["completed"])
    assert "the supervisor was told to stop" in task["reason"]


def test_a_cancel_goes_before_a_claim(fleet: Fleet) -> None:
    fleet.up()
    task_id = fleet.add_scenario({"report": {"kind": "complete"}}, {"hang": True})
    wait_until(lambda: claims(fleet, task_id), "the claim is recorded")
    fleet.cli("cancel", task_id)
    assert fleet.show(task_id)["state"] == "cancelled"


def test_wrong_tokens_and_foreign_lines_are_ignored_and_told_once(fleet: Fleet) -> None:
    fleet.up()
    forged = report("complete", "forged").replace('"$HOLDFAST_RUN_TOKEN"', "somebody-elses")
    junk = 'printf "\\033[31mjunk\\n" >> "$HOLDFAST_CHANNEL/reports"'
    task_id = add(fleet, f"{forged}; {junk}; {forged}; {report('progress', 'mine')}; exit 5")
    task = fleet.wait_state(task_id, "failed")
    assert task["runs"][0]["claim"] is None
    assert "exited with code 5" in task["reason"]
    [refused] = [event for event in fleet.events(task_id) if event["kind"] == "agent.reports-refused"]
    assert (refused["level"], refused["reason"], refused["data"]["refused"]) == ("warning", "a wrong token", 3)
    assert task["runs"][0]["progress"]["message"] == "mine"


def test_a_hostile_channel_harms_only_its_own_reports(fleet: Fleet) -> None:
    """Nothing that stands in the place of the file stops the supervisor, or is waited for."""
    fleet.up("--agents", 7)
    here = '"$HOLDFAST_CHANNEL/reports"'
    tricks = [
        f"mkfifo {here}",
        f"mkdir {here}",
        f"ln -s /dev/zero {here}",
        f"head -c 1000000 /dev/zero > {here}",
        f"{report('complete')}; chmod 000 {here}; rm {here}; mkfifo {here}",
        'rm -rf "$HOLDFAST_CHANNEL"; ln -s /dev "$HOLDFAST_CHANNEL"',
        'rm -rf "$HOLDFAST_CHANNEL"',
    ]
    tasks = [add(fleet, f"{trick}; sleep 1.5") for trick in tricks]
    for task_id in tasks:
        assert fleet.wait_state(task_id, "completed", "failed")["state"] == "completed"
    for task_id in tasks[:4]:
        assert fleet.kinds(task_id).count("agent.reports-refused") == 1
    assert "Traceback" not in fleet.log()


class TestTheCommand:
    def test_outside_of_an_agent(self, fleet: Fleet) -> None:
        for words in (("heartbeat",), ("progress", "x"), ("complete",), ("fail", "x")):
            done = fleet.cli("agent", *words, code=2)
            assert "HOLDFAST_CHANNEL" in done.stderr
            assert done.stderr.count("\n") == 1

    def test_usage(self, fleet: Fleet) -> None:
        env = {"HOLDFAST_CHANNEL": str(fleet.root), "HOLDFAST_RUN_TOKEN": "t"}
        for words in (
            ("progress",), ("fail", " "), ("heartbeat", "x"), ("complete", "--percent", "4"),
            ("progress", "x", "--percent", "nan"), ("progress", "x", "--percent", "101"), (),
            ("checkpoint", "x"), ("complete", "--note", "x"),
        ):  # fmt: skip
            assert fleet.cli("agent", *words, code=2, env=env).stderr.count("\n") == 1
        assert not (fleet.root / "reports").exists()

    def test_what_cannot_be_written_is_one_clear_line(self, fleet: Fleet) -> None:
        env = {"HOLDFAST_CHANNEL": str(fleet.root / "gone"), "HOLDFAST_RUN_TOKEN": "t"}
        for words in (("heartbeat",), ("complete",)):
            assert "The report was not made" in fleet.cli("agent", *words, code=69, env=env).stderr
            for point in ("channel.report:1:ENOSPC", "channel.heartbeat:1:ENOSPC"):
                full = env | {"HOLDFAST_CHANNEL": str(fleet.root), "HOLDFAST_FAULT": point}
                fleet.cli("agent", *words, code=69 if ("heart" in point) == ("heartbeat" in words) else 0, env=full)
        (fleet.root / "trap").mkdir()
        (fleet.root / "trap" / "reports").symlink_to(fleet.root / "precious")
        fleet.cli("agent", "complete", code=69, env=env | {"HOLDFAST_CHANNEL": str(fleet.root / "trap")})
        assert not (fleet.root / "precious").exists()

    def test_it_starts_fast(self, fleet: Fleet) -> None:
        """Agents call it often: no store, no event loop, nothing heavy."""
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "holdfast", "agent", "complete", "x"],
            env=fleet.env | {"HOLDFAST_CHANNEL": str(fleet.root), "HOLDFAST_RUN_TOKEN": "t"},
            capture_output=True,
            text=True,
            check=True,
        )
        imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}
        assert "holdfast.api.agent_reports" in imported
        heavy = {"asyncio", "apsw", "rich", "tomllib", "subprocess", "dataclasses", "holdfast.config", "holdfast.store"}
        assert imported & heavy == set()
