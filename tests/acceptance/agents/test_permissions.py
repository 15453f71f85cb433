"""Agents that may run the tests, and nothing else: `permissions.allow`, `<agent>.args`, and a CLI's own distrust."""

from __future__ import annotations

import json

from tests.acceptance.config.test_config import repo_file, user_file
from tests.clis import fake_cli, recorded
from tests.fleet import Fleet


def install(fleet: Fleet, *names: str) -> None:
    for name in names:
        fake_cli(fleet.root / "bin", name, lines=recorded(name, "ok"), version="2.1.325")
    fleet.env["PATH"] = f"{fleet.root / 'bin'}:{fleet.env['PATH']}"


def command_of(fleet: Fleet, task: str) -> list[str]:
    fleet.wait_state(task, "completed")
    return list(fleet.shown(task)["runs"][0]["launch"]["command"])


def test_the_users_list_and_arguments_reach_the_cli(fleet: Fleet) -> None:
    install(fleet, "claude")
    user_file(fleet, "permissions.allow = ['make  test', 'pytest']\nclaude.args = ['--effort', 'high']\n")
    fleet.up()
    command = command_of(fleet, fleet.add("x", "--agent", "claude"))
    at = command.index("--allowedTools")
    assert command[at + 1 : at + 3] == ["Bash(make test:*)", "Bash(pytest:*)"]
    assert command[-2:] == ["--effort", "high"]
    assert "--allowedTools" not in command_of(fleet, fleet.add("x", "--agent", "claude", "--permission", "read"))


def test_what_cannot_work_is_refused_by_name(fleet: Fleet) -> None:
    install(fleet, "claude", "aider")
    user_file(fleet, "permissions.allow = ['make test']\nclaude.args = ['--output-format', 'json']\n")
    said = fleet.cli("add", "x", "--agent", "claude", code=2).stderr
    assert "claude.args" in said
    assert "--output-format" in said
    said = fleet.cli("add", "x", "--agent", "aider", code=2).stderr
    assert "permissions.allow" in said
    assert "--gate COMMAND" in said
    fleet.cli("add", "x", "--agent", "aider", env={"HOLDFAST_PERMISSIONS_ALLOW": ""})
    user_file(fleet, "permissions.allow = ['make test; curl evil']\n")
    assert "is not one plain command" in fleet.cli("config", "check", code=None).stdout


def test_a_repository_that_is_not_trusted_adds_nothing(fleet: Fleet) -> None:
    install(fleet, "claude")
    user_file(fleet, "permissions.allow = ['make test']\n")
    for line in ("permissions.allow = ['curl']", "claude.args = ['--effort', 'high']"):
        repo_file(fleet, f"{line}\n")
        assert "holdfast trust" in fleet.cli("add", "x", "--agent", "claude", code=None).stderr
        assert fleet.json("ps", "--json", "--all") == []
    repo_file(fleet, "permissions.allow = ['curl']\n")
    fleet.cli("trust", "--yes")
    fleet.up()
    assert "Bash(curl:*)" in command_of(fleet, fleet.add("x", "--agent", "claude"))


def test_init_lets_agents_run_the_gate(fleet: Fleet) -> None:
    install(fleet, "claude")
    (fleet.repo / "Makefile").write_text("test:\n\ttrue\n")
    fleet.git("add", "Makefile")
    fleet.git("commit", "-qm", "Makefile")
    said = fleet.cli("init", "--yes").stdout
    assert 'permissions.allow = ["make test"]' in said
    fleet.up()
    assert "Bash(make test:*)" in command_of(fleet, fleet.add("x", "--agent", "claude"))
    (fleet.repo / "holdfast.toml").unlink()
    assert "permissions.allow" not in fleet.cli("init", "--gate", "make a && make b").stdout, "no plain command"


def test_doctor_and_init_tell_that_claude_ignores_a_repositorys_own_list(fleet: Fleet) -> None:
    """F3: the reason was one line on the CLI's standard error."""
    install(fleet, "claude")
    rules = fleet.repo / ".claude" / "settings.json"
    rules.parent.mkdir()
    rules.write_text(json.dumps({"permissions": {"allow": ["Bash(make lint:*)"]}}))
    words = f"does not trust {fleet.repo}, so it ignores the commands that .claude/settings.json allows there"
    assert words in fleet.cli("init").stdout
    assert words in fleet.doctor()
    state = fleet.root / "user" / ".claude.json"
    state.parent.mkdir(exist_ok=True)
    state.write_text(json.dumps({"projects": {str(fleet.repo): {"hasTrustDialogAccepted": True}}}))
    assert fleet.env["HOME"] == str(state.parent)
    assert words not in fleet.doctor()
