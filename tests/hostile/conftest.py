"""Stages for hostile trees: one per tier."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet import Fleet
from tests.hostile.stage import TIERS, Stage, staged


@pytest.fixture(params=TIERS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with staged(str(request.param), tmp_path) as made:
        yield made


@pytest.fixture
def plain_stage(tmp_path: Path) -> Iterator[Stage]:
    with staged("subreaper", tmp_path) as made:
        yield made


@pytest.fixture
def other_users_fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet of a user without rights (skips by name where there can be none)."""
    with staged("unprivileged", tmp_path) as made:
        yield made.fleet
