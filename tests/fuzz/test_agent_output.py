"""Spoilt recordings of real agents: nothing raises, no failure becomes a success, no words of a model become a limit.

The seed is new for every run and printed with each finding; see tests/fuzz/test_inputs.py for how one is seen again.
HOLDFAST_FUZZ_COUNT sets how many cases are played.
"""

from __future__ import annotations

import os
import traceback

import pytest
from tests.fuzz.agent_output import broken, drawn
from tests.fuzz.test_inputs import CASE, SEED

COUNT = int(os.environ.get("HOLDFAST_FUZZ_COUNT", "800"))
SHARDS = 2


@pytest.mark.parametrize("shard", range(1 if CASE else SHARDS))
def test_no_spoilt_output_is_taken_for_something_else(shard: int) -> None:
    """R-TERM-08: nothing ends as success that is not; and nothing of what a model says is believed."""
    size = -(-COUNT // SHARDS)
    numbers = [int(CASE)] if CASE else range(shard * size, (shard + 1) * size)
    found = []
    for number in numbers:
        try:
            problem = broken(drawn(SEED, number))
        except Exception:  # noqa: BLE001  # whatever it is, it is the finding
            problem = traceback.format_exc()
        if problem is not None:
            found.append(problem)
            print(f"HOLDFAST_FUZZ_SEED={SEED} HOLDFAST_FUZZ_CASE={number} .venv/bin/pytest {__file__}\n{problem}\n")
        if len(found) >= 20:
            break
    assert not found, f"{len(found)} cases broke a rule (seed {SEED}); the commands above bring them back"
