"""A fleet per test: its own home, its own repository, real processes; nothing may be left when it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.fleet import Fleet, processes_of
from tests.json_outputs import check_events

from holdfast.processes.cgroups import CgroupRecord

# What an example takes is the machine's business, where others are at work: no deadline. And the same examples in every
# run: what a new one finds is for the campaigns (`make faults-long` gives a seed), not for who changed something else.
settings.register_profile(
    "ours",
    deadline=None,
    derandomize="HOLDFAST_FUZZ_SEED" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ours")

# A job in the background (`make test &`, `nohup`) has these signals ignored, and so would everything that tests start.
# A handler is reset by exec, so children begin with the default; this process continues as before.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda _number, _frame: None)

# pytest deletes the directories of earlier sessions, a frame per level. A test that failed may have left a deep tree.
sys.setrecursionlimit(10_000)


@pytest.fixture(autouse=True)
def _home_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code under test that asks for the home, in the test's own process, never finds the user's."""
    if "HOLDFAST_HOME" not in os.environ:
        monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path_factory.getbasetemp() / "default-home"))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    made.close()
    left = {}
    deadline = time.monotonic() + 30
    while left := processes_of(tmp_path):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if made.home.is_dir():
        CgroupRecord(str(made.home)).abandon()
    assert not left, f"the test left processes behind: {left}"
    check_events(made.home)
