"""Codex's own sandbox, by permission: only the real one can show it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents_cache import wanted
from tests.live.stage import PATIENCE, Stage

from holdfast.testing.stub.catalogue import OUT_FILE, OUT_TEXT

pytestmark = pytest.mark.agents


def test_codex_is_kept_to_its_permission(stage: Callable[[str], Stage]) -> None:
    """`edit` writes its workspace, which Holdfast commits, but nothing else; `read` writes nothing."""
    if len(wanted()) <= 2:
        pytest.skip("only `make test-agents` does this one")
    on = stage("codex")
    outside = Path(f"/var/tmp/holdfast-{os.getpid()}")  # its sandbox lets it write /tmp
    escape = f"shell/touch {outside}"
    on.settle("tool", escape)
    on.fleet.up("--agents", 3)
    edits, reads, escapes = (
        on.add("tool", "--permission", "edit"),
        on.add("tool", "--permission", "read"),
        on.add(escape, "--permission", "edit"),
    )
    shown = on.fleet.wait_state(edits, "completed", "failed", patience=PATIENCE)
    if "bwrap" in str(shown["reason"]):
        pytest.skip(f"CODEX'S SANDBOX IS NOT TESTED: {shown['reason']}")
    assert on.fleet.file_on_branch(on.wait_completed(edits)["branch"], OUT_FILE).strip() == OUT_TEXT
    for task in (reads, escapes):
        [run] = on.wait_completed(task)["runs"]
        assert run["outcome"] == "completed"
    assert on.fleet.git("log", "--format=%s", f"main..{on.fleet.show(reads)['branch']}", check=False) == ""
    assert on.stub.requests(*escape.split("/"))[-1].results == 1, "it tried"
    assert not outside.exists()
