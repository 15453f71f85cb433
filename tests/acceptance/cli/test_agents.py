"""`holdfast agents`: every agent that this version drives, with program, version and login."""

from __future__ import annotations

import json

from tests.fleet import Fleet

from holdfast.config.settings import CLI_AGENTS


def test_every_agent_is_listed_with_what_is_installed(fleet: Fleet) -> None:
    """One is installed and the default; the others say which program is missing. No home is made."""
    program = fleet.root / "bin" / "codex"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\necho codex-cli 0.166.0\n")
    program.chmod(0o755)
    env = {"HOLDFAST_CODEX_BINARY": str(program), "HOLDFAST_AGENT": "codex"}
    env |= {f"HOLDFAST_{name.upper()}_BINARY": f"no-{name}" for name in CLI_AGENTS if name != "codex"}
    lines = fleet.cli("agents", env=env).stdout.splitlines()
    assert lines[0].split() == ["AGENT", "VERSION", "LOGIN", "PROGRAM"]
    rows = {line.split()[0]: line for line in lines[1 : 1 + len(CLI_AGENTS)]}
    assert set(rows) == set(CLI_AGENTS)
    assert rows["codex"].startswith("codex (default)")
    assert rows["codex"].split()[2] == "0.166.0"
    assert rows["codex"].endswith(str(program))
    for name in set(CLI_AGENTS) - {"codex"}:
        assert rows[name].endswith(f"no-{name} is not installed"), rows[name]
    assert lines[-1].startswith("Any other command can be an agent")
    assert not fleet.home.exists()

    printed = fleet.cli("agents", "--json", env=env).stdout.splitlines()
    found = {row["agent"]: row for row in map(json.loads, printed)}
    assert found["codex"]["is_default"] is True
    assert (found["codex"]["version"], found["codex"]["path"]) == ("0.166.0", str(program))
    assert found["claude"]["path"] is None
    assert "No default agent yet." in fleet.cli("agents", env={**env, "HOLDFAST_AGENT": ""}).stdout
