"""The commands of README, tutorial and runbook, typed one after another with the real Claude Code.

Its provider is the stub on loopback. Each page shows the output of such a play: `make pages` writes it again.
"""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.agents_cache import cli_path
from tests.harness.played_pages import Player, ids_of
from tests.live.played_turns import TURNS

from holdfast.rehearsal.stub import StubServer

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(TURNS)

pytestmark = pytest.mark.agents


@contextmanager
def player(page: str, user: Path, claude: str) -> Iterator[Player]:
    """A new user with git, Claude Code and Holdfast, who has typed nothing yet."""
    bin_folder = user.parent / "bin"
    bin_folder.mkdir()
    (bin_folder / "claude").symlink_to(claude)
    (bin_folder / "holdfast").symlink_to(Path(sys.executable).parent / "holdfast")
    (user / ".claude").mkdir(parents=True)
    env = {
        "PATH": f"{bin_folder}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(user),
        "USER": "ada",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "xterm",
        "NO_COLOR": "1",
        "GIT_PAGER": "cat",
        "TMPDIR": str(user.parent),
    }
    for key, value in (("user.name", "Ada"), ("user.email", "ada@example.org"), ("init.defaultBranch", "main")):
        subprocess.run(["git", "config", "--global", key, value], env=env, check=True)
    with StubServer(script=TURNS[page]) as stub:
        settings = {"env": {"ANTHROPIC_BASE_URL": stub.url("script"), "ANTHROPIC_API_KEY": "dummy"}}
        (user / ".claude" / "settings.json").write_text(json.dumps(settings))
        try:
            yield Player(user, env, ids_of((ROOT / page).read_text(encoding="utf-8")))
        finally:
            subprocess.run(
                [bin_folder / "holdfast", "down", "--now"], env=env, cwd=user, check=False, capture_output=True
            )


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_its_commands_print(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "".join(difflib.unified_diff(text.splitlines(True), play(page).splitlines(True))) == "", (
        "stale: `make pages`"
    )


def play(page: str) -> str:
    """Return the page with the output of a new play. Its place has a short path: tables cut long ones."""
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-page-", ignore_cleanup_errors=True) as folder,
        player(page, Path(folder, "user"), cli_path("claude")) as plays,
    ):
        return plays.play((ROOT / page).read_text(encoding="utf-8"))


def main() -> None:
    """Write the output of a new play into each page, or into those named."""
    for page in sys.argv[1:] or PAGES:
        path = ROOT / page
        new = path.with_suffix(".new")
        new.write_text(play(page), encoding="utf-8")
        os.replace(new, path)
        print(f"played {page}")


if __name__ == "__main__":
    main()
