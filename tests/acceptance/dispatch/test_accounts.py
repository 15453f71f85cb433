"""Accounts, from outside: a program plays Claude Code from its recordings, as its account's directory says."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.config.test_config import user_file
from tests.fleet import Fleet, wait_until

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "agents" / "claude"
SECRET = "sk-of-the-work-account"
OWN = "sk-of-the-user"
# Prints the recording that its configuration directory names; notes how it was called, what it was told and its key.
CLAUDE = f"""\
#!/bin/sh
here=$CLAUDE_CONFIG_DIR
echo "$*" >> "$here/calls"
cat > "$here/prompt"
echo "$ANTHROPIC_API_KEY ${{ANTHROPIC_AUTH_TOKEN-none}}" > "$here/key"
read -r scenario resets < "$here/says"
if [ "$scenario" = limited-later ]; then  # it worked, and met the limit then
  grep -v '"type":"result"' "{GOLDEN}/ok/stdout.jsonl"
  scenario=oauth-eusage
fi
sed "s/\\"resetsAt\\":[0-9]*/\\"resetsAt\\":$resets/" "{GOLDEN}/$scenario/stdout.jsonl"
[ "$scenario" = ok ]
"""


class Accounts:
    """Two accounts: the user's own and `work`."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.binary = fleet.root / "claude"
        self.binary.write_text(CLAUDE)
        self.binary.chmod(0o755)
        for name in ("default", "work"):
            self.place(name).mkdir()
            self.says(name, "ok")
        self.configure()

    def configure(self, *, work: bool = True, more: str = "") -> None:
        table = f'[accounts.claude.work]\nconfig_dir = "{self.place("work")}"\nenv.ANTHROPIC_API_KEY = "env:WORK_KEY"\n'
        plain = f'claude.binary = "{self.binary}"\nresume.default_hold = "2s"\n'
        user_file(self.fleet, plain + more + (table if work else ""))

    def place(self, name: str) -> Path:
        return self.fleet.root / f"claude-{name}"

    def says(self, name: str, scenario: str, resets: float = 0) -> None:
        (self.place(name) / "says").write_text(f"{scenario} {int(resets)}\n")

    def calls(self, name: str) -> list[str]:
        return (self.place(name) / "calls").read_text().splitlines()

    def up(self, fault: str = "", agents: int = 1, hold: str = "") -> Any:
        env = {"CLAUDE_CONFIG_DIR": str(self.place("default")), "WORK_KEY": SECRET}
        env |= {"HOLDFAST_RESUME_DEFAULT_HOLD": hold} if hold else {}
        env |= {"ANTHROPIC_API_KEY": OWN, "ANTHROPIC_AUTH_TOKEN": "own"}
        return self.fleet.up("--agents", agents, env=env | ({"HOLDFAST_FAULT": fault} if fault else {}))

    def add(self, *options: str) -> str:
        return self.fleet.add("do it", "--agent", "claude", *options)

    def unavailable(self) -> dict[str, Any]:
        """Those that are not open."""
        return {row["account"]: row for row in self.fleet.json("accounts") if row["state"] != "open"}

    def events(self) -> list[str]:
        return [event["kind"] for event in self.fleet.events() if event["kind"].startswith("account.")]


@pytest.fixture
def accounts(fleet: Fleet) -> Accounts:
    return Accounts(fleet)


def test_a_limited_account_is_parked_and_the_others_work_on(fleet: Fleet, accounts: Accounts) -> None:
    reset = int(time.time()) + 3600
    accounts.says("default", "limited-later", reset)
    supervisor = accounts.up()
    limited = fleet.wait_state(first := accounts.add(), "paused")
    assert limited["account"] == "default"
    assert reset <= limited["resume_after"] <= reset + 10  # `resume.jitter`
    assert accounts.unavailable()["claude/default"]["state"] == "parked"

    bound = accounts.add("--account", "default")
    refused = fleet.cli("add", "x", "--agent", "claude", "--account", "wrok", code=2).stderr
    assert "There is no account 'wrok' for claude. Did you mean 'work'?" in refused
    other = fleet.wait_state(accounts.add(), "completed")
    assert [run["account"] for run in other["runs"]] == ["work"]
    assert (accounts.place("work") / "key").read_text() == f"{SECRET} none\n", "nothing of the user's own login"
    assert (accounts.place("default") / "key").read_text() == f"{OWN} own\n"
    fleet.wait_state(fleet.queue("true"), "completed")  # behind it in the queue, and past it
    assert fleet.show(bound)["state"] == "queued"
    assert fleet.show(bound)["runs"] == []
    why = fleet.cli("why", bound).stdout
    assert "It waits for account claude/default: claude/default is parked until" in why
    assert "`holdfast accounts resume claude/default` opens the account now" in why
    held = {row["id"]: row["held"] for row in fleet.json("ps")}
    assert str(held[bound]).startswith("account claude/default is parked until")
    assert "`holdfast accounts resume claude/default` opens it" in fleet.cli("why", first).stdout
    refused = fleet.cli("resume", first, code=4).stderr
    assert "waits for its account claude/default, which is parked" in refused
    assert fleet.show(first)["resume_attempts"] == 0

    fleet.kill_supervisor(supervisor)
    accounts.up()
    fleet.wait_state(fleet.queue("true"), "completed")
    assert fleet.show(bound)["state"] == "queued"
    accounts.says("default", "ok")
    assert "claude/default is open again" in fleet.cli("accounts", "resume", "claude/default").stdout
    assert [run["account"] for run in fleet.wait_state(first, "completed")["runs"]] == ["default", "default"]
    assert f"--resume {limited['session_id']}" in " ".join(accounts.calls("default"))
    fleet.wait_state(bound, "completed")
    assert accounts.events() == ["account.parked", "account.opened"]
    assert accounts.unavailable() == {}
    assert "is neither parked nor stopped" in fleet.cli("accounts", "resume", "claude/default", code=4).stderr
    fleet.cli("config", "show", "--origin")
    assert_nowhere(fleet.home, SECRET)
    assert SECRET not in fleet.log()


def assert_nowhere(home: Path, secret: str) -> None:
    for folder, _folders, names in os.walk(home):
        for name in names:
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                assert secret.encode() not in path.read_bytes(), path


def test_an_account_opens_by_itself_when_its_time_has_come(fleet: Fleet, accounts: Accounts) -> None:
    """R-RES-08: the due time wakes the supervisor; what was queued meanwhile starts then, and not before."""
    accounts.says("default", "oauth-eusage", time.time() + 5)  # should it be over before it is read: default_hold
    accounts.up()
    limited = fleet.wait_state(first := accounts.add("--account", "default"), "paused")
    accounts.says("default", "ok")
    waiting = accounts.add("--account", "default")
    done = [fleet.wait_state(task, "completed") for task in (first, waiting)]
    assert min(run["started_at"] for task in done for run in task["runs"][-1:]) >= limited["resume_after"] - 1
    assert accounts.events()[0] == "account.parked"
    assert accounts.events()[-1] == "account.opened"


def test_a_stopped_account_waits_for_a_person(fleet: Fleet, accounts: Accounts) -> None:
    """One alert per account, however many tasks; closed when it works again. A task that was claimed already when its
    account was shut goes back to the queue, at no cost."""
    gate = f"while [ -e {fleet.root}/gate-$HOLDFAST_TASK_ID ]; do sleep 0.1; done"
    accounts.configure(work=False, more=f"workspace.setup = ['{gate}']\n")
    accounts.says("default", "e401")
    first, claimed = accounts.add(), accounts.add()
    for task in (first, claimed):
        (fleet.root / f"gate-{task}").touch()
    accounts.up(agents=2)
    fleet.wait_state(claimed, "running")
    (fleet.root / f"gate-{first}").unlink()
    assert fleet.wait_state(first, "paused")["pause_reason"] == "auth"
    assert [alert["key"] for alert in fleet.json("alerts")] == ["account:claude/default"]
    (fleet.root / f"gate-{claimed}").unlink()
    back = fleet.wait_state(claimed, "queued")
    assert back["reason"] == "its account was parked or stopped before the agent started"
    assert back["runs"] == []
    told = fleet.cli("run", "x", "--agent", "claude", code=75).stderr
    assert "When its login works again: `holdfast accounts resume claude/default`" in told
    assert fleet.kinds(claimed).count("task.claimed") == 1, "it is not claimed again and again"
    accounts.says("default", "ok")
    assert f"Resumed: {first}." in fleet.cli("accounts", "resume", "claude/default").stdout
    for task in (first, claimed):
        fleet.wait_state(task, "completed")
    assert fleet.json("alerts") == []
    assert accounts.events() == ["account.stopped", "account.opened"]


def test_killed_at_each_step_and_an_account_that_vanished(fleet: Fleet, accounts: Accounts) -> None:
    """The points tx.account.* and tx.task.leave_session: what was half done is done once, after the next start."""
    accounts.says("default", "oauth-eusage", time.time() + 3600)
    accounts.says("work", "limited-later", time.time() + 7200)  # with an answer: there is something to hand over
    accounts.add("--account", "default")
    assert accounts.up("tx.account.shut:1:kill").wait(timeout=60) == -9
    assert accounts.unavailable() == {}
    supervisor = accounts.up()
    wait_until(
        lambda: "claude/default" in accounts.unavailable(), "the next supervisor settles what the killed one did not"
    )
    task = fleet.wait_state(accounts.add(), "paused")
    assert task["account"] == "work"
    for point in ("tx.account.open", "tx.account.wait_no_longer"):
        killed = fleet.cli("accounts", "resume", "claude/work", env={"HOLDFAST_FAULT": f"{point}:1:kill"}, code=None)
        assert killed.returncode == -9
        assert fleet.show(task["id"])["resume_after"] == task["resume_after"]
        assert "claude/work" in accounts.unavailable()
    accounts.says("default", "ok")
    accounts.configure(work=False)
    wait_until(
        lambda: any(event["kind"] == "config.reloaded" for event in fleet.events()), "the supervisor has seen the file"
    )
    fleet.cli("down")
    supervisor.wait(timeout=60)
    fleet.cli("accounts", "resume", "claude/default")
    fleet.cli("accounts", "resume", "claude/work")
    assert accounts.up("tx.task.leave_session:1:kill").wait(timeout=60) == -9
    assert fleet.show(task["id"])["session_id"] == task["session_id"]
    accounts.up()
    done = fleet.wait_state(task["id"], "completed")
    assert [run["account"] for run in done["runs"] if run["outcome"] in ("usage_limited", "completed")] == [
        "work",
        "default",
    ]
    assert fleet.kinds(task["id"]).count("task.session-left") == 1
    assert "An earlier agent already worked on the task below" in (accounts.place("default") / "prompt").read_text()
    fleet.wait_clean()
    fleet.cli("doctor", "--invariants")


def test_tasks_of_an_account_that_vanished_while_it_was_shut(fleet: Fleet, accounts: Accounts) -> None:
    """They are not claimed again and again: who names it is told at once; whose session was there waits for another."""
    accounts.says("default", "oauth-eusage", time.time() + 3600)
    accounts.says("work", "oauth-eusage", time.time() + 5)
    supervisor = accounts.up()
    bound = fleet.wait_state(accounts.add("--account", "default"), "paused")["id"]
    roaming = fleet.wait_state(accounts.add(), "paused")  # its session is under `work`
    assert roaming["account"] == "work"
    fleet.cli("down")
    supervisor.wait(timeout=60)
    before = fleet.kinds(roaming["id"]).count("task.claimed")  # on a slow machine its hold may have been over once
    named = accounts.add("--account", "work")
    accounts.configure(work=False)
    accounts.up()
    assert "There is no account 'work' for claude" in fleet.wait_state(named, "failed")["reason"]
    fleet.wait_state(roaming["id"], "queued")
    fleet.wait_state(fleet.queue("true"), "completed")
    assert fleet.kinds(roaming["id"]).count("task.claimed") == before, "it is not claimed again and again"
    assert "It waits for account claude/default" in fleet.cli("why", roaming["id"]).stdout
    accounts.says("default", "ok")
    fleet.cli("accounts", "resume", "claude/default")
    for task in (bound, roaming["id"]):
        assert fleet.wait_state(task, "completed")["runs"][-1]["account"] == "default"


def test_a_limit_without_a_known_end_costs_nothing_but_time(fleet: Fleet, accounts: Accounts) -> None:
    """R-RES-08: with an API key the CLI does not report the end of a limit. One probe per account at a time, growing
    holds, one alert, which ends with the limit; no task pays a resume or a run, and no other task is used up."""
    accounts.configure(work=False, more='resume.max_hold = "1s"\n')
    user = fleet.root / "claude-default"
    accounts.says("default", "e429long")
    accounts.up(agents=4, hold="200ms")
    tasks = [accounts.add("--max-resumes", "1") for _ in range(3)]

    def probes() -> int:
        return (user / "calls").read_text().count("\n") if (user / "calls").exists() else 0

    wait_until(lambda: probes() >= 9, "probes meet the limit, more often than all tasks have resumes")
    states = {fleet.show(task)["state"] for task in tasks}
    assert states <= {"paused", "queued", "running"}
    [alert] = fleet.json("alerts")
    assert alert["key"] == "limit:claude/default"
    assert "has a limit without a known end" in alert["message"]
    assert "Holdfast tries again with one task at" in alert["message"]
    assert "`holdfast accounts resume claude/default` tries at once" in alert["remedy"]
    runs = sorted((run["started_at"], run["ended_at"]) for task in tasks for run in fleet.show(task)["runs"][1:])
    later = [run for run in runs if None not in run]
    assert all(one[1] <= other[0] for one, other in pairwise(later)), "one probe at a time"
    accounts.says("default", "ok")
    for task in tasks:
        done = fleet.wait_state(task, "completed")
        assert fleet.shown(task)["budgets"]["runs"]["spent"] == 1, done["runs"]
    wait_until(lambda: fleet.json("alerts") == [], "the alert ends with the limit")
    fleet.cli("doctor", "--invariants")


@pytest.mark.parametrize("scenario", ["oauth-eusage", "e401"])
def test_a_task_without_an_answer_goes_on_under_another_account(
    fleet: Fleet, accounts: Accounts, scenario: str
) -> None:
    """Its very first request was refused, so its session holds nothing: the idle login takes it at once."""
    accounts.says("default", scenario, time.time() + 3600)
    accounts.up()
    moved = fleet.wait_state(accounts.add("--max-resumes", "0"), "completed")
    assert [run["account"] for run in moved["runs"]] == ["default", "work"]
    assert moved["resume_attempts"] == 0
    assert (accounts.place("work") / "prompt").read_text().strip() == "do it", "nothing was done, so nothing is told"
    assert "--resume" not in accounts.calls("work")[-1]
    assert fleet.kinds(moved["id"]).count("task.requeued") == 1
    bound = fleet.wait_state(accounts.add("--account", "work"), "completed")
    assert [run["account"] for run in bound["runs"]] == ["work"]


def test_a_started_session_changes_its_account_only_by_setting(fleet: Fleet, accounts: Accounts) -> None:
    """`resume.change_account`: a limit in the middle of the work leads to a hand-over under another account."""
    accounts.says("default", "limited-later", time.time() + 3600)
    supervisor = accounts.up()
    stays = fleet.wait_state(accounts.add(), "paused")
    assert stays["account"] == "default"
    fleet.cli("cancel", stays["id"])
    fleet.cli("accounts", "resume", "claude/default")
    fleet.cli("down")
    supervisor.wait(timeout=60)
    accounts.configure(more="resume.change_account = true\n")
    accounts.up()
    moved = fleet.wait_state(accounts.add(), "completed")
    assert [run["account"] for run in moved["runs"]] == ["default", "work"]
    assert "An earlier agent already worked on the task below" in (accounts.place("work") / "prompt").read_text()
    assert moved["resume_attempts"] == 0


def test_a_task_that_does_not_run_gets_another_account(fleet: Fleet, accounts: Accounts) -> None:
    """`resume`, `retry` and `set` change the account of one task: its next run has the other login and a session of
    its own, which begins with a hand-over. A wrong name changes nothing."""
    accounts.says("default", "limited-later", time.time() + 3600)
    accounts.up()
    paused = accounts.add()
    fleet.wait_state(paused, "paused")
    bound = accounts.add("--account", "default")
    assert "which is parked" in fleet.cli("resume", paused, code=4).stderr
    for words in (("resume", paused, "--account", "wrok"), ("set", bound, "account=wrok")):
        refused = fleet.cli(*words, code=2).stderr
        assert "There is no account 'wrok' for claude. Did you mean 'work'?" in refused
        assert "Nothing was changed." in refused
    assert (fleet.show(paused)["state"], fleet.show(bound)["state"]) == ("paused", "queued")
    fleet.cli("resume", paused, "--account", "work")
    done = fleet.wait_state(paused, "completed", "failed")
    assert [(run["account"], run["outcome"]) for run in done["runs"]][1:] == [("work", "completed")]
    assert "--resume" not in accounts.calls("work")[-1], "the session is the other account's"
    assert "do it" in (accounts.place("work") / "prompt").read_text()
    assert "usage" in (accounts.place("work") / "prompt").read_text(), "how the run before ended"

    assert "account default → work" in fleet.cli("set", bound, "account=work").stdout
    assert [run["account"] for run in fleet.wait_state(bound, "completed", "failed")["runs"]] == ["work"]

    over = accounts.add("--account", "work", "--delay", "1h")
    fleet.cli("cancel", over)
    fleet.cli("accounts", "resume", "claude/default")
    accounts.says("default", "ok")
    fleet.cli("retry", over, "--account", "default")
    done = fleet.wait_state(over, "completed", "failed")
    assert [run["account"] for run in done["runs"]] == ["default"]
