"""What `doctor` says about agents' CLIs, with stand-ins for them in PATH."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.clis import fake_cli
from tests.fleet import Fleet


def about(fleet: Fleet, *, code: int = 0) -> dict[str, dict[str, Any]]:
    """Agent → what doctor found of it."""
    rows = [json.loads(line) for line in fleet.cli("doctor", "--json", code=code).stdout.splitlines()]
    return {row["data"]["agent"]: row for row in rows if row["what"] == "agents" and "agent" in (row["data"] or {})}


def test_doctor_probes_every_cli_and_says_what_to_do(fleet: Fleet) -> None:
    """Issue 6: binary, version against the tested range, login without spending; a queued task's need is a problem."""
    tools, user = fleet.root / "tools", fleet.root / "user"
    asked = fleet.root / "asked"
    for name, version in (("claude", "2.1.325 (Claude Code)"), ("codex", "codex-cli 0.1.0"), ("gemini", "99.0.0")):
        cli = fake_cli(tools, name, version=version)
        cli.write_text(cli.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\necho {name} >> {asked}\n"))
    fleet.env["PATH"] = f"{tools}:/usr/bin:/bin"
    (user / ".claude").mkdir()
    (user / ".claude" / ".credentials.json").write_text("{}")
    config = user / ".config" / "holdfast" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        'gemini.binary = "~/nowhere/gemini"\n'
        '[accounts.claude.work]\nconfig_dir = "~/.claude-work"\n'
        '[accounts.claude.key]\nenv = { ANTHROPIC_API_KEY = "env:NOT_THERE" }\n'
        '[accounts.codex.gateway]\nbase_url = "http://127.0.0.1:1"\nenv = { OPENAI_API_KEY = "env:HOME" }\n'
    )
    found = about(fleet)
    claude, codex, gemini = found["claude"], found["codex"], found["gemini"]
    assert (claude["data"]["path"], claude["data"]["version"]) == (str(tools / "claude"), "2.1.325")
    logins = {login["account"]: login for login in claude["data"]["logins"]}
    assert logins["default"]["is_seen"] is True
    assert logins["work"]["is_seen"] is False
    assert f"CLAUDE_CONFIG_DIR={user}/.claude-work claude" in logins["work"]["text"]
    assert "NOT_THERE" in logins["key"]["text"]
    assert codex["level"] == "note"
    assert "older than any tested version" in codex["text"]
    assert "log in with `codex login`" in codex["text"]
    assert "login of account gateway: by the variable OPENAI_API_KEY" in codex["text"]
    assert gemini["level"] == "note"
    assert f"names {user}/nowhere/gemini, which is not a program" in gemini["text"]
    assert sorted(asked.read_text().split()) == ["claude", "codex"]

    fleet.add("x", "--agent", "gemini", env={"HOLDFAST_GEMINI_BINARY": "/bin/true"})  # it is uninstalled afterwards
    found = about(fleet, code=1)
    assert found["gemini"]["level"] == "problem"
    assert "1 unfinished task(s) need it" in found["gemini"]["text"]
    (tools / "codex").write_text((tools / "codex").read_text().replace("0.1.0", "9.9.9"))  # as long, at the same place
    assert "newer than any tested version" in about(fleet, code=1)["codex"]["text"]
    # Both before there was a home, both once more when there was one, then only the one that has changed.
    assert asked.read_text().split().count("claude") == 2
    assert asked.read_text().split().count("codex") == 3
    assert (fleet.home / "clis.json").exists()


def test_login_by_variable_and_rules_of_root_are_told(tmp_path: Path) -> None:
    """Issue 6: what can be told without asking a server, per account; why a mode is refused here."""
    from holdfast.agents.claude import CLAUDE
    from holdfast.api.home.agent_clis import AgentCli, describe_permissions, logins
    from holdfast.config.layers import merge_layers
    from holdfast.config.read_file import read_settings_file

    cli = AgentCli(agent=CLAUDE, wanted="claude", is_chosen=False, path="/bin/claude", said="2.1.325")
    settings = merge_layers([])
    [state] = logins(cli, settings, {"ANTHROPIC_API_KEY": "sk-secret", "CLAUDE_CONFIG_DIR": str(tmp_path)})
    assert (state.is_seen, state.text) == (True, "by the variable ANTHROPIC_API_KEY")
    [state] = logins(cli, settings, {"CLAUDE_CONFIG_DIR": str(tmp_path)})
    assert state.is_seen is False
    (tmp_path / ".credentials.json").touch()
    [state] = logins(cli, settings, {"CLAUDE_CONFIG_DIR": str(tmp_path)})
    assert (state.is_seen, state.text) == (True, f"in {tmp_path}/.credentials.json")
    (tmp_path / "config.toml").write_text('[accounts.claude.work]\nconfig_dir = "/nowhere"\n')
    more = merge_layers([read_settings_file(str(tmp_path / "config.toml"), of_repository=False)])
    states = logins(cli, more, {"ANTHROPIC_API_KEY": "sk-secret"})
    assert [(state.account, state.is_seen) for state in states] == [("default", True), ("work", False)]
    assert describe_permissions(cli)["full"] == "--dangerously-skip-permissions"
