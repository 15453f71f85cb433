"""Launching, watching and stopping an agent, cancelled at every await: its keeper continues, and is found again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.conftest import assert_free, assert_no_process
from tests.fleet import Fleet
from tests.harness.await_walker import Ended, walk

from holdfast.core.runs.outcome import Cause, ProcessEnd
from holdfast.processes.children import Children
from holdfast.processes.launcher import KeeperProcesses
from holdfast.processes.port import LaunchSpec, LiveRun


class Launching:
    """A run per case."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.root = fleet.root / "runs"
        self.root.mkdir()
        self.processes = KeeperProcesses(str(self.root), Children())
        self._numbers = itertools.count()
        self.run_id = ""

    def next(self, *command: str) -> LaunchSpec:
        self.run_id = f"run{next(self._numbers)}"
        return LaunchSpec(
            run_id=self.run_id,
            argv=command,
            env=self.fleet.env,
            cwd=str(self.fleet.root),
            stdin="",
            timeout=60,
            grace=1,
            fast_grace=1,
            orphan_grace=60,
        )

    async def end_it(self) -> ProcessEnd:
        """What a later supervisor does with what it finds."""
        run = self.processes.find(self.run_id)
        try:
            await run.wait_started()
            run.stop(fast=True)
            return await run.wait_ended()
        finally:
            run.close()

    def assert_over(self) -> None:
        assert_no_process(self.fleet)
        assert_free(self.root / self.run_id / "lock")
        assert (self.root / self.run_id / "empty.json").exists()


@pytest.fixture
def launching(fleet: Fleet) -> Iterator[Launching]:
    made = Launching(fleet)
    asyncio.run(watch(made.processes.launch(made.next("true")), stop=False))  # opens the cradle, which then stays
    yield made
    made.processes.close()


async def watch(run: LiveRun, *, stop: bool) -> ProcessEnd:
    try:
        assert await run.wait_started() is not None
        run.beat("walker")
        if stop:
            run.stop(fast=True)
        return await run.wait_ended()
    finally:
        run.close()


def test_launching_and_watching(launching: Launching) -> None:
    """Cancelled, the run goes on without us (as at `down --keep-agents`); found again, it ends with its own result."""

    def make() -> Coroutine[Any, Any, ProcessEnd]:
        return launch(launching.next("sh", "-c", "sleep 0.1; exit 3"))

    async def launch(spec: LaunchSpec) -> ProcessEnd:
        return await watch(launching.processes.launch(spec), stop=False)

    def check(ended: Ended[ProcessEnd]) -> None:
        was_launched = (launching.root / launching.run_id).exists()
        assert was_launched == (ended.where != "before its first step")
        if not was_launched:
            return
        end = asyncio.run(find_its_end())
        assert (end.cause, end.code) == (Cause.EXITED, 3)
        launching.assert_over()

    async def find_its_end() -> ProcessEnd:
        return await watch(launching.processes.find(launching.run_id), stop=False)

    walk(make, check, second=True)


def test_stopping(launching: Launching) -> None:
    """A stop whose caller is cancelled may have been sent or not; asked again, the tree ends."""

    def make() -> Coroutine[Any, Any, ProcessEnd]:
        spec = launching.next("sh", "-c", "sleep 30 & sleep 30")
        return launch_and_stop(spec)

    async def launch_and_stop(spec: LaunchSpec) -> ProcessEnd:
        return await watch(launching.processes.launch(spec), stop=True)

    def check(ended: Ended[ProcessEnd]) -> None:
        if ended.where == "before its first step":
            return
        end = asyncio.run(launching.end_it())
        assert end.cause in (Cause.STOPPED, Cause.NEVER_STARTED), end
        launching.assert_over()

    walk(make, check, second=True)


@pytest.mark.parametrize("started", ["starting", "at work"])
def test_adopting(launching: Launching, started: str) -> None:
    """The keeper of an earlier supervisor, found while it starts up or works."""

    def make() -> Coroutine[Any, Any, ProcessEnd]:
        spec = launching.next("sh", "-c", "sleep 30")
        earlier = launching.processes.launch(spec)
        if started == "at work":
            asyncio.run(earlier.wait_started())
        earlier.close()
        return watch(launching.processes.find(spec.run_id), stop=True)

    def check(_ended: Ended[ProcessEnd]) -> None:
        assert Path(launching.root, launching.run_id).exists()
        end = asyncio.run(launching.end_it())
        assert end.cause is Cause.STOPPED, end
        launching.assert_over()

    walk(make, check, second=True, most=10)
