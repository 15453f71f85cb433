"""Codex's own sandbox, by permission: only the real one can show it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents_cache import wanted
from tests.live.stage import ADDRESSES, PATIENCE, Stage

from holdfast.rehearsal.stub.scenarios import OUT_FILE, OUT_TEXT

pytestmark = pytest.mark.agents


def test_codex_is_kept_to_its_permission(stage: Callable[[str], Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    """`edit` writes its workspace, which Holdfast commits, and its own TMPDIR, but nothing else, not even in /tmp;
    `read` writes nothing."""
    on = stage("codex")
    outside = [
        Path(f"/var/tmp/holdfast-{os.getpid()}"),
        Path(f"/tmp/holdfast-{os.getpid()}"),
        on.fleet.root / "escaped",
    ]
    command = f"touch {' '.join(map(str, outside))}; touch $TMPDIR/own && echo $TMPDIR > place.txt"
    monkeypatch.setitem(ADDRESSES, "escape", ("shell", command))
    on.settle("tool", "escape")
    config = on.fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    config.write_text(config.read_text().replace(f', TMPDIR = "{on.scratch}"', ""))
    on.fleet.up("--agents", 3)
    edits, reads, escapes = (
        on.add("tool", "--permission", "edit"),
        on.add("tool", "--permission", "read"),
        on.add("escape", "--permission", "edit"),
    )
    shown = on.fleet.wait_state(edits, "completed", "failed", patience=PATIENCE)
    if "bwrap" in str(shown["reason"]):
        pytest.skip(f"CODEX'S SANDBOX IS NOT TESTED: {shown['reason']}")
    assert on.fleet.file_on_branch(on.wait_completed(edits)["branch"], OUT_FILE).strip() == OUT_TEXT
    for task in (reads, escapes):
        [run] = on.wait_completed(task)["runs"]
        assert run["outcome"] == "completed"
    assert on.fleet.git("log", "--format=%s", f"main..{on.fleet.show(reads)['branch']}", check=False) == ""
    assert on.stub.requests("shell", command)[-1].results == 1, "it tried"
    assert not [path for path in outside if path.exists()]
    place = on.fleet.file_on_branch(on.fleet.show(escapes)["branch"], "place.txt").strip()
    assert place.startswith(f"{on.fleet.home}/runs/{on.fleet.show(escapes)['runs'][0]['id']}/")


def test_codex_is_not_made_to_trust_a_repository(stage: Callable[[str], Stage]) -> None:
    """The user's configuration is as it was, and what the repository's own names is started in `full` only."""
    if len(wanted()) <= 2:
        pytest.skip("only `make test-agents` does this one")
    on = stage("codex")
    started = on.fleet.root / "started"
    own = on.fleet.repo / ".codex" / "config.toml"
    own.parent.mkdir()
    own.write_text(f'[mcp_servers.own]\ncommand = "touch"\nargs = ["{started}"]\n')
    on.fleet.git("add", "-A")
    on.fleet.git("commit", "-qm", "its own configuration")
    on.settle("tool")
    on.fleet.up("--agents", 1)
    for mode, is_trusted in (("edit", False), ("full", True)):
        on.fleet.wait_state(on.add("tool", "--permission", mode), "completed", "failed", patience=PATIENCE)
        assert on.stub.requests("tool"), "it never came to its model"
        assert started.exists() is is_trusted
    config = on.config_dir / "config.toml"
    assert not config.exists() or "trust" not in config.read_text()
