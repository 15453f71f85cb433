"""Spoilt recordings of real agents: nothing raises, no failure becomes a success, no words of a model become a limit.

The campaign plays thousands (`--only fuzz`, kind `streams`). The seed is new for every run, printed with each finding:
`HOLDFAST_FUZZ_SEED=… HOLDFAST_FUZZ_CASE=… pytest tests/fuzz/test_agent_output.py` brings one back.
"""

from __future__ import annotations

import os
import random
import traceback

from tests.harness.fuzz.streams import broken, drawn
from tests.sampling import amount

SEED = os.environ.get("HOLDFAST_FUZZ_SEED", "7")
CASE = os.environ.get("HOLDFAST_FUZZ_CASE")
COUNT = int(os.environ.get("HOLDFAST_FUZZ_COUNT", amount(250, in_all=2000)))


def test_no_spoilt_output_is_taken_for_something_else() -> None:
    """R-TERM-08: nothing ends as success that is not; and nothing of what a model says is believed."""
    found = []
    for number in [int(CASE)] if CASE else range(COUNT):
        try:
            problem = broken(drawn(random.Random(f"{SEED}:{number}")))
        except Exception:  # noqa: BLE001  # whatever it is, it is the finding
            problem = traceback.format_exc()
        if problem is not None:
            found.append(problem)
            print(f"HOLDFAST_FUZZ_SEED={SEED} HOLDFAST_FUZZ_CASE={number} .venv/bin/pytest {__file__}\n{problem}\n")
        if len(found) >= 20:
            break
    assert not found, f"{len(found)} cases broke a rule (seed {SEED}); the commands above bring them back"
