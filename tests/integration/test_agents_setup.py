"""scripts/setup_agents.sh where it cannot install: it says so in one line, fails nothing, and the tests skip loudly."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests import agents_cache

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "setup_agents.sh"


def test_what_cannot_be_installed_is_skipped_by_name_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm = tmp_path / "path" / "npm"
    npm.parent.mkdir()
    npm.write_text("#!/bin/sh\necho 'npm error code EAI_AGAIN' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("HOLDFAST_AGENTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{npm.parent}:{os.environ['PATH']}")
    done = subprocess.run([SCRIPT, "claude", "nobody"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "setup: claude is not installed, its tests will be skipped: npm error code EAI_AGAIN",
        "setup: no agent CLI is called nobody",
    ]
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []
    with pytest.raises(pytest.skip.Exception, match="CLAUDE IS NOT TESTED: npm error code EAI_AGAIN"):
        agents_cache.cli_path("claude")
    monkeypatch.delenv("HOLDFAST_TEST_AGENTS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="make test-agents"):
        agents_cache.cli_path("gemini")


def test_every_cli_is_pinned_to_the_version_that_was_measured() -> None:
    assert {name: agents_cache.pinned_version(name) for name in agents_cache.ALL} == {
        "claude": "2.1.325",
        "codex": "0.166.0",
        "gemini": "0.61.0",
        "opencode": "1.18.33",
        "qwen": "0.24.4",
        "copilot": "1.0.102",
        "aider": "0.86.2",
    }
