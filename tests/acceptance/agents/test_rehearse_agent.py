"""`holdfast rehearse --agent`: a real CLI against the stub of its provider, and nothing of it stays."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.agents_cache import cli_path
from tests.fleet import Fleet


def having(*names: str) -> dict[str, str]:
    """An environment with these CLIs in PATH, as their users have them; and a login that must not be used."""
    folders = [os.path.dirname(cli_path(name)) for name in names]
    return {"PATH": os.pathsep.join([*folders, os.environ["PATH"]]), "ANTHROPIC_API_KEY": "not-for-rehearsals"}


@pytest.mark.agents
def test_a_limit_and_a_file_are_rehearsed_with_claude(fleet: Fleet, tmp_path: Path) -> None:
    """The outcome, the time to it and what would follow; neither the user's settings nor their home are touched, and
    no other CLI is started."""
    env = {**having("claude"), "HOLDFAST_HEALTH_MAX_RUNTIME": "1s", "HOLDFAST_AGENT": "nobody"}
    other = tmp_path / "gemini"
    other.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    other.chmod(0o755)
    env["PATH"] = f"{tmp_path}{os.pathsep}{env['PATH']}"
    limited = fleet.cli("rehearse", "--agent", "claude", "--scenario", "usage-limit/600", env=env, code=75).stdout
    first, why, following, *_ = limited.splitlines()
    assert first.startswith("claude, usage-limit/600: usage_limited after ")
    assert "limit" in why
    assert following.startswith(
        "What Holdfast does next: it continues by itself after "
    )  # until the reset, not the default
    assert "10m" in following or "9m" in following
    assert "Nothing was left behind." in limited
    assert "health.stuck_after = 20s" in limited
    done = json.loads(fleet.cli("rehearse", "--agent", "claude", "--json", env=env).stdout)
    assert (done["state"], done["outcome"], done["requests"], done["left_behind"]) == ("completed", "completed", 2, [])
    assert done["seconds"] > 0
    assert not fleet.home.exists()
    assert not (tmp_path / "started").exists()
    assert fleet.branches() == []


@pytest.mark.agents
def test_a_provider_that_is_overloaded_is_rehearsed_with_codex(fleet: Fleet) -> None:
    again = json.loads(
        fleet.cli("rehearse", "--agent", "codex", "--scenario", "529", "--json", env=having("codex"), code=75).stdout
    )
    assert (again["state"], again["outcome"]) == ("queued", "overloaded")
    assert again["next"].startswith("it runs the task again after ")


def test_what_cannot_be_rehearsed_is_said_before_anything_starts(fleet: Fleet, tmp_path: Path) -> None:
    unknown = fleet.cli("rehearse", "--agent", "claude", "--scenario", "usage", code=2).stderr
    assert "no scenario 'usage'" in unknown
    assert "usage-limit" in unknown
    assert "The known ones are claude" in fleet.cli("rehearse", "--agent", "nobody", code=2).stderr
    assert "either a scenario file" in fleet.cli("rehearse", code=2).stderr
    assert "either a scenario file" in fleet.cli("rehearse", "x.toml", "--agent", "claude", code=2).stderr
    missing = {"HOLDFAST_CLAUDE_BINARY": str(tmp_path / "no-claude")}
    assert "is not installed here" in fleet.cli("rehearse", "--agent", "claude", env=missing, code=69).stderr
