"""Every benchmark in its smallest form, so that none can rot. The numbers mean nothing at this size."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.__main__ import BENCHMARKS
from bench.figures import SMOKE, Figure
from bench.render import TITLES
from tests.sampling import sampled

MAY_BE_NOTHING = ("survivors", "% of a core")  # the second: a smoke's rest is shorter than the pause between two beats


@pytest.mark.parametrize("name", sampled(BENCHMARKS, keep=3))
def test_a_benchmark_runs_and_returns_numbers(name: str, tmp_path: Path) -> None:
    figures = BENCHMARKS[name](SMOKE, tmp_path)
    assert figures
    for figure in figures:
        assert figure.name in TITLES, "a figure without a title cannot be rendered"
        if figure.name.startswith("store.dbos") or (figure.name.startswith("peers.") and "holdfast" not in figure.name):
            assert figure.skipped == "not part of this run"
        else:
            assert figure.value is not None
            assert figure.value > 0 or figure.unit in MAY_BE_NOTHING


def test_a_goal_is_met_from_its_own_side() -> None:
    fast = Figure(name="x", value=9.0, unit="×", goal=8.0, at_least=True)
    slow = Figure(name="x", value=9.0, unit="ms", goal=8.0)
    assert (fast.met, slow.met) == (True, False)
