"""The real agent CLIs that scripts/setup_agents.sh installed: where they are, or a loud skip with the reason."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

LOCKS = Path(__file__).resolve().parents[1] / "scripts" / "agents"
# Quick ones, driven by `make test`. The rest costs seconds a start: `make test-agents` sets HOLDFAST_TEST_AGENTS=all.
DEFAULT = ("claude", "codex")
ALL = (*DEFAULT, "gemini", "opencode", "qwen", "copilot", "aider")


def folder_of_cache() -> Path:
    if own := os.environ.get("HOLDFAST_AGENTS_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-agents"


def pinned_version(name: str) -> str:
    if name == "aider":
        lock, pattern = LOCKS / name / "requirements.lock", r"^aider-chat==(\S+)"
    else:
        lock, pattern = LOCKS / name / "package.json", r'"dependencies": \{"[^"]+": "([^"]+)"\}'
    found = re.search(pattern, lock.read_text(), re.M)
    assert found, f"{lock} names no version"
    return found[1]


def wanted() -> tuple[str, ...]:
    """The CLIs that this test run drives."""
    asked = os.environ.get("HOLDFAST_TEST_AGENTS", "")
    if not asked:
        return DEFAULT
    return ALL if asked == "all" else tuple(asked.split())


def cli_path(name: str) -> str:
    """The installed CLI; skips the test, loudly, if this run does not drive it or it could not be installed."""
    if name not in wanted():
        pytest.skip(f"{name.upper()} IS NOT TESTED: only `make test-agents` (HOLDFAST_TEST_AGENTS=all) drives it")
    folder = folder_of_cache() / f"{name}-{pinned_version(name)}"
    program = folder / "bin" / name
    if program.exists():
        return str(program)
    reason = folder.with_name(f"{folder.name}.skipped")
    why = reason.read_text().strip() if reason.exists() else f"it is not installed; scripts/setup_agents.sh {name}"
    pytest.skip(f"{name.upper()} IS NOT TESTED: {why}")
