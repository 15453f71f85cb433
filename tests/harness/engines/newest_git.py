"""The newest git, built by scripts/setup_git.sh. Tests that need it skip themselves where it could not be had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Read at import: the campaign gives its own process another HOME later.
CACHE = os.environ.get("HOLDFAST_GIT_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME") or "/tmp", ".cache"), "holdfast-git"
)


def find_newest_git() -> tuple[str | None, str]:
    """The directory of its programs, or None and the reason."""
    programs = Path(CACHE, "newest", "bin")
    if os.access(programs / "git", os.X_OK):
        return str(programs.resolve()), ""
    try:
        return None, Path(CACHE, "skipped").read_text(encoding="utf-8").strip()
    except OSError:
        return None, "it is not built: scripts/setup_git.sh"


def newest_git() -> str:
    found, reason = find_newest_git()
    if found is None:
        pytest.skip(f"the newest git: {reason}")
    return found
