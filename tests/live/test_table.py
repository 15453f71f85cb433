"""Every failure of a provider gets the right outcome, soon, with every CLI (docs/agents.md is made of the result)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from tests.agents_cache import ALL
from tests.live.stage import Stage
from tests.live.table import BROKEN_STREAMS, EXPECTED, LOST, MEASURED, ROWS, keep, measure, problems

from holdfast.core.runs.outcome import Outcome

MAY_SUCCEED = {(name, row) for name in ("claude", "aider") for row in BROKEN_STREAMS}


@pytest.mark.agents
@pytest.mark.parametrize("name", ALL)
def test_the_table_of_a_real_agent(name: str, stage: Callable[[str], Stage]) -> None:
    """R-TERM-04: no scenario outlasts its stuck threshold, and nothing ends as success that is none."""
    if "HOLDFAST_TEST_AGENTS" not in os.environ:
        pytest.skip("only `make test-agents` measures the table")
    found = measure(stage(name))
    assert not problems(name, found)
    keep(name, found)


@pytest.mark.parametrize("name", ALL)
def test_only_what_is_a_success_may_be_one(name: str) -> None:
    """Holds the expected table and what was measured last against the issue itself."""
    assert tuple(EXPECTED[name]) == tuple(row for row in ROWS if (name, row) != ("aider", LOST))
    for row, cell in EXPECTED[name].items():
        outcomes = cell if isinstance(cell, tuple) else (cell,)
        assert (Outcome.COMPLETED in outcomes) == (row in ("ok", "tool") or (name, row) in MAY_SUCCEED)
    kept = MEASURED / f"{name}.json"
    if kept.exists():
        rows = json.loads(kept.read_text())["rows"]
        assert not problems(name, {row: {**cell, "reason": ""} for row, cell in rows.items()})
