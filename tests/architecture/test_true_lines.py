"""Lines of the pages that were false once, compared with the code that they describe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from holdfast.agents.common.environment import ALLOWED
from holdfast.agents.registry import AGENTS
from holdfast.cli.help import front_page
from holdfast.cli.help.front_page import _PAGES, _REFERENCES, topics
from holdfast.config.settings import CLI_AGENTS, SETTINGS

ROOT = Path(__file__).resolve().parents[2]
# Words of the four systems before Holdfast, with which their authors look for their ideas.
WORDS_OF_ORIGIN = (
    *("preserveOnFailure", "maxResumeAttempts", "sessionRecovery", "onAgentTerminated", "health_check_failed"),
    *("WorktreeGuard", "sweep_stale", "CrashRecoveryManager", "CrashAction", "crash window", "clear_assignees"),
    *("layers 0 to 3", "resumeAttempts", "cleanupOnComplete", "enableHealthCheck", "auto_restart_enabled"),
)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len(read("README.md").splitlines()) <= 120


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_test_is_not_said_to_run_everything(page: str) -> None:
    """`make test` plays samples; `make test-all`, `test-strict` and `test-agents` have the rest."""
    text = " ".join(read(page).split())
    assert "`make test` runs every check" not in text
    assert "samples" in text[text.index("`make test` runs") :][:150]


def test_the_variables_of_agents_are_on_the_page() -> None:
    """Each name that passes by default is named, and the ssh agent wherever the environment is described."""
    page = read("docs/howto/what-an-agent-sees.md")
    named = set(re.findall(r"`([A-Z][A-Z_0-9*]+)`", page))
    assert {name for name in ALLOWED if name.isupper()} <= named
    assert "SSH_AUTH_SOCK" in ALLOWED
    for other in ("docs/faq.md", "docs/security.md"):
        assert "`SSH_AUTH_SOCK`" in read(other), other


def test_the_time_until_an_agent_counts_as_stuck() -> None:
    quiet = {name for name in CLI_AGENTS if AGENTS[name].longest_quiet_answer}
    assert {AGENTS[name].longest_quiet_answer for name in quiet} == {600.0}
    assert set(re.findall(r"\(([a-z, ]+)\)", SETTINGS["health.stuck_after"].meaning)[0].split(", ")) == quiet
    assert SETTINGS["health.stuck_after"].default == 300.0
    assert "after 5 minutes without a sign of life (10 for CLIs that print only at the end)" in read("README.md")


def test_purge_keeps_the_files_of_settings() -> None:
    text = " ".join(read("docs/faq.md").split())
    assert "except your branches, your `config.toml` and each `holdfast.toml`" in text


@pytest.mark.parametrize("word", WORDS_OF_ORIGIN)
def test_authors_find_their_ideas_by_their_own_words(word: str) -> None:
    assert word in read("docs/origins.md")


def test_an_installed_user_has_every_topic() -> None:
    """The wheel includes exactly the pages that `holdfast help TOPIC` prints."""
    included = tomllib.loads(read("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    pages = {f"docs/{name}.md" for name in _PAGES} | {f"docs/reference/{name}.md" for name in _REFERENCES}
    assert set(included) == pages | {"docs/howto"}
    assert all(target == f"holdfast/{source}" and (ROOT / source).exists() for source, target in included.items())


def test_the_wheel_has_the_pages(tmp_path: Path) -> None:
    """The wheel as pipx installs it: each topic's page is a file in it, and so are the queries of the store."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = Path(front_page.__file__).parents[2]
    missing = [topic for topic, path in topics().items() if f"holdfast/{os.path.relpath(path, ROOT)}" not in names]
    assert missing == []
    sources = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert [str(path) for path in sources if f"holdfast/{path.relative_to(package)}" not in names] == []
