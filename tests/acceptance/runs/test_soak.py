"""Everything at once, for minutes: only where HOLDFAST_TEST_SOAK says for how many seconds (tests/soak.py)."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.soak import soak

SECONDS = float(os.environ.get("HOLDFAST_TEST_SOAK", "0"))


@pytest.mark.slow
@pytest.mark.skipif(not SECONDS, reason="takes minutes: HOLDFAST_TEST_SOAK=240 plays it")
def test_a_fleet_under_fire_comes_to_rest_with_nothing_lost_leaked_or_run_twice(tmp_path: Path) -> None:
    """R-RES-12, R-CRASH-03, R-CRASH-06, R-CRASH-09: limits, crashes and kill -9 for all, an operator who types all."""
    seed = int(os.environ.get("HOLDFAST_TEST_SOAK_SEED", random.randrange(1 << 31)))
    print(f"seed {seed}")
    assert soak(tmp_path, seed, SECONDS) == []
