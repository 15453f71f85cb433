"""The track record of docs/reliability.md names cases and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.harness.campaign.families import FAMILIES
from tests.harness.campaign.track_record import Finding, Found, findings, found

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"(tests/[\w/.]+)(?:::(\w+))?")


FOUND = {
    "security": [f"F{number}" for number in range(16)],
    "attack": [f"D{number}" for number in range(1, 8)],
    "real CLIs": [f"D{number}" for number in range(1, 12)],
    "requirements": [
        *(f"defect-{number}" for number in range(1, 9)),
        *("R-CLEAN-05", "R-TERM-01", "R-TERM-02", "R-TERM-03", "R-TERM-06", "R-TERM-14"),
        *("R-TREE-01", "R-TREE-04", "R-TREE-08", "R-TREE-17", "R-CRON-05"),
    ],
}


def test_every_finding_has_its_row() -> None:
    """Issue 18: none of the four reports' findings is left out."""
    rows = findings()
    assert {report: [one.id for one in rows if one.report == report] for report in FOUND} == FOUND
    assert {one.report for one in rows} == set(FOUND)


@pytest.mark.parametrize("one", findings(), ids=lambda one: f"{one.report}-{one.id}")
def test_the_test_of_a_finding_exists(one: Finding) -> None:
    assert one.what
    if not one.test:
        [page] = re.findall(r"docs/[\w/]+\.md", one.fix)
        assert (ROOT / page).exists()
        return
    path, _, name = one.test.partition("::")
    text = (ROOT / path).read_text()
    assert f"def {name}(" in text if name else "def test_" in text, one.test


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
