"""What one task runs under: settings, settings of one agent, flags. Seen in what the store then holds."""

from __future__ import annotations

import os

import pytest
from tests.acceptance.config.test_config import repo_file, user_file
from tests.clis import install
from tests.fleet import Fleet

from holdfast.config.per_agent import AGENTS
from holdfast.store.sqlite.engine.store import SqliteStore

MINE = """\
[health]
stuck_after = "6m"
grace = "9s"

[per_agent.command.health]
stuck_after = "20m"
max_runtime = "2h"
tool_silence = "forever"

[per_agent.scripted.limits]
memory = "2GB"
output = "0"
"""


def test_an_agent_has_settings_of_its_own(fleet: Fleet) -> None:
    """R-TERM-14, R-TERM-04: every health and limits key can be overridden for one agent; others keep the plain one."""
    user_file(fleet, MINE)
    command = fleet.show(fleet.add("x", command=("true",)))
    assert command["health"]["stuck_after"] == 1200
    assert command["health"]["tool_silence"] is None
    assert command["timeout"] == 7200
    assert command["grace"] == 9
    assert command["limits"]["memory"] is None
    scripted = fleet.show(fleet.add_scenario({"exit": 0}))
    assert scripted["health"]["stuck_after"] == 360
    assert scripted["timeout"] == 3600
    assert scripted["limits"]["memory"] == 2_000_000_000
    assert scripted["limits"]["output"] is None


def test_every_key_can_be_overridden(fleet: Fleet) -> None:
    """R-TERM-14: health.* and limits.*, all of them, reach the stored task."""
    user_file(
        fleet,
        "[per_agent.command]\n"
        'health = { max_runtime = "1s", grace = "2s", orphan_grace = "3s", stuck_after = "4s", tool_silence = "5s", '
        'startup_timeout = "6s", on_stuck = "notify", loop_steps = 7, claim_grace = "8s", adaptive_timeout = true, '
        'adaptive_floor = "9s", doomed_after = "10s", retry_patience = "11s" }\n'
        'limits = { memory = "1MiB", processes = 2, processes_ceiling = 6, cpu_weight = 3, output = "4k", '
        'output_kept = "5k" }\n',
    )
    task = fleet.show(fleet.add("x", command=("true",)))
    assert (task["timeout"], task["grace"], task["orphan_grace"]) == (1, 2, 3)
    assert task["health"] == {
        "stuck_after": 4,
        "tool_silence": 5,
        "startup_timeout": 6,
        "on_stuck": "notify",
        "loop_steps": 7,
        "claim_grace": 8,
        "adaptive_floor": 9,
        "doomed_after": 10,
        "retry_patience": 11,
    }
    assert task["limits"] == {
        "memory": 1024**2,
        "processes": 2,
        "processes_ceiling": 6,
        "cpu_weight": 3,
        "output": 4096,
        "output_kept": 5120,
    }


def test_layers_come_before_agents_and_flags_before_all(fleet: Fleet) -> None:
    """A later layer wins; within a layer the agent's own value does; flags of `add` win over everything."""
    user_file(fleet, MINE)
    repo_file(fleet, '[health]\nstuck_after = "7m"\n')
    fleet.cli("trust", "--yes")
    assert fleet.show(fleet.add("x", command=("true",)))["health"]["stuck_after"] == 420
    repo_file(fleet, '[health]\nstuck_after = "7m"\n[per_agent.command.health]\nstuck_after = "8m"\n')
    assert fleet.show(fleet.add("x", command=("true",)))["health"]["stuck_after"] == 480
    variable = {"HOLDFAST_HEALTH_STUCK_AFTER": "9m"}
    assert fleet.show(fleet.add("x", command=("true",), env=variable))["health"]["stuck_after"] == 540
    flags = (
        *("--stuck-after", "off", "--startup-timeout", "3m", "--on-stuck", "notify", "--timeout", "5m"),
        *("--memory", "1GiB", "--processes", "50", "--cpu-weight", "10", "--max-output", "1MiB"),
    )
    task = fleet.show(fleet.add("x", *flags, command=("true",), env=variable))
    assert task["health"]["stuck_after"] is None
    assert task["health"]["startup_timeout"] == 180
    assert task["health"]["on_stuck"] == "notify"
    assert task["timeout"] == 300
    limits = task["limits"]
    assert (limits["memory"], limits["processes"], limits["cpu_weight"]) == (2**30, 50, 10)
    assert limits["output"] == 2**20
    patient = fleet.show(fleet.add("x", "--startup-timeout", "off", command=("true",)))
    assert patient["health"]["startup_timeout"] is None


def test_show_says_where_an_agents_value_comes_from(fleet: Fleet) -> None:
    path = user_file(fleet, MINE)
    lines = fleet.cli("config", "show", "--origin").stdout.splitlines()
    assert f'per_agent.command.health.stuck_after = "20m"        # {path}:6' in lines
    found = {row["key"]: row for row in fleet.json("config", "show")}
    assert found["per_agent.command.health.tool_silence"]["value"] == "forever"
    assert found["per_agent.scripted.limits.memory"] == {
        "key": "per_agent.scripted.limits.memory",
        "value": 2_000_000_000,
        "origin": f"{path}:11",
    }
    repo_file(fleet, '[health]\nstuck_after = "7m"\n')
    fleet.cli("trust", "--yes")
    assert "per_agent.command.health.stuck_after" not in {row["key"] for row in fleet.json("config", "show")}
    # what is shown can be a file again
    text = fleet.cli("config", "show").stdout
    user_file(fleet, text)
    (fleet.repo / "holdfast.toml").unlink()
    assert fleet.cli("config", "show").stdout == text


def test_mistakes_in_an_agents_table(fleet: Fleet) -> None:
    path = user_file(
        fleet,
        "[per_agent.comand.health]\n"  # line 1
        'stuck_after = "20m"\n'
        "[per_agent.command.health]\n"
        'stuk_after = "20m"\n'
        "grace = 5\n"
        "[per_agent.command.workspace]\n"
        'strategy = "none"\n'
        "[per_agent.scripted]\n"
        "limits = 3\n"  # line 9
        "[per_agent.scripted.health]\n",
    )
    found = fleet.cli("config", "check", code=2).stdout.splitlines()
    expected = {
        1: f"there is no agent 'comand' (this version knows {', '.join(AGENTS)}); did you mean 'command'?",
        4: "there is no setting 'per_agent.command.health.stuk_after'; did you mean 'per_agent.command.health.stuck_",
        5: "per_agent.command.health.grace: '5' is not a duration",
        7: "'workspace.strategy' cannot be set per agent; only health.* and limits.* can",
        9: "'per_agent.scripted.limits' is a section of settings",
    }
    for line, text in expected.items():
        assert any(f"{path}:{line}: {text}" in row for row in found), (line, found)
    assert len(found) == len(expected), found
    refused = fleet.cli("add", "x", "--", "true", code=2).stderr
    assert f"{path}:1: there is no agent 'comand'" in refused
    assert "and 4 more mistakes" in refused


@pytest.mark.parametrize("text", ["per_agent = 5\n", "[per_agent]\ncommand = 5\n"])
def test_a_value_in_place_of_a_table(fleet: Fleet, text: str) -> None:
    user_file(fleet, text)
    assert "is a section of settings" in fleet.cli("config", "check", code=2).stdout


def test_silence_of_a_cli_that_tells_answers_only_when_they_are_whole(fleet: Fleet) -> None:
    """R-TERM-04: a model may think for longer than the general limit; what the user sets still holds."""
    fleet.env["PATH"] = install(fleet.root / "bin", "claude", "codex")
    config = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    quiet = fleet.add("think", "--agent", "codex", "--permission", "full")
    chatty = fleet.add("think", "--agent", "claude")
    assert fleet.shown(quiet)["health"]["stuck_after"] == 600
    assert fleet.shown(chatty)["health"]["stuck_after"] == 300
    config.parent.mkdir(parents=True)
    config.write_text('health.stuck_after = "4m"\n')
    assert fleet.shown(fleet.add("think", "--agent", "codex", "--permission", "full"))["health"]["stuck_after"] == 240


def test_a_machine_that_calls_itself_a_sandbox_is_one(fleet: Fleet) -> None:
    """Claude Code refuses `full` to root but for this word of its own; the task keeps it for its supervisor."""
    fleet.env["PATH"] = install(fleet.root / "bin", "claude")
    if os.geteuid() == 0:
        refusal = fleet.cli("add", "x", "--agent", "claude", "--permission", "full", code=2).stderr
        assert "permissions.sandbox" in refusal
    task_id = fleet.add("x", "--agent", "claude", "--permission", "full", env={"IS_SANDBOX": "1"})
    with fleet.as_its_user():
        spec = SqliteStore(str(fleet.home), create=False).write(lambda tx: tx.tasks.get(task_id)).spec
    assert spec.agent_options["sandbox"] is True
