"""Schedules from the user's side: the command, with and without a supervisor, and files that change under it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fleet import Fleet

HEAD = 'agents = 2\nagent = "command"\n[command]\nargv = ["sh"]\n'  # a task's prompt is its script


def table(name: str, repo: Path | None, prompt: str = "true", cron: str = "* * * * * *", **more: object) -> str:
    keys: dict[str, object] = {"name": name, "cron": cron, "prompt": prompt, **more}
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
    return {row["name"]: row for row in fleet.json("schedule", "list") if row["record"] == "schedule"}


class TestWithoutASupervisor:
    def test_what_the_command_says_and_does(self, fleet: Fleet) -> None:
        """R-CRON-04, R-CRON-01: last and next times in words; a fire by hand queues its task and moves no cursor; names
        that clash are asked for; exit codes as the contract has them."""
        other = fleet.make_repo(fleet.root / "other")
        fleet.cli("init", "--no-file")
        nightly = table("nightly", fleet.repo, "echo by the clock", "0 2 * * *", timezone="Europe/Berlin", base="main")
        write(fleet, nightly, table("weekly", fleet.repo, cron="0 6 * * MON"), table("weekly", other, cron="0 7 * * *"))
        said = fleet.cli("schedule", "list")
        assert "at 02:00 every day, Europe/Berlin" in said.stdout
        assert " 02:00 Europe/Berlin" in said.stdout
        assert "No supervisor is running, so nothing fires until `holdfast up`" in said.stderr
        assert "Did you mean 'nightly'?" in fleet.cli("schedule", "show", "nigthly", code=3).stderr
        assert "Say which" in fleet.cli("schedule", "fire", code=2).stderr
        fleet.cli("schedule", "list", "nightly", code=2)
        assert "other:weekly, repo:weekly" in fleet.cli("schedule", "disable", "weekly", code=4).stderr
        fleet.cli("schedule", "fire", "nowhere:weekly", code=3)

        fired = fleet.json("schedule", "fire", "nightly")[0]
        assert fired["supervisor"] is False
        task = fleet.shown(fired["task"])
        assert (task["state"], task["labels"], task["base_ref"]) == ("queued", {"schedule": "nightly"}, "main")
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
        assert "is enabled. It goes on from now." in fleet.cli("schedule", "enable", "other:weekly").stdout
        assert "nightly" in fleet.cli("__complete", "schedules", "x", "nig").stdout
        assert "nothing fires while no supervisor is running" in fleet.doctor()

    def test_a_broken_file_is_told_with_its_line_and_a_clones_file_is_not_taken(self, fleet: Fleet) -> None:
        """R-CRON-01: what is wrong is said where people look: `schedule list`, `doctor`, `config check`."""
        fleet.cli("init", "--no-file")
        path = write(fleet, table("a", fleet.repo, cron="0 25 * * *"))
        assert f"{path}:8: schedule.cron: its hour '25' cannot be read" in fleet.cli("schedule", "list").stderr
        assert f"{path}:8:" in fleet.cli("doctor", code=None).stdout
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
