"""What the await walks share: a workshop, the test's own git configuration, and witnesses that are not Holdfast."""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet import Fleet, processes_of
from tests.integration.conftest import workshop

from holdfast.processes.children import PR_SET_CHILD_SUBREAPER

__all__ = ["workshop"]


@pytest.fixture(autouse=True)
def own_git_configuration(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "fleet" in request.fixturenames:
        fleet: Fleet = request.getfixturevalue("fleet")
        monkeypatch.setenv("HOME", fleet.env["HOME"])


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    """As in a supervisor: what a killed helper leaves behind becomes our child, so that its end can be waited for."""
    system = ctypes.CDLL(None)
    system.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    system.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def assert_no_process(fleet: Fleet) -> None:
    """No helper may live on when its caller has returned, not even for a moment."""
    left = processes_of(fleet.root)
    assert not left, f"processes live on: {left}"


def assert_free(lock: Path) -> None:
    """Nobody holds that lock."""
    if not lock.exists():
        return
    fd = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(fd)
