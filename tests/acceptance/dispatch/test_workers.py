"""Named workers, from outside: what each takes, what a crash of its agent does to it, and an operator's word."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, cast

from tests.acceptance.config.test_config import user_file
from tests.acceptance.dispatch.test_accounts import Accounts
from tests.fleet import Fleet, wait_until

WEB = '[[worker]]\nname = "web"\nlabels = { area = "web" }\n'
DOCS = '[[worker]]\nname = "docs"\nlabels = { area = "docs" }\n'


class Crew:
    """Tasks that wait for a gate, each with its own."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._number = 0
        self._gates: dict[str, Path] = {}

    def queue(self, **labels: str) -> str:
        """It notes whose it is, and continues when its gate opens."""
        self._number += 1
        gate = self.fleet.root / f"gate-{self._number}"
        script = (
            f'echo "$HOLDFAST_WORKER" > "{gate}.new"; mv "{gate}.new" "{gate}.who"\n'
            f'while [ ! -e "{gate}" ]; do sleep 0.1; done; echo done > out'
        )
        task = self.fleet.queue(script, labels=labels)
        self._gates[task] = gate
        return task

    def open(self, *tasks: str) -> None:
        for task in tasks:
            self._gates[task].touch()

    def who(self, task: str) -> str:
        """Whose agent works on it, as the agent itself was told."""
        note = Path(f"{self._gates[task]}.who")
        wait_until(note.exists, f"the agent of {task} has noted whose it is")
        return note.read_text().strip()

    def kill(self, task: str) -> None:
        """`kill -9` of its agent, from outside."""
        run = self.fleet.wait_started(task)["runs"][-1]
        os.kill(run["pid"], signal.SIGKILL)
        wait_until(
            lambda: any(mine["id"] == run["id"] and mine["state"] == "settled" for mine in self.runs(task)),
            f"the killed run of {task} is settled",
        )

    def runs(self, task: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.fleet.show(task)["runs"]
        return found

    def workers(self) -> list[dict[str, Any]]:
        """What `worker list --json` prints, without the cost of a command."""
        from holdfast.api.fleet.workers import list_workers

        with self.fleet.as_its_user():
            return cast("list[dict[str, Any]]", list_workers(str(self.fleet.home)))

    def worker(self, name: str) -> dict[str, Any]:
        return next(row for row in self.workers() if row["name"] == name)

    def told(self, name: str) -> list[str]:
        """What the events say of a worker."""
        return [
            event["kind"]
            for event in self.fleet.events()
            if event["kind"].startswith("worker.") and event["data"]["worker"] == name
        ]


def test_workers_take_what_matches_and_anybody_else_the_rest(fleet: Fleet) -> None:
    """R-CRASH-05: two named workers beside one anonymous agent, one task at a time each; steered while at work."""
    crew = Crew(fleet)
    user_file(fleet, f"agents = 1\n{WEB}{DOCS}")
    assert "No supervisor is running. This takes effect at the next" in fleet.cli("worker", "stop", "docs").stderr
    first, second, docs = crew.queue(area="web", size="small"), crew.queue(area="web"), crew.queue(area="docs")
    supervisor = fleet.up()
    fleet.wait_started(first)
    fleet.wait_started(second)
    assert fleet.show(first)["worker"] == fleet.show(first)["runs"][0]["worker"] == "web"
    assert fleet.show(second)["worker"] is None, "an anonymous agent takes whatever waits"
    assert fleet.show(docs)["state"] == "queued", "its worker was stopped before the supervisor came"
    assert fleet.cli("worker", "start", "docs").stdout == "Worker docs is started.\n"
    fleet.wait_started(docs)
    assert (crew.who(first), crew.who(second), crew.who(docs)) == ("web", "", "docs")
    assert [(row["name"], row["state"], row["task"]) for row in fleet.json("worker", "list")] == [
        ("web", "working", first),
        ("docs", "working", docs),
    ]
    assert "WORKER" in fleet.cli("ps").stdout
    assert "by worker web" in fleet.cli("why", first).stdout
    assert "started already" in fleet.cli("worker", "start", "web", code=4).stderr
    assert "Did you mean 'web'?" in fleet.cli("worker", "start", "wbe", code=3).stderr
    assert "--now belongs to" in fleet.cli("worker", "restart", "web", "--now", code=2).stderr
    assert f"It finishes its task {first} first" in fleet.cli("worker", "stop", "web").stdout
    assert crew.worker("web")["state"] == "stopping"
    third = crew.queue(area="web")
    crew.open(first, docs)
    fleet.wait_state(first, "completed")
    fleet.wait_state(docs, "completed")
    assert fleet.show(third)["state"] == "queued", "a stopped worker takes nothing more"
    # Its agent ends with its grace; the task stays queued, spends nothing, and continues elsewhere.
    fleet.cli("worker", "start", "web")
    fleet.wait_started(third)
    assert "is being ended" in fleet.cli("worker", "stop", "web", "--now").stdout
    fleet.wait_state(third, "queued")
    assert crew.runs(third)[0]["outcome"] == "stopped"
    assert crew.worker("web")["state"] == "stopped"
    crew.open(second, third)
    fleet.wait_state(third, "completed")
    assert crew.runs(third)[1]["worker"] is None
    assert supervisor.poll() is None


def test_the_third_crash_benches_a_worker_until_it_is_restarted(fleet: Fleet) -> None:
    """R-CRASH-04, R-CRASH-06: crashes 1 and 2 restart, 3 stops and alerts; across supervisor restarts."""
    crew = Crew(fleet)
    user_file(fleet, f"agents = 0\n{WEB}restart = true\n")
    tasks = [crew.queue(area="web") for _ in range(3)]
    supervisor = fleet.up()
    crew.kill(tasks[0])
    assert crew.worker("web")["recent_crashes"] == 1
    second = wait_until(lambda: crew.worker("web")["task"], "the worker has its next task")
    pid = fleet.wait_started(second)["runs"][-1]["pid"]
    fleet.kill_supervisor(supervisor)
    os.kill(pid, signal.SIGKILL)  # while nobody looks
    fleet.up()
    wait_until(lambda: crew.worker("web")["recent_crashes"] == 2, "the second crash is known")
    crew.kill(wait_until(lambda: crew.worker("web")["task"], "the worker has its next task"))
    row = wait_until(lambda: (now := crew.worker("web"))["state"] == "benched" and now, "the worker is benched")
    assert "crash 3 of 3 within 600 s" in row["reason"]
    alerts = [alert for alert in fleet.json("alerts") if alert["key"] == "crash:worker:web"]
    assert [(alert["level"], alert["count"]) for alert in alerts] == [("critical", 1)]
    assert "holdfast worker restart web" in alerts[0]["remedy"]
    assert "3 recent crash(es)" in alerts[0]["message"]
    assert "is free for any worker" in alerts[0]["message"]
    assert crew.told("web") == ["worker.started"] * 3 + ["worker.benched"]
    assert {fleet.show(task)["state"] for task in tasks} == {"queued"}
    assert "web is benched: `holdfast worker start web`" in fleet.cli("why", tasks[0]).stdout
    crew.open(*tasks)
    assert fleet.cli("worker", "restart", "web").stdout == "Worker web is restarted.\n"
    for task in tasks:
        assert fleet.wait_state(task, "completed")["runs"][-1]["worker"] == "web"
    assert crew.worker("web")["recent_crashes"] == 0
    assert not [alert for alert in fleet.json("alerts") if alert["key"] == "crash:worker:web"]


def test_without_auto_restart_a_crash_stops_its_worker_and_frees_its_task(fleet: Fleet) -> None:
    """R-CRASH-03, R-CRASH-05: notify only; any worker takes the task; with release_claims = false it waits for its own.
    Settings change while all of it runs: a worker comes, and goes when its task is done."""
    crew = Crew(fleet)
    user_file(fleet, f"agents = 0\n{WEB}")
    fleet.up()
    task = crew.queue(area="web")
    crew.kill(task)
    assert crew.worker("web")["state"] == "stopped"
    assert "holdfast worker restart web" in fleet.cli("alerts").stdout
    assert "web is stopped: `holdfast worker start web`" in fleet.cli("why", task).stdout
    user_file(fleet, f"agents = 0\n[crash]\nrelease_claims = false\n{WEB}[[worker]]\nname = 'spare'\n")
    wait_until(lambda: len(crew.runs(task)) == 2, "another worker took it")
    assert fleet.wait_started(task)["worker"] == "spare"
    user_file(fleet, f"agents = 0\n[crash]\nrelease_claims = false\n{WEB}")
    wait_until(lambda: crew.told("spare") == ["worker.started", "worker.stopped"], "the spare one is retired")
    assert crew.worker("spare")["configured"] is False
    crew.open(task)
    fleet.wait_state(task, "completed")
    wait_until(lambda: [row["name"] for row in crew.workers()] == ["web"], "it is no more")
    fleet.cli("worker", "restart", "web")
    bound, other = crew.queue(area="web"), crew.queue(area="web")
    crew.kill(bound)
    assert fleet.show(bound)["worker"] == "web"
    user_file(fleet, f"agents = 2\n[crash]\nrelease_claims = false\n{WEB}")
    fleet.wait_started(other)
    assert "It waits for worker web, which is stopped" in fleet.cli("why", bound).stdout
    fleet.cli("worker", "restart", "web")
    crew.open(bound, other)
    assert [run["worker"] for run in fleet.wait_state(bound, "completed")["runs"]] == ["web", "web"]
    fleet.wait_state(other, "completed")


def test_a_worker_gives_its_account_to_tasks_that_name_none(fleet: Fleet) -> None:
    """Issue 7: `account` of a worker; while it is shut, its worker rests."""
    accounts = Accounts(fleet)
    accounts.configure(more="agents = 0\n")
    file = fleet.root / "user/.config/holdfast/config.toml"
    file.write_text(f'{file.read_text()}[[worker]]\nname = "w"\nagent = "claude"\naccount = "work"\n')
    task, other = accounts.add(), accounts.add("--account", "default")
    env = {"CLAUDE_CONFIG_DIR": str(accounts.place("default")), "WORK_KEY": "k", "ANTHROPIC_API_KEY": "own"}
    fleet.up(env=env)
    done = fleet.wait_state(task, "completed")
    assert [(run["account"], run["worker"]) for run in done["runs"]] == [("work", "w")]
    assert fleet.show(other)["state"] == "queued"
    assert "No worker takes this task" in fleet.cli("why", other).stdout
    # Nobody would ever come for it: whoever watches is told so instead of waiting for ever.
    watched = fleet.cli("run", "nobody's", "--", "true", code=75)
    assert "No worker takes this task" in watched.stderr
