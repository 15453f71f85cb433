"""scripts/setup_agents.sh where it cannot install: it says so in one line, fails nothing, and the tests skip loudly."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests import agents_cache

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "setup_agents.sh"


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for the CLIs, and an npm that does what the test writes."""
    program = tmp_path / "path" / "npm"
    program.parent.mkdir()
    monkeypatch.setenv("HOLDFAST_AGENTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("HOLDFAST_TEST_AGENTS", raising=False)
    return program


def set_up(npm: Path, does: str, *names: str) -> list[str]:
    """What the script says on standard error; it never fails."""
    npm.write_text(f"#!/bin/sh\necho called >> {npm}.log\n{does}\n")
    npm.chmod(0o755)
    done = subprocess.run([SCRIPT, *names], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    return done.stderr.splitlines()


def folders(npm: Path) -> list[str]:
    return [path.name for path in (npm.parents[1] / "cache").iterdir() if path.is_dir()]


def test_what_cannot_be_installed_is_skipped_by_name_and_reason(npm: Path) -> None:
    assert set_up(npm, "echo 'npm error code EAI_AGAIN' >&2; exit 1", "claude", "nobody") == [
        "setup: claude is not installed, its tests will be skipped: npm error code EAI_AGAIN",
        "setup: no agent CLI is called nobody",
    ]
    assert folders(npm) == []
    with pytest.raises(pytest.skip.Exception, match="CLAUDE IS NOT TESTED: npm error code EAI_AGAIN"):
        agents_cache.cli_path("claude")
    with pytest.raises(pytest.skip.Exception, match="make test-agents"):
        agents_cache.cli_path("gemini")


def test_what_is_installed_is_the_pinned_version_and_stays(npm: Path) -> None:
    """npm gives old versions where the engine does not fit: what says another version is not taken."""
    codex = "mkdir -p node_modules/.bin; printf '#!/bin/sh\\necho codex-cli %s' > node_modules/.bin/codex"
    [refused] = set_up(npm, f"{codex.replace('%s', '0.20.0')}", "codex")
    assert refused.endswith("codex-cli 0.20.0, not 0.166.0")
    assert folders(npm) == []
    assert set_up(npm, f"{codex.replace('%s', '0.166.0')}", "codex") == []
    said = subprocess.run([agents_cache.cli_path("codex")], capture_output=True, text=True, check=True).stdout
    assert said == "codex-cli 0.166.0\n"
    assert set_up(npm, "exit 1", "codex") == []
    assert Path(f"{npm}.log").read_text().count("called") == 2
    assert [path.name for path in (npm.parents[1] / "cache").iterdir() if path.name.endswith(".skipped")] == []


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
