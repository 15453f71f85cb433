"""The track record of docs/reliability.md names cases and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.harness.campaign.families import FAMILIES
from tests.harness.campaign.track_record import Found, found

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"(tests/[\w/.]+)(?:::(\w+))?")


@pytest.mark.parametrize("one", found(), ids=lambda one: one.bug[:40])
def test_what_would_show_it_again_exists(one: Found) -> None:
    assert all((one.by, one.bug, one.cause, one.fix)), one
    if " " not in one.replay:
        assert one.replay.partition(":")[0] in FAMILIES, one.replay
        return
    for path, name in TEST.findall(one.replay):
        assert (ROOT / path).exists(), one.replay
        assert f"def {name}" in (ROOT / path).read_text() if name else True, one.replay
    for chosen in re.findall(r"-k (\w+)", one.replay):
        file = ROOT / TEST.search(one.replay)[1]  # type: ignore[index]  # what -k chooses from stands before it
        assert chosen in file.read_text(), one.replay
