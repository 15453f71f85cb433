"""Schedules from the user's side: the command, with and without a supervisor, and files that change under it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.fleet import Fleet, wait_until

from holdfast.api.fleet.models import AlertRow
from holdfast.api.fleet.schedules import list_schedules
from holdfast.api.queries import Queries
from holdfast.store.open import open_store

T = TypeVar("T")

# A task's prompt is its script; it works in the checkout itself, which costs the least.
HEAD = 'agents = 2\nagent = "command"\nworkspace.strategy = "none"\n[command]\nargv = ["sh"]\n'


def table(name: str, repo: Path | None, prompt: str = "true", cron: str = "* * * * * *", **more: object) -> str:
    keys: dict[str, object] = {"name": name, "cron": cron, **({"prompt": prompt} if prompt else {}), **more}
    if repo is not None:
        keys["repo"] = str(repo)
    return "[[schedule]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


def write(fleet: Fleet, *tables: str) -> Path:
    """The user's own file, as an editor writes it: all at once."""
    path = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".new")
    aside.write_text("\n".join([HEAD, *tables]))
    aside.rename(path)
    return path


def listed(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """What `schedule list --json` prints, read in this process."""
    with fleet.as_its_user():
        return {row["name"]: row for row in list_schedules(str(fleet.home))[0]}


class TestWithoutASupervisor:
    def has_every_option(self, fleet: Fleet) -> None:
        """F16: the task of a schedule has the options that a person can give to `holdfast add`."""
        options = {
            "agent": "claude",
            "model": "opus",
            "permission": "read",
            "budget_usd": 2.5,
            "gate": "make test",
            "tries": 4,
            "workspace": "clone",
            "keep_workspace": True,
            "max_resumes": 0,
            "stuck_after": "5m",
        }
        programs = fleet.root / "programs"
        programs.mkdir()
        (programs / "claude").symlink_to("/bin/true")
        write(fleet, table("checked", fleet.repo, "look", "0 2 * * *", **options))
        env = {"PATH": f"{programs}:{os.environ['PATH']}"}
        fired = json.loads(fleet.cli("schedule", "fire", "checked", "--json", env=env).stdout)
        task = fleet.shown(fired["task"])
        store = open_store(str(fleet.home), create=False)
        try:
            spec = store.write(lambda tx: tx.tasks.get(task["id"])).spec
        finally:
            store.close()
        assert (spec.agent, spec.agent_options["model"], spec.agent_options["permission"]) == ("claude", "opus", "read")
        assert (spec.budget.usd, spec.strategy, spec.keep_workspace) == (2.5, "clone", True)
        assert [(stage.gate, stage.retry) for stage in spec.stages] == [("make test", 3)]
        assert (spec.max_resumes, spec.health.stuck_after) == (0, 300.0)
        fleet.cli("cancel", task["id"])

    def test_what_the_command_says_and_does(self, fleet: Fleet) -> None:
        """R-CRON-04, R-CRON-01: last and next times in words; a fire by hand queues its task and moves no cursor; names
        that clash are asked for; exit codes as the contract has them."""
        other = fleet.make_repo(fleet.root / "other")
        fleet.cli("init", "--no-file")
        nightly = table("nightly", fleet.repo, "echo by the clock", "0 2 * * *", timezone="Europe/Berlin", priority=4)
        write(fleet, nightly, table("weekly", fleet.repo, cron="0 6 * * MON"), table("weekly", other, cron="0 7 * * *"))
        said = fleet.cli("schedule", "list")
        assert "at 02:00 every day, Europe/Berlin" in said.stdout
        assert " 02:00 Europe/Berlin" in said.stdout
        assert "No supervisor is running. Start one: `holdfast up`. Nothing fires until then." in said.stderr
        assert "Did you mean 'nightly'?" in fleet.cli("schedule", "show", "nigthly", code=3).stderr
        assert "Name the schedule" in fleet.cli("schedule", "fire", code=2).stderr
        fleet.cli("schedule", "list", "nightly", code=2)
        assert "other:weekly, repo:weekly" in fleet.cli("schedule", "disable", "weekly", code=4).stderr
        fleet.cli("schedule", "fire", "nowhere:weekly", code=3)

        fired = fleet.json("schedule", "fire", "nightly")[0]
        assert fired["supervisor"] is False
        task = fleet.shown(fired["task"])
        assert (task["state"], task["labels"], task["priority"]) == ("queued", {"schedule": "nightly"}, 4)
        assert task["schedule"] == "nightly"
        assert f"nightly, for {task['fire_time']}" in fleet.cli("show", task["id"]).stdout
        assert "The schedule nightly added it" in fleet.cli("why", task["id"]).stdout
        shown = fleet.json("schedule", "show", "nightly")[0]
        assert [fire["task"] for fire in shown["last_fires"]] == [task["id"]]
        assert shown["last_fires"][0]["by_hand"] is True
        assert len(shown["next_fires"]) == 5
        assert shown["next_fires"] == sorted(set(shown["next_fires"]))
        assert f"task {task['id']} queued" in fleet.cli("schedule", "show", "nightly").stdout

        assert "is disabled" in fleet.cli("schedule", "disable", "other:weekly").stdout
        assert "was disabled already" in fleet.cli("schedule", "disable", f"{other}:weekly").stdout
        rows = [row for row in fleet.json("schedule", "list") if row["name"] == "weekly"]
        assert {row["repo"]: row["enabled"] for row in rows} == {str(fleet.repo): True, str(other): False}
        assert "is enabled. It continues from now." in fleet.cli("schedule", "enable", "other:weekly").stdout
        changed = table("nightly", fleet.repo, "echo again", "30 4 * * *")
        write(fleet, changed)
        assert {name: row["words"] for name, row in listed(fleet).items()} == {"nightly": "at 04:30 every day"}
        again = fleet.json("schedule", "fire", "nightly")[0]["task"]
        assert fleet.shown(again)["prompt"] == "echo again", "as its file has it now, seen by no supervisor"
        assert "nightly" in fleet.cli("__complete", "schedules", "x", "nig").stdout
        assert "Nothing fires until then." in fleet.doctor()
        self.has_every_option(fleet)

    def test_a_broken_file_is_told_with_its_line_and_a_clones_file_is_not_taken(self, fleet: Fleet) -> None:
        """R-CRON-01: what is wrong is said where people look: `schedule list`, `doctor`, `config check`."""
        fleet.cli("init", "--no-file")
        path = write(fleet, table("a", fleet.repo, cron="0 25 * * *"))
        assert f"{path}:9: schedule.cron: its hour '25' cannot be read" in fleet.cli("schedule", "list").stderr
        assert f"{path}:9:" in fleet.cli("doctor", code=None).stdout
        fleet.cli("config", "check", code=2)
        write(fleet)
        (fleet.repo / "holdfast.toml").write_text(table("own", None, cron="0 3 * * *"))
        found = fleet.cli("schedule", "list")
        assert "own" not in found.stdout
        assert f"`holdfast trust {fleet.repo}`" in found.stderr
        fleet.cli("schedule", "fire", "own", code=3)
        assert "schedule.own = " in fleet.cli("trust", "--yes").stdout
        assert listed(fleet)["own"]["repo"] == str(fleet.repo)
        assert fleet.json("schedule", "fire", "own")[0]["task"]
        fleet.cli("trust", "--revoke")
        assert "holdfast trust" in fleet.cli("schedule", "list").stderr


def fires(fleet: Fleet, name: str) -> list[dict[str, Any]]:
    """Every `schedule.fired` of the schedule, from the events: in one reading."""
    return told(fleet, "schedule.fired", name)


def told(fleet: Fleet, kind: str, name: str) -> list[dict[str, Any]]:
    return [e for e in fleet.events() if e["kind"] == kind and e["data"].get("schedule") == name]


def alerts(fleet: Fleet, *, everything: bool = False) -> list[AlertRow]:
    found = Queries(str(fleet.home)).alerts(everything=everything)
    return [alert for alert in found if alert["key"].startswith("schedule")]


def wait_for(fleet: Fleet, fact: Callable[[], T], what: str) -> T:
    """`wait_until` for facts of the store: looked at again only when somebody has written into it."""
    queries, seen = Queries(str(fleet.home)), -1

    def is_so() -> T | None:
        nonlocal seen
        version = queries.data_version()
        if version == seen:
            return None
        seen = version
        return fact()

    found = wait_until(is_so, what)
    assert found is not None
    return found


def once_each(found: list[dict[str, Any]]) -> list[float]:
    """The moments that were fired; fails when one was fired twice."""
    moments = [event["data"]["fire_time"] for event in found]
    assert len(moments) == len(set(moments)), moments
    assert len({event["task"] for event in found}) == len(found)
    return moments


class TestByTheClock:
    def test_every_second_over_a_kill(self, fleet: Fleet) -> None:
        """R-CRON-02, R-CRON-03: one task per occurrence, even over a kill -9 of the supervisor; what was missed
        meanwhile is made up for once, and the fire by hand moves nothing."""
        fleet.cli("init", "--no-file")
        write(fleet, table("ticks", fleet.repo, "true", overlap="queue"))
        first = fleet.up()
        wait_for(fleet, lambda: len(fires(fleet, "ticks")) >= 2, "it has fired twice")
        fleet.kill_supervisor(first)
        before = once_each(fires(fleet, "ticks"))
        wait_until(lambda: time.time() > before[-1] + 3, "several occurrences are missed")
        due = listed(fleet)["ticks"]["next_fire"]
        assert before[-1] < due < time.time(), "what was missed is due"
        by_hand = fleet.json("schedule", "fire", "ticks")[0]["task"]
        assert listed(fleet)["ticks"]["next_fire"] == due, "a fire by hand moves nothing"
        assert "due, " in fleet.cli("schedule", "list").stdout
        second = fleet.up()
        wait_for(fleet, lambda: len(fires(fleet, "ticks")) >= len(before) + 2, "it continues")
        found = fires(fleet, "ticks")
        clocked = [event for event in found if event["data"]["scheduled"]]
        moments = once_each(clocked)
        assert moments == sorted(moments)
        assert all(moment == int(moment) for moment in moments)
        assert moments[: len(before)] == before
        assert moments[len(before)] >= before[-1] + 2, "those in between are one: the latest"
        assert [event["task"] for event in found if not event["data"]["scheduled"]] == [by_hand]
        assert fleet.wait_state(by_hand, "completed")["schedule"] == "ticks"
        task = fleet.wait_state(clocked[0]["task"], "completed")
        assert task["fire_time"] == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moments[0]))
        row = listed(fleet)["ticks"]
        assert (row["seen"], row["enabled"], row["trouble"]) == (True, True, None)
        assert "No supervisor" not in fleet.cli("schedule", "show", "ticks").stderr
        fleet.cli("schedule", "disable", "ticks")
        fleet.cli("down")
        second.wait(timeout=60)

    def test_files_that_change_break_and_are_mended(self, fleet: Fleet) -> None:
        """R-CRON-01: a change is taken over without a restart; a file with a mistake keeps the last good ones, with one
        alert that names the line, closed when it is mended; disabling holds; an untrusted clone's file adds nothing."""
        fleet.cli("init", "--no-file")
        said = fleet.root / "said"
        script = f"echo {{{{ schedule.name }}}} {{{{ schedule.fire_time }}}} >{said}"
        flow = f"[[workflow.w.stage]]\nname = 's'\nprompt = '{script}'\n"
        write(
            fleet, table("a", fleet.repo, overlap="queue"), table("f", fleet.repo, "", "0 0 1 1 *", workflow="w"), flow
        )
        fleet.up()
        wait_for(fleet, lambda: fires(fleet, "a"), "the first one fires")
        task = fleet.wait_state(fleet.json("schedule", "fire", "f")[0]["task"], "completed")
        assert said.read_text().split() == ["f", task["fire_time"]], "a workflow's prompts know its schedule"
        path = write(fleet, table("a", fleet.repo, overlap="queue"), table("b", fleet.repo, overlap="queue"))
        wait_for(fleet, lambda: fires(fleet, "b"), "the new one fires without a restart")
        write(fleet, table("a", fleet.repo, cron="99 * * * *"))
        (alert,) = wait_for(fleet, lambda: alerts(fleet), "the mistake is told")
        assert f"{path}:9: schedule.cron: its minute '99' cannot be read" in alert["message"]
        assert "its previous schedules stay in force" in alert["remedy"]
        at = len(fires(fleet, "b"))
        wait_for(fleet, lambda: len(fires(fleet, "b")) > at, "the last good ones continue firing")
        (fleet.repo / "holdfast.toml").write_text(table("own", None))
        untrusted = wait_for(
            fleet, lambda: [a for a in alerts(fleet) if "holdfast.toml" in a["key"]], "trust is asked for"
        )
        assert f"`holdfast trust {fleet.repo}`" in untrusted[0]["message"]
        assert len(alerts(fleet)) == 2
        write(fleet, table("b", fleet.repo, overlap="queue"))
        wait_for(fleet, lambda: str(path) not in str(alerts(fleet)), "the alert is closed")
        wait_for(fleet, lambda: "a" not in listed(fleet), "what the file no longer has is gone")
        fleet.cli("trust", "--yes")
        wait_for(fleet, lambda: fires(fleet, "own"), "a trusted file's schedules fire")
        assert not alerts(fleet)
        assert len(alerts(fleet, everything=True)) == 2, "one alert each, however often it was looked at"
        fleet.cli("schedule", "disable", "b")
        at = len(fires(fleet, "b"))
        moment = fires(fleet, "own")[-1]["data"]["fire_time"]
        wait_for(fleet, lambda: fires(fleet, "own")[-1]["data"]["fire_time"] > moment + 1, "time continues")
        assert len(fires(fleet, "b")) == at
        fleet.cli("schedule", "enable", "b")
        wait_for(fleet, lambda: len(fires(fleet, "b")) > at, "enabled, it fires again")

    def test_a_long_task_and_a_full_house(self, fleet: Fleet) -> None:
        """R-CRON-01, R-CRON-03: with `skip`, occurrences during a long task are told of and left out; while no agent is
        free, an occurrence waits in the queue, once, and runs later; a repository that is gone stays due."""
        fleet.cli("init", "--no-file")
        gate = fleet.root / "gate"
        wait = f"while [ ! -e {gate} ]; do sleep 0.1; done"
        blocker = fleet.queue(wait, priority=5)
        fleet.up("--agents", "1")
        fleet.wait_started(blocker)
        gone = fleet.root / "gone"
        write(fleet, table("long", fleet.repo, "true"), table("lost", gone))
        skipped = wait_for(
            fleet, lambda: told(fleet, "schedule.skipped", "long"), "it is left out while its task waits"
        )
        found = fires(fleet, "long")
        assert len(found) == 1, "one task waits for room, however many occurrences come"
        assert found[0]["task"] in skipped[0]["reason"]
        assert fleet.show(found[0]["task"])["state"] == "queued"
        (alert,) = wait_for(fleet, lambda: alerts(fleet), "it is told that there is no repository")
        assert str(gone) in alert["message"]
        assert "lost" in fleet.cli("schedule", "list").stdout
        fleet.make_repo(gone)
        wait_for(fleet, lambda: fires(fleet, "lost"), "its occurrence was still due")
        assert not alerts(fleet)
        gate.touch()
        fleet.wait_state(found[0]["task"], "completed")
        wait_for(fleet, lambda: len(fires(fleet, "long")) >= 2, "the next one fires once there is room")
        once_each(fires(fleet, "long"))
        assert fleet.wait_state(blocker, "completed")["runs"]
