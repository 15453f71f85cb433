"""A container engine that goes wrong: the family `engine` of the fault campaign, one case of it."""

from __future__ import annotations

import pytest
from tests.faults.test_campaign import campaign
from tests.faults.test_matrix import SEED
from tests.harness.campaign.engines import EngineFaults

CASES = ("start:1:killed", "create:1:lost", "create:1:error", "attach:1:kill", "remove:1:kill")


def test_a_container_engine_that_goes_wrong_is_survived() -> None:
    """R-TERM-10, R-CLEAN-05: one case (by HOLDFAST_SEED), against a real dockerd."""
    if why := EngineFaults().absent():
        pytest.skip(f"NOT RUN: {why}")
    done = campaign("--replay", f"engine:container-success/engine/{CASES[SEED % len(CASES)]}")
    assert done.stdout.endswith("held\n"), done.stdout
