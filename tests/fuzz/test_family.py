"""The family `fuzz` of the campaign, sampled: `make faults` plays 100,000 inputs of every kind."""

from __future__ import annotations

import re
import time

from tests.faults.test_campaign import campaign
from tests.harness.fuzz.kinds import KINDS
from tests.sampling import ALL, amount

SEED = int(time.time()) if ALL else 7  # a run of every change plays the same; looking for more is the campaign's


def test_no_input_brings_a_traceback() -> None:
    """R-RES-03, promises 1 and 5: whatever is typed, configured, answered or written by an agent is taken or refused in
    one line, and harms nothing. A violation prints its input and the command that brings it back."""
    done = campaign("--only", "fuzz", "--share", amount(1, in_all=10) / 100, "--jobs", 2, "--seed", SEED)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    for kind in KINDS:
        assert re.search(rf"^  {kind} +\d+", done.stdout, re.M), done.stdout
