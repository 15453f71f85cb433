"""A fleet per test: its own home, its own repository, real processes; nothing may be left when it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet import Fleet, processes_of

from holdfast.processes.groupbases import Bases


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    made.close()
    left = {}
    deadline = time.monotonic() + 10
    while left := processes_of(tmp_path):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if made.home.is_dir():
        Bases(str(made.home)).abandon()
    assert not left, f"the test left processes behind: {left}"
