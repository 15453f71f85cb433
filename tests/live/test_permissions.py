"""`permissions.allow` with real CLIs: in mode `edit` the agent runs the tests. Where it may not, people are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.live import stage as stages
from tests.live.stage import Stage

pytestmark = pytest.mark.agents


def test_claude_runs_what_is_allowed_and_nothing_else(
    stage: Callable[[str], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F3: without the setting Claude Code is refused `make test`, reports success, and every view says so."""
    monkeypatch.setitem(stages.ADDRESSES, "tests", ("shell", "make test"))
    monkeypatch.setitem(stages.ADDRESSES, "other", ("shell", "make other"))
    on = stage("claude")
    (on.fleet.repo / "Makefile").write_text("test other:\n\techo $@ > ran.txt\n")
    on.fleet.git("add", "Makefile")
    on.fleet.git("commit", "-qm", "Makefile")
    on.settle("tests", permissions__mode="edit")
    on.fleet.up("--agents", 1)
    refused = on.fleet.shown(on.run("tests"))
    assert (refused["changed_files"], refused["refused_calls"]) == (0, 1)
    assert refused["refused_first"] == ["Bash: make test"]

    on.settle("tests", "other", permissions__mode="edit", permissions__allow=["make test"])
    done = on.fleet.shown(on.run("tests"))
    assert (done["changed_files"], done["refused_calls"]) == (1, 0)
    assert on.fleet.file_on_branch(done["branch"], "ran.txt") == "test"
    assert on.fleet.shown(on.run("other"))["refused_first"] == ["Bash: make other"]


def test_codex_runs_the_tests_in_its_sandbox(stage: Callable[[str], Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sandbox runs every command in mode `edit`, so the setting changes nothing, and its arguments are taken."""
    monkeypatch.setitem(stages.ADDRESSES, "tests", ("shell", "make test"))
    on = stage("codex")
    (on.fleet.repo / "Makefile").write_text("test:\n\techo $@ > ran.txt\n")
    on.fleet.git("add", "Makefile")
    on.fleet.git("commit", "-qm", "Makefile")
    on.settle(
        "tests",
        permissions__mode="edit",
        permissions__allow=["make test"],
        codex__args=["-c", "hide_agent_reasoning=true"],
    )
    on.fleet.up("--agents", 1)
    said = on.fleet.cli("run", "play tests", "--agent", "codex", "--account", "tests", code=None, timeout=180)
    if "user namespaces" in said.stderr + said.stdout or "sandbox" in said.stdout:
        pytest.skip("CODEX IS NOT TESTED HERE: its sandbox cannot start")
    assert said.returncode == 0, f"{said.stdout}\n{said.stderr}"
    assert "It changed 1 file." in said.stdout
